"""`ottla topic ...` on a broker: create, describe, change, copy, count, and refusals."""

from __future__ import annotations

import importlib
import json
import re
import uuid
from typing import Any, cast

import pytest

from ottla.base.counted import counted
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.topics.records import copy_records
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.client.core.admin import OffsetAt
from ottla.client.errors import KafkaError, refused
from ottla.testing.broker import Broker
from ottla.wire.apis import API_VERSION_RANGES
from ottla.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from tests.cli.conftest import Ottla
from tests.client.blocking.test_producer import INIT_PRODUCER_ID, PRODUCE, Log
from tests.client.fake_broker import FakeBroker
from tests.client.fake_group import ShrinkingBroker


@pytest.fixture
def name() -> str:
    """Of a topic that is not there yet."""
    return f"new-{uuid.uuid4().hex[:12]}"


def described(ottla: Ottla, topic: str) -> dict[str, Any]:
    (found,) = ottla("topic", "describe", topic, "-o", "json").json()["topics"]
    return dict(found)


def fill(ottla: Ottla, topic: str, count: int, *options: object) -> None:
    assert ottla("produce", topic, "--generate", count, *options).code == 0


def test_create_describe_and_list(ottla: Ottla, name: str) -> None:
    made = ottla("topic", "create", name, "-p", 3, "-r", 1, "-c", "retention.ms=5000000", "-c", "cleanup.policy=[compact,delete]")
    assert (made.code, made.out) == (0, f"Created topic {name}.\n")
    found = described(ottla, name)
    assert found["partition_count"] == 3 and found["replication_factor"] == 1
    assert found["configs"] == {"retention.ms": "5000000", "cleanup.policy": "compact,delete"}
    assert [(partition["leader"], partition["isr"]) for partition in found["partitions"]] == [(0, [0])] * 3
    assert name in ottla("topic", "list", "-o", "plain").out.splitlines()
    (by_id,) = ottla("topic", "describe", "--topic-id", found["topic_id"], "-o", "json").json()["topics"]
    assert by_id == found
    assert ottla("topic", "list", "--topic", f"{name[:-1]}.", "-o", "plain").out == f"{name}\n"


def test_eligible_leaders_are_described_where_the_broker_knows_them(ottla: Ottla, offline: Ottla, topic: str) -> None:
    (partition,) = described(ottla, topic)["partitions"]
    assert (partition["elr"], partition["last_known_elr"]) == ([], [])
    assert ottla("kafka-topics", "--describe", "--topic", topic).out.endswith("\tIsr: 0\tElr: \tLastKnownElr: \n")

    def configs(body: Any, _version: int) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_type=2, resource_name=one.resource_name) for one in body.resources]
        )

    with FakeBroker({32: configs}) as old:
        old.topics["t"] = 1
        (found,) = offline("topic", "describe", "t", "-o", "json", "-b", old.address).json()["topics"]
        assert (found["partitions"][0]["elr"], found["partitions"][0]["last_known_elr"]) == (None, None)
        lines = offline("kafka-topics", "--describe", "--topic", "t", "--bootstrap-server", old.address).out
        assert lines.endswith("\tElr: N/A\tLastKnownElr: N/A\n")


def test_a_dry_run_makes_nothing(ottla: Ottla, name: str) -> None:
    assert ottla("topic", "create", name, "--dry-run").out == f"Topic {name} could be created.\n"
    assert ottla("topic", "describe", name).code == 1


def test_if_exists_and_if_not_exists(ottla: Ottla, topic: str, name: str) -> None:
    again = ottla("topic", "create", topic, "-o", "json")
    assert again.code == 1 and json.loads(again.err)["error"]["name"] == "TOPIC_ALREADY_EXISTS"
    assert ottla("topic", "create", topic, "--if-not-exists").code == 0
    for verb, options in (("describe", []), ("delete", ["--yes"]), ("alter", ["-p", "2"])):
        assert ottla("topic", verb, name, *options).code == 1
        assert ottla("topic", verb, name, *options, "--if-exists").code == 0


def test_unknown_settings_and_topics_are_named(ottla: Ottla, topic: str, name: str) -> None:
    assert "nope" in ottla("topic", "create", name, "-c", "nope=1").err
    for line in (("topic", "create", name, "-c"), ("topic", "alter", topic, "-c"), ("config", "alter", "--topic", topic, "--add-config")):
        assert "Unknown topic config name: retention.mss; did you mean retention.ms?" in ottla(*line, "retention.mss=1").err
    assert f"did you mean {topic!r}?" in ottla("topic", "describe", f"{topic}x").err


def test_settings_are_set_and_reset(ottla: Ottla, topic: str) -> None:
    assert ottla("topic", "alter", topic, "-c", "retention.ms=7000000").code == 0
    assert described(ottla, topic)["configs"] == {"retention.ms": "7000000"}
    assert ottla("topic", "alter", topic, "--delete-config", "retention.ms", "--dry-run").code == 0
    shown = ottla("topic", "config", topic, "--set", "segment.ms=600000", "-o", "json").json()["configs"]
    assert {row["key"]: row["value"] for row in shown} == {"retention.ms": "7000000", "segment.ms": "600000"}
    resets = ("--delete-config", "retention.ms", "--delete", "segment.ms")
    everything = ottla("topic", "config", topic, *resets, "--all", "-o", "json").json()["configs"]
    assert all(row["default"] for row in everything) and len(everything) > 20
    for command in ("alter", "config"):
        wrong = ottla("topic", command, topic, "--delete-config", "retention.mss")
        assert (wrong.code, wrong.out) == (1, "")
        assert wrong.err == "error: topics have no setting 'retention.mss'; did you mean 'retention.ms'?\n"


def test_durations_and_sizes_have_units(ottla: Ottla, name: str) -> None:
    assert ottla("topic", "create", name, "-c", "retention.ms=7d", "-c", "segment.bytes=64MiB").code == 0
    assert described(ottla, name)["configs"] == {"retention.ms": "604800000", "segment.bytes": "67108864"}
    assert ottla("topic", "alter", name, "-c", "retention.ms=2h,segment.bytes=2000000").code == 0
    assert ottla("topic", "config", name, "--set", "segment.ms=90m").code == 0
    assert ottla("config", "alter", "--topic", name, "--add-config", "retention.bytes=1GiB").code == 0
    changed = {"retention.ms": "7200000", "segment.bytes": "2000000", "segment.ms": "5400000", "retention.bytes": "1073741824"}
    assert described(ottla, name)["configs"] == changed
    for wrong in ("retention.ms=7y", "retention.bytes=7d", "cleanup.policy=7d", "retention.ms=-7d"):
        assert ottla("topic", "alter", name, "-c", wrong).code == 1
    assert described(ottla, name)["configs"] == changed


def test_partitions_grow_and_never_shrink(ottla: Ottla, topic: str) -> None:
    assert ottla("topic", "add-partitions", topic, "-n", 2).code == 0
    assert ottla("topic", "alter", topic, "--partitions", 5, "--dry-run").code == 0
    assert described(ottla, topic)["partition_count"] == 3
    assert ottla("topic", "alter", topic, "--partitions", 2).code == 2


def test_filters_show_unhealthy_partitions(ottla: Ottla, topic: str) -> None:
    for name in ("under-replicated", "unavailable", "under-min-isr"):
        assert ottla("topic", "describe", topic, f"--{name}-partitions", "-o", "json").json()["topics"] == []
    at_minimum = ottla("topic", "describe", topic, "--at-min-isr-partitions", "-o", "json").json()["topics"]
    assert [partition["partition"] for partition in at_minimum[0]["partitions"]] == [0]
    assert topic not in ottla("topic", "describe", "--topics-with-overrides").out
    ottla("topic", "alter", topic, "-c", "retention.ms=7000000")
    assert topic in ottla("topic", "describe", "--topics-with-overrides").out


def test_partitions_of_internal_topics_are_counted(ottla: Ottla, topic: str) -> None:
    assert ottla("consume", topic, "-g", f"g-{topic}", "-e", "-q").code == 0  # creates __consumer_offsets
    count = int(described(ottla, "__consumer_offsets")["partition_count"])
    line = f"__consumer_offsets: {counted(count, 'partition')} (internal; --all shows them)\n"
    for options in ([], ["--at-min-isr-partitions"]):
        folded = ottla("topic", "describe", *options).out
        assert line in folded and re.search(rf"^{topic} +0 ", folded, re.MULTILINE)
        assert not re.search(r"^__consumer_offsets +\d", folded, re.MULTILINE)
        for whole in (["--all"], ["-o", "csv"], ["__consumer_offsets"]):
            shown = ottla("topic", "describe", *options, *whole).out
            assert len(re.findall(r"^__consumer_offsets\b[ ,]*\d", shown, re.MULTILINE)) == count and line not in shown


def test_trim_by_offset_by_time_and_to_the_end(ottla: Ottla, broker: Broker, topic: str) -> None:
    for number in range(6):
        broker.add_record(topic, f"{number}", timestamp=1_600_000_000_000 + number * 1000)
    start = ["offsets", topic, "--time", "earliest", "-o", "plain"]
    assert ottla("topic", "trim", topic, "--before", 2).code == 2, "not without --yes"
    shown = ottla("topic", "trim", topic, "--before", 2, "--dry-run", "-o", "json").json()
    assert shown["partitions"][0]["before"] == 2 and ottla(*start).out == f"{topic}:0:0\n"
    assert ottla("topic", "trim", topic, "--before", 2, "-y").code == 0 and ottla(*start).out == f"{topic}:0:2\n"
    assert ottla("topic", "trim", topic, "--before-time", "2020-09-13T12:26:44", "-y").code == 0 and ottla(*start).out == f"{topic}:0:4\n"
    assert ottla("topic", "trim", topic, "--before", 99, "-y").code == 1 and ottla(*start).out == f"{topic}:0:4\n"
    assert ottla("topic", "trim", topic, "--partition", 7, "-y").code == 2
    assert ottla("topic", "trim", topic, "-y").code == 0 and ottla(*start).out == f"{topic}:0:6\n"


def test_delete(ottla: Ottla, topic: str) -> None:
    assert ottla("topic", "delete", topic).code == 2, "not without --yes"
    assert ottla("topic", "delete", topic, "--dry-run").out == f"Would delete: {topic}\n"
    assert ottla("topic", "delete", topic, "--yes").out == f"Deleted {topic}.\n"
    assert ottla("topic", "delete", topic, "--yes").code == 1


def test_clone_copies_partitions_settings_and_records(ottla: Ottla, broker: Broker, name: str) -> None:
    source, empty = broker.create_topic(f"{name}-source", 2, **{"retention.ms": "-1"}), f"{name}-empty"
    for number in range(4):
        broker.add_record(source, f"v{number}", key=f"k{number}", headers={"h": "1"}, partition=number % 2, timestamp=1_600_000_000_000)
    assert ottla("topic", "clone", source, name, "--records").out == f"Cloned topic {source} to {name} with 4 records.\n"
    assert described(ottla, name)["configs"] == {"retention.ms": "-1"}
    read = ["consume", "-e", "-q", "-f", r"%p %o %T %k %s %h\n"]
    assert sorted(ottla(*read, name).out.splitlines()) == sorted(ottla(*read, source).out.splitlines())
    assert ottla("topic", "clone", source, empty).code == 0 and ottla(*read, empty).out == ""
    assert ottla("topic", "clone", source, name).code == 1
    assert ottla("topic", "clone", "nope", f"{name}-2").code == 1


def test_clone_says_which_offset_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = refused(ErrorCode.LEADER_NOT_AVAILABLE, "t-1 has no leader")
    ends = {TopicPartition("t", 0): OffsetAt(3, -1, 0), TopicPartition("t", 1): failure}
    importlib.import_module("ottla.client.blocking.consumer")  # the function that it imports first is kept for good
    monkeypatch.setattr(admin, "list_offsets", lambda *_args, **_options: ends)
    with pytest.raises(KafkaError, match="t-1 has no leader"):
        copy_records(cast(Any, None), "t", "copy", [0, 1], "none")


def test_clone_leaves_out_what_is_not_committed(ottla: Ottla, topic: str, name: str) -> None:
    fill(ottla, topic, 2)
    fill(ottla, topic, 3, "--transactional-id", f"id-{name}")
    assert ottla("topic", "clone", topic, name, "--records", "-z", "lz4").out == f"Cloned topic {topic} to {name} with 5 records.\n"


def test_analyze_counts_records_batches_codecs_and_keys(ottla: Ottla, broker: Broker, topic: str) -> None:
    fill(ottla, topic, 10, "-z", "gzip")
    fill(ottla, topic, 5, "--key", "k")
    broker.add_record(topic, None, key="gone")
    found = ottla("topic", "analyze", topic, "--keys", "-o", "json").json()
    assert found["records"] == 16 and found["batches"] == 3
    (row,) = found["partitions"]
    assert row["codecs"] == {"gzip": 1, "none": 2} and row["records_per_batch"] == round(16 / 3, 1)
    assert (row["keys"], row["no_key"], row["tombstones"]) == (2, 10, 1)
    assert row["first"] <= row["last"] and row["bytes"] > 0
    (later,) = ottla("topic", "analyze", topic, "--from-time", "2999-01-01", "-o", "json").json()["partitions"]
    assert later["records"] == 0 and later["first"] is None
    assert ottla("topic", "analyze", topic, "--partition", 4).code == 1


def test_records_whose_position_is_looked_up_again_are_counted_and_copied(offline: Ottla) -> None:
    with ShrinkingBroker() as broker:
        assert offline("topic", "analyze", "t", "-o", "json", "-b", broker.address).json()["records"] == 2
    log = Log()
    with ShrinkingBroker() as broker:
        for key, answer in ((PRODUCE, log), (INIT_PRODUCER_ID, lambda _body, _version: InitProducerIdResponse(producer_id=9))):
            broker.script[key], broker.versions[key] = answer, API_VERSION_RANGES[key]
        broker.topics["copy"] = 1
        with Cluster(broker.address) as cluster:
            assert copy_records(cluster, "t", "copy", [0], "none") == 2
    assert log.values() == [b"a", b"b"]


def test_several_topics_are_created_at_once(ottla: Ottla, broker: Broker) -> None:
    names = ["several-a", "several-b"]
    result = ottla("topic", "create", *names, "-p", "2")
    assert (result.code, result.out) == (0, "Created topic several-a.\nCreated topic several-b.\n")
    again = ottla("topic", "create", "several-b", "several-c")
    assert (again.code, again.out) == (1, "Created topic several-c.\n")
    assert again.err.splitlines()[-1] == "error: not created: 1 of 2 topics"
    assert "several-b" in again.err.splitlines()[0] and "TOPIC_ALREADY_EXISTS" in again.err.splitlines()[0]
    found = ottla("topic", "create", "several-c", "several-d", "-o", "json")
    made = found.json()
    assert ([topic["topic"] for topic in made["topics"]], made["errors"]) == (["several-d"], {"several-c": "TOPIC_ALREADY_EXISTS"})
    assert json.loads(found.err)["error"]["name"] == "TOPIC_ALREADY_EXISTS"
    assert ottla("topic", "create", "several-a", "several-d", "--if-not-exists").code == 0
    assert ottla("topic", "create").code == 2
