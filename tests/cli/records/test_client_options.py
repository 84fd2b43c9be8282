"""Producers and consumers get the settings of properties and options."""

from __future__ import annotations

import pytest

from ottla.cli.command import UsageError
from ottla.cli.records.client_options import make_consumer, make_producer, number
from ottla.cli.records.record_input import is_on
from ottla.client.blocking.cluster import Cluster

CLUSTER = Cluster("127.0.0.1:1")


def test_properties_of_a_producer() -> None:
    producer = make_producer(
        CLUSTER, {"acks": "1", "compression.type": "gzip", "batch.size": "99", "linger.ms": "7", "enable.idempotence": "false"}
    )
    assert (producer.acks, producer.batch_bytes, producer.linger_s) == (1, 99, 0.007)
    assert make_producer(CLUSTER, {"acks": "1"}, acks="0").acks == 0
    assert make_producer(CLUSTER, {}).acks == -1


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"acks": "2"}, "acks '2'"),
        ({"compression.type": "zip"}, "'zip' is none of"),
        ({"linger.ms": "soon"}, "linger.ms=soon"),
        ({"transactional.id": "t", "acks": "1"}, "a transaction needs acks all"),
    ],
)
def test_a_producer_that_makes_no_sense(properties: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_producer(CLUSTER, properties)


def test_properties_of_a_consumer() -> None:
    consumer = make_consumer(
        CLUSTER, {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "group.id": "g", "fetch.min.bytes": "5"}
    )
    assert (consumer.isolation_level, consumer.auto_offset_reset, consumer.group_id, consumer.limits.min_bytes) == (1, "earliest", "g", 5)
    assert make_consumer(CLUSTER, {"group.id": "g"}, group_id="h").group_id == "h"


@pytest.mark.parametrize("properties", [{"isolation.level": "x"}, {"auto.offset.reset": "x"}, {"fetch.max.wait.ms": "x"}])
def test_a_consumer_that_makes_no_sense(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="=x "):
        make_consumer(CLUSTER, properties)


def test_numbers_and_switches() -> None:
    assert number({"a": "5"}, "a", 1) == 5
    assert number({}, "a", 1) == 1
    assert is_on({"a": " TRUE "}, "a", False)
    assert not is_on({"a": "no"}, "a", True)
    assert is_on({}, "a", True)
