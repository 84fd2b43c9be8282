"""Partitions that are missing in the cluster's metadata keep their positions until they are certainly deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")
pytest.importorskip("pyarrow")

from ottla.client import TopicPartition
from ottla.spark import source as source_module
from ottla.spark import topics
from ottla.spark.connections import client_of
from ottla.spark.errors import DataLossError, PipelineError
from ottla.spark.offset_json import read_offsets
from ottla.spark.options import SourcePartitions, parse_source
from ottla.spark.source import OttlaStreamReader
from ottla.spark.spark_versions import ReadAllAvailable, ReadMaxRows
from ottla.testing.broker import Broker
from tests.spark.kept_connections import close_clients
from tests.spark.pipeline import WAIT_S
from tests.spark.reading import Fill, offsets, stream, values


def test_only_a_topic_that_stays_unknown_or_is_not_subscribed_is_gone() -> None:
    a, b, other = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("other", 0)
    now = 0.0
    found = topics.Absence(SourcePartitions(option="subscribe", topics=("a", "b")), lambda: now)
    assert found.observe([a, b, other], {"b"}) == ({other}, {a, b}) and found.is_undecided
    now = topics.GONE_S - 1
    assert found.observe([a, b], {"b"}) == (set(), {a, b}) and found.is_undecided
    now = topics.GONE_S
    assert found.observe([a, b], {"b"}) == ({a}, {b}) and not found.is_undecided
    assert found.observe([b], ()) == (set(), {b}), "its leader was being elected until now"
    now += topics.GONE_S - 1
    assert found.observe([a, b], ()) == (set(), {a, b}), "it was there in between"
    now += 1
    assert found.observe([a, b], ()) == ({b}, {a})


def after_a_while(reader: OttlaStreamReader, start: dict[str, Any], is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Asks for the end of the next batch until it is the wanted one."""
    deadline = time.monotonic() + WAIT_S
    while not is_wanted(end := reader.latestOffset(start, ReadMaxRows(100))):
        assert time.monotonic() < deadline, end
        time.sleep(0.01)
    return end


def test_a_deleted_topic_stops_the_query(broker: Broker, topic: str, fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted topic stops the query after no broker has known it for a while. Its position is kept until then, and stays in the
    checkpoint if its loss is allowed.
    """
    monkeypatch.setattr(topics, "GONE_S", 0.3)
    other = broker.create_topic(f"{topic}-other")
    fill(0, 4, name=other)
    given = {"subscribe": f"{topic},{other}", "startingOffsets": "earliest"}
    reader = stream(broker, **given)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    broker.delete_topics([other])
    with pytest.raises(DataLossError, match=f"{other}-0 was being read, and is deleted or no longer subscribed.*failOnDataLoss=false"):
        after_a_while(reader, start, lambda end: offsets(end) != offsets(start))
    lenient = stream(broker, failOnDataLoss="false", **given)
    end = after_a_while(lenient, start, lambda end: end != start)
    assert offsets(end) == {(topic, 0): 0, (topic, 1): 0}
    found = read_offsets(end)
    assert found is not None and found.gone == {TopicPartition(other, 0): 4}
    assert lenient.latestOffset(end, ReadMaxRows(10)) == end
    with pytest.raises(DataLossError, match=f"{other}-0 was being read, and is deleted or no longer subscribed"):
        stream(broker, subscribe=topic).latestOffset(start, ReadMaxRows(10))


GAPS = ("LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.fixture(autouse=True)
def without_faults(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the reader ask again without a pause. At the end it removes the faults and closes the clients that had them."""
    monkeypatch.setattr(source_module, "SETTLE_PAUSE_S", 0.001)
    monkeypatch.setattr(topics, "ABSENT_PAUSE_S", 0.001)
    yield
    broker.end_faults()
    close_clients()


def gap(broker: Broker, topic: str, how: str, **given: str) -> OttlaStreamReader:
    """A reader whose metadata the test can make incomplete."""
    text = {"subscribe": topic, "subscribePattern": f"{topic}.*", "assign": f'{{"{topic}":[0,1]}}'}[how]
    named = {"kafka.bootstrap.servers": broker.bootstrap_server, "startingOffsets": "earliest", how: text}
    return OttlaStreamReader(parse_source({**named, **given}))


@pytest.mark.parametrize("lenient", ["true", "false"])
@pytest.mark.parametrize("error", GAPS)
@pytest.mark.parametrize("how", ["subscribe", "subscribePattern", "assign"])
def test_a_gap_in_metadata_keeps_the_positions(
    broker: Broker, topic: str, fill: Fill, how: str, error: str, lenient: str
) -> None:
    """A broker that has just started may not know a topic, or its leader, for some seconds. No record is lost or read again because of
    that.
    """
    fill(0, 5)
    reader = gap(broker, topic, how, failOnDataLoss=lenient)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    fill(0, 3, first=5)
    broker.fail_next("Metadata", error, times=1000)
    for _ in range(10):
        assert reader.latestOffset(start, ReadMaxRows(100)) == start
    assert list(reader.partitions(start, start)) == []
    broker.end_faults()
    end = reader.latestOffset(start, ReadMaxRows(100))
    assert offsets(end) == {(topic, 0): 8, (topic, 1): 0}
    assert [row[2] for row in values(reader, list(reader.partitions(start, end)))] == [5, 6, 7]


def test_the_other_topics_are_read_while_one_has_no_leader_and_wait_while_one_may_not_exist(
    broker: Broker, topic: str, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other topics are read while one topic has no leader. They wait while a topic may not exist, because the sink commits the offsets of
    all topics and a coordinator refuses offsets of a missing topic.
    """
    other = broker.create_topic(f"{topic}-other")
    fill(0, 4, name=other)
    reader = stream(broker, subscribe=f"{topic},{other}", startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    fill(0, 3)
    present = topics.present_partitions
    for unready, expected in ({other}, 3), (set(), 0):

        def without(client: Any, subscription: SourcePartitions, unready: Any = frozenset(unready)) -> topics.Present:
            found = [one for one in present(client, subscription).partitions if one.topic == topic]
            return topics.Present(found, unready)

        monkeypatch.setattr(topics, "present_partitions", without)
        end = reader.latestOffset(start, ReadMaxRows(100))
        assert offsets(end) == {(topic, 0): expected, (topic, 1): 0, (other, 0): 4}
        assert (end == start) == (expected == 0)


@pytest.mark.parametrize("error", GAPS)
def test_a_query_that_stops_by_itself_waits_for_the_end_of_a_gap(
    broker: Broker, topic: str, fill: Fill, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    fill(0, 5)
    before = gap(broker, topic, "subscribe")
    start = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    fill(0, 3, first=5)
    for limit in (ReadMaxRows(100), ReadAllAvailable()):
        reader = gap(broker, topic, "subscribe")
        broker.fail_next("Metadata", error, times=20)
        if limit == ReadMaxRows(100):
            reader.prepareForTriggerAvailableNow()
        assert offsets(reader.latestOffset(start, limit)) == {(topic, 0): 8, (topic, 1): 0}
        broker.end_faults()
    monkeypatch.setattr(topics, "GONE_S", 0.1)
    broker.fail_next("Metadata", "LEADER_NOT_AVAILABLE", times=100_000)
    with pytest.raises(PipelineError, match=f"subscribe: topic '{topic}' exists, but its brokers cannot describe it now"):
        gap(broker, topic, "subscribe").latestOffset(start, ReadAllAvailable())


def test_a_partition_that_was_gone_is_read_on_from_where_it_was(
    broker: Broker, topic: str, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that exists again is read from its last position, also in the plan of a batch and in a process that did not notice its
    absence.
    """
    monkeypatch.setattr(topics, "GONE_S", 0.0)
    fill(0, 5)
    reader = gap(broker, topic, "subscribe", failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    broker.fail_next("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", times=1000)
    without = reader.latestOffset(start, ReadMaxRows(100))
    assert offsets(without) == {}
    broker.end_faults()
    fill(0, 3, first=5)
    for one in (reader, gap(broker, topic, "subscribe")):
        end = one.latestOffset(without, ReadMaxRows(100))
        assert offsets(end) == {(topic, 0): 8, (topic, 1): 0}
        assert [row[2] for row in values(one, list(one.partitions(without, end)))] == [5, 6, 7]


def test_a_new_query_does_not_begin_without_a_topic_that_cannot_be_described(broker: Broker, topic: str, fill: Fill) -> None:
    """A new query does not begin while a topic cannot be described. Otherwise it would later treat the topic as new, and read it from its
    first record.
    """
    fill(0, 5)
    reader = gap(broker, topic, "subscribePattern", startingOffsets="latest")
    client_of(reader.options.connection)
    broker.fail_next("Metadata", "LEADER_NOT_AVAILABLE", times=topics.ABSENT_TRIES - 1)
    assert offsets(reader.initialOffset()) == {(topic, 0): 5, (topic, 1): 0}
    broker.fail_next("Metadata", "LEADER_NOT_AVAILABLE", times=1000)
    with pytest.raises(PipelineError, match=f"subscribePattern: topic '{topic}' exists, but its brokers cannot describe it now"):
        gap(broker, topic, "subscribePattern", startingOffsets="latest").initialOffset()
