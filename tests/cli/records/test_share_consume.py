"""`consume --share-group`, `kafka-console-share-consumer` and `bench share-consumer` on a broker."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from contextlib import ExitStack

import pytest

from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.core.admin import GROUP_RESOURCE, alter_configs
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

ALL = [str(number) for number in range(6)]


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    for number in range(6):
        broker.add_record(topic, str(number))
    return topic


@pytest.fixture
def group(broker: Broker) -> str:
    name = f"share-{uuid.uuid4().hex[:12]}"
    with Cluster(broker.bootstrap_server) as cluster:
        alter_configs(cluster, GROUP_RESOURCE, name, changes={"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "2"})
    return name


def test_two_members_share_what_is_there(broker: Broker, group: str) -> None:
    """Each has two of the four partitions, and no fetch of one locks records of the other."""
    topic = broker.create_topic(f"shared-{uuid.uuid4().hex[:8]}", partitions=4)
    with ExitStack() as stack:
        clusters = [stack.enter_context(Cluster(broker.bootstrap_server)) for _ in range(2)]
        members = [stack.enter_context(ShareConsumer(cluster, group)) for cluster in clusters]
        for member in members:
            member.subscribe([topic])
        while [len(member.assignment) for member in members] != [2, 2]:
            assert [member.poll(0.02) for member in members] == [[], []]
        for number in range(40):
            broker.add_record(topic, str(number), partition=number % 4)
        counts = [0, 0]
        while sum(counts) < 40:
            counts = [count + len(member.poll(0.02)) for count, member in zip(counts, members, strict=True)]
    assert counts == [20, 20]


def test_what_was_printed_is_accepted_and_the_rest_is_untouched(ottla: Ottla, filled: str, group: str) -> None:
    first = ottla("consume", filled, "--share-group", group, "-c", "2")
    assert (first.code, first.out.split(), first.err) == (0, ALL[:2], "Processed a total of 2 messages\n")
    rest = ottla("consume", filled, "--share-group", group, "-c", "4", "-J")
    found = [json.loads(line) for line in rest.out.splitlines()]
    assert [(record["payload"], record["delivery"]) for record in found] == [(value, 1) for value in ALL[2:]]
    assert ottla("consume", filled, "--share-group", group, "--timeout-ms", "300").out == ""


def test_a_released_record_comes_again_up_to_the_limit(ottla: Ottla, filled: str, group: str) -> None:
    for delivery in (1, 2):
        printed = ottla(
            "consume", filled, "--share-group", group, "-c", "6", "--release", "--formatter-property", "print.delivery=true"
        )  # fmt: skip
        assert printed.out.splitlines() == [f"Delivery:{delivery}\t{value}" for value in ALL]
    assert ottla("consume", filled, "--share-group", group, "--timeout-ms", "300").out == ""


def test_a_rejected_record_is_not_delivered_again(ottla: Ottla, filled: str, group: str) -> None:
    assert ottla("consume", filled, "--share-group", group, "-c", "6", "--reject", "-q").out.split() == ALL
    assert ottla("consume", filled, "--share-group", group, "--timeout-ms", "300").out == ""


def test_a_mode_that_does_not_exist(ottla: Ottla, topic: str) -> None:
    result = ottla("consume", topic, "--share-group", "g", "-X", "share.acquire.mode=all")
    assert result.code == 2 and "neither batch_optimized nor record_limit" in result.err


def test_a_closed_pipe_loses_no_record(broker: Broker, ottla: Ottla, topic: str, group: str) -> None:
    """A closed pipe (`| head`) ends the program without an error; unread records are delivered again, and no member is left behind."""
    for number in range(50):
        broker.add_record(topic, f"{number} " + "x" * 10_000)
    command = [sys.executable, "-m", "ottla.cli.main", "consume", topic, "--share-group", group, "-b", broker.bootstrap_server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("0 ")
        process.stdout.close()
        assert process.wait(20) == 0 and process.stderr.read() == ""
    assert ottla("share-group", "describe", group, "--state").out.splitlines()[1].split()[-2:] == ["Empty", "0"]
    again = ottla("consume", topic, "--share-group", group, "-c", "50", "-q")
    assert [line.split()[0] for line in again.out.splitlines()] == [str(number) for number in range(50)]


def test_a_consumer_group_is_refused(broker: Broker, ottla: Ottla, filled: str) -> None:
    name = f"group-{uuid.uuid4().hex[:12]}"
    assert ottla("consume", filled, "--group", name, "-e", "-q").code == 0
    refused = ottla("consume", filled, "--share-group", name, "--timeout-ms", "2000", "-q")
    assert refused.code == 1 and name in refused.err and refused.err.count("\n") == 1


def test_the_console_consumer_has_kafka_s_options(ottla: Ottla, filled: str, group: str) -> None:
    words = ["--topic", filled, "--group", group, "--timeout-ms", "1000"]
    printed = ottla(
        "kafka-console-share-consumer.sh", *words, "--max-messages", "6", "--release", "--formatter-property", "print.epoch=true"
    )
    assert printed.out.splitlines() == [f"Epoch:NOT_PRESENT\t{value}" for value in ALL]
    assert ottla("kafka-console-share-consumer", *words, "--max-messages", "6", "--property", "print.offset=true").out.splitlines()[0] == (
        "Offset:0\t0"
    )
    assert ottla("kafka-console-share-consumer", *words, "--reject", "--release").code == 2
    assert ottla("kafka-console-share-consumer", *words, "--consumer-property", "group.id=other").code == 2
    assert ottla("kafka-console-share-consumer", "--topic", filled, "--timeout-ms", "300").code == 0
    assert "console-share-consumer" in ottla("share-group", "list").out


def test_the_performance_test_prints_kafka_s_line(ottla: Ottla, filled: str, group: str) -> None:
    words = ["--topic", filled, "--group", group, "--num-records", "6", "--threads", "2", "--show-consumer-stats"]
    header, first, second, total = ottla("kafka-share-consumer-perf-test", *words).out.splitlines()
    assert header == "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
    assert first.startswith("Share consumer 1 having client id perf-share-consumer-client-1 consumption metrics- ")
    counts = [int(line.split(", ")[-2]) for line in (first, second, total)]
    assert counts[0] + counts[1] == counts[2] == 6 and len(total.split(", ")) == 7
    late = ottla("bench", "share-consumer", *words[:4], "--num-records", "9", "--timeout", "200", "-o", "json")
    assert late.json()["data.consumed.in.nMsg"] == 0 and "timeout (200 ms) exceeded" in late.err
