"""Kafka's Java client against a broker process: one JVM runs the steps of `tests/clients/java`, and the tests check the output of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.java_program import Java

WANTED = {
    **{f"codec {codec}": "true" for codec in ("none", "gzip", "snappy", "lz4", "zstd")},
    **{f"acks {acks}": "[0, 1, 2]" for acks in ("0", "1", "all")},
    "record": "[0=k,v,2, 1=tombstone,null,0, 2=null,,0]",
    "idempotent": "true",
    "seek": "[13, 14, 15, 16] 20 0",
    "times": "[(timestamp=1600000000000, leaderEpoch=0, offset=0), (timestamp=1600000004000, leaderEpoch=0, offset=4), null]",
    "large": "true",
    **{f"resume {protocol}": "[10, note, 12, 3, 20]" for protocol in ("classic", "consumer")},
    **{f"static {protocol}": "[the-one2, the-one2]" for protocol in ("classic", "consumer")},
    **{f"share {assignor}": "[2+2, 4]" for assignor in ("Range", "RoundRobin", "Sticky", "CooperativeSticky", "uniform", "range")},
    "commits while members change": "true",
    "pattern": "[0, 1, 2] 2",
    "topics by id": "[true, 3, UnknownTopicIdException]",
    "topics": "[TopicExistsException, true, 3, UnknownTopicOrPartitionException]",
    "configurations": "5555 delete,compact DEFAULT_CONFIG",
    "records deleted": "[4, 4, 10, 4, 4, true]",
    "groups classic": "[Classic Stable 1, true, true, 5, 2, none, false]",
    "groups consumer": "[Consumer Stable 1, true, true, 5, 2, none, false]",
    "cluster": "[1, true, 1, [group.version, share.version, streams.version, transaction.version]]",
    "quotas": "{producer_byte_rate=1.0E9}",
    "commit and abort": "[0a, 0b, 2a, 2b] [0, 1, 3, 4, 6, 7, 9, 10]",
    "open": "[0, true, Ongoing, true]",
    "fenced": "ProducerFencedException [young]",
    "console of others, cluster": "[true, true, true, false, SecurityDisabledException, 1]",
    "console of others, topics": "[true, true, 0, 3, 0]",
    "console of others, groups": "[true, Empty, 2]",
    "copy classic": "true",
    "copy consumer": "true",
}


@pytest.fixture(scope="module")
def seen(broker: BrokerProcess, need_program: Callable[[str], str]) -> dict[str, str]:
    """The output of the steps."""
    done = Java(need_program).run("steps.Steps", broker.address)
    print(done.stderr)  # pytest shows it beside a step that failed
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines, done.stderr[-4000:]
    return lines


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
@pytest.mark.parametrize("step", WANTED)
def test_a_step_sees_what_it_must(seen: dict[str, str], step: str) -> None:
    assert seen[step] == WANTED[step]


def test_every_step_is_judged(seen: dict[str, str]) -> None:
    assert sorted(seen) == sorted(WANTED)


@pytest.mark.timeout(900)
def test_kafka_topics_describes_by_id(broker: BrokerProcess, need_program: Callable[[str], str]) -> None:
    java, tool = Java(need_program), "org.apache.kafka.tools.TopicCommand"
    for line in ("--create --topic described-by-id --partitions 2", "--describe --topic described-by-id"):
        done = java.run(tool, "--bootstrap-server", broker.address, *line.split())
        assert done.returncode == 0, done.stderr
    topic_id = done.stdout.split("TopicId: ")[1].split()[0]
    by_id = java.run(tool, "--bootstrap-server", broker.address, "--describe", "--topic-id", topic_id)
    assert by_id.returncode == 0, by_id.stderr
    lines = [[line.split("\tElr:")[0] for line in text.splitlines()] for text in (by_id.stdout, done.stdout)]
    assert lines[0] == lines[1], "Metadata, which the tool asks then, knows nothing of eligible replicas"
