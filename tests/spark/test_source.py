"""The source without Spark: readers against a broker process plan ranges and read them into Arrow."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")
pytest.importorskip("pyarrow")

from ottla.client import Client, TopicPartition
from ottla.spark import planning
from ottla.spark import source as source_module
from ottla.spark.connections import client_of, forget
from ottla.spark.data_source import COLUMNS, OttlaDataSource
from ottla.spark.errors import DataLossError, OptionError, PipelineError
from ottla.spark.options import parse_source
from ottla.spark.source import OttlaBatchReader, OttlaStreamReader
from ottla.testing.broker import Broker
from tests.spark.reading import Fill, batch_values, options_of, stream, values


def test_a_batch_read_covers_all_partitions_once(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 30)
    fill(1, 10)
    reader = OttlaBatchReader(options_of(broker, subscribe=topic, minPartitions="4"), None)
    planned = reader.partitions()
    assert len(planned) == 4
    expected = [(topic, 0, n, b"%d" % n) for n in range(30)] + [(topic, 1, n, b"%d" % n) for n in range(10)]
    assert values(reader, planned) == expected


@pytest.fixture
def shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a few hundred bytes a large read, on a host with three processors."""
    monkeypatch.setattr(source_module, "SPLIT_OFFSETS_MIN", 20)
    monkeypatch.setattr(planning, "TASK_BYTES_MAX", 1000)
    monkeypatch.setattr(planning, "TASK_BYTES_MIN", 50)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)


def test_a_large_read_is_shared_out(shared_out: None, broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 60)
    reader = OttlaBatchReader(options_of(broker, subscribe=topic), None)
    planned = reader.partitions()
    assert [one.value[0][1:3] for one in planned] == [(0, 20), (20, 40), (40, 60)]
    assert values(reader, planned) == [(topic, 0, n, b"%d" % n) for n in range(60)]
    little = f'{{"{topic}":{{"0":19,"1":-1}}}}'
    for given, tasks in ({"minPartitions": "1"}, 1), ({"maxRecordsPerPartition": "50"}, 2), ({"endingOffsets": little}, 1):
        assert len(OttlaBatchReader(options_of(broker, subscribe=topic, **given), None).partitions()) == tasks


@pytest.mark.parametrize("given", [{}, {"maxOffsetsPerTrigger": "100"}, {"maxBytesPerTrigger": "100000"}])
def test_a_large_batch_of_a_stream_is_shared_out(shared_out: None, broker: Broker, topic: str, fill: Fill, given: dict[str, str]) -> None:
    """A large batch of a stream is divided among tasks, whether or not records were sampled for the limit of the batch, and also in another
    process after a restart.
    """
    fill(0, 60)
    options = options_of(broker, subscribe=topic, startingOffsets="earliest", **given)
    reader = OttlaStreamReader(options)
    start = reader.initialOffset()
    end = reader.latestOffset(reader.latestOffset(start, reader.getDefaultReadLimit()), reader.getDefaultReadLimit())
    for one in (reader, OttlaStreamReader(options)):
        planned = one.partitions(start, end)
        assert [found.value[0][1:3] for found in planned] == [(0, 20), (20, 40), (40, 60)]
        assert values(one, planned) == [(topic, 0, n, b"%d" % n) for n in range(60)]


def tasks_of(reader: OttlaStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Plans the next batch. Returns its end, and the ranges of each task."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    planned = reader.partitions(start, end)
    found = values(reader, planned)
    assert [one[3] for one in found] == [b"%d" % one[2] for one in found]
    return end, [[(one.partition.partition, one.start, one.end) for one in task.value] for task in planned]


def test_few_records_of_several_partitions_are_read_by_one_task_while_batches_are_quick(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, topic: str, fill: Fill
) -> None:
    fill(0, 30)
    fill(1, 20)
    reader = stream(broker, subscribe=topic, startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    end, tasks = tasks_of(reader, end)
    assert tasks == [[(0, 0, 30), (1, 0, 20)]]
    fill(0, 5, first=30)
    fill(1, 5, first=20)
    monkeypatch.setattr(source_module, "JOINED_SECONDS_MAX", 0.0)
    end, tasks = tasks_of(reader, end)
    assert tasks == [[(0, 30, 35)], [(1, 20, 25)]], "the batch before took longer than that"
    monkeypatch.undo()
    for given, expected in ({"minPartitions": "1"}, 2), ({"maxRecordsPerPartition": "50"}, 2), ({}, 1):
        other = stream(broker, subscribe=topic, startingOffsets="earliest", **given)
        start = other.latestOffset(other.initialOffset(), other.getDefaultReadLimit())
        assert len(tasks_of(other, start)[1]) == expected
    monkeypatch.setattr(source_module, "JOINED_OFFSETS_MAX", 59)
    other = stream(broker, subscribe=topic, startingOffsets="earliest")
    start = other.latestOffset(other.initialOffset(), other.getDefaultReadLimit())
    assert tasks_of(other, start)[1] == [[(0, 0, 35)], [(1, 0, 25)]]


def test_the_ends_for_the_lag_are_those_that_the_plan_has_read(broker: Broker, topic: str, fill: Fill) -> None:
    """Spark asks for them after each plan. Asked again, they are read."""
    fill(0, 3)
    reader = stream(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    start = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    fill(0, 2, first=3)
    assert (end[topic]["0"], reader.reportLatestOffset()[topic]["0"]) == (1, 3)  # type: ignore[index]
    assert reader.reportLatestOffset()[topic]["0"] == 5  # type: ignore[index]


def test_a_batch_read_keeps_its_snapshot(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 5)
    source = OttlaDataSource({"kafka.bootstrap.servers": broker.direct_server, "subscribe": topic})
    assert source.schema() == COLUMNS
    loaded = pickle.loads(pickle.dumps(source))
    fill(0, 5, first=5)
    first, second = (loaded.reader(COLUMNS).partitions() for _ in range(2))
    assert len(values(loaded.reader(COLUMNS), first)) == len(values(loaded.reader(COLUMNS), second)) == 5


def test_positions_of_a_batch_read(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 3, timestamp=1000)
    fill(0, 3, first=3, timestamp=2000)
    fill(0, 3, first=6, timestamp=3000)
    assert batch_values(broker, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":2,"1":-2}}}}')[0] == b"2"
    assert batch_values(broker, subscribe=topic, endingOffsets=f'{{"{topic}":{{"0":2,"1":-1}}}}') == [b"0", b"1"]
    only = {"assign": f'{{"{topic}":[0]}}'}
    assert batch_values(broker, **only, startingTimestamp="2000", endingTimestamp="3000") == [b"3", b"4", b"5"]
    assert batch_values(broker, **only, startingOffsetsByTimestamp=f'{{"{topic}":{{"0":2500}}}}') == [b"6", b"7", b"8"]
    assert batch_values(broker, **only, startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(OptionError, match=r"startingTimestamp: .* has no readable record at or after"):
        batch_values(broker, **only, startingTimestamp="9000")


def test_a_pattern_takes_whole_names_and_no_internal_topics(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 2)
    assert batch_values(broker, subscribePattern=topic[:-1] + ".") == [b"0", b"1"]
    with pytest.raises(OptionError, match=r"subscribePattern: no topic matches"):
        batch_values(broker, subscribePattern="__.*")


def test_a_batch_read_starts_at_the_groups_offsets(broker: Broker, client: Client, topic: str, fill: Fill) -> None:
    fill(0, 5)
    client.commit(f"{topic}-g", {TopicPartition(topic, 0): 3})
    assert batch_values(broker, subscribe=topic, group=f"{topic}-g") == [b"3", b"4"]
    assert len(batch_values(broker, subscribe=topic, group=f"{topic}-g", startingOffsets="earliest")) == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: latest makes no sense for a batch read"),
        ({"startingOffsets": '{"%s":{"0":-1,"1":0}}'}, "startingOffsets: -1"),
        ({"startingOffsets": '{"%s":{"0":99,"1":0}}'}, "startingOffsets: 99 is beyond the end of .*-0, 1"),
        ({"startingOffsets": '{"%s":{"0":1,"1":0}}', "endingOffsets": '{"%s":{"0":0,"1":0}}'},
         "startingOffsets: .*-0 would start at 1, behind its end 0; change it or endingOffsets"),
        ({"startingOffsets": '{"%s":{"0":0}}'}, "startingOffsets: .*-1 is missing"),
        ({"startingOffsets": '{"%s":{"0":0,"1":0,"2":0}}'}, "startingOffsets: .*-2 is not read"),
        ({"endingOffsets": '{"%s":{"0":9,"1":0}}'}, "endingOffsets: 9 is beyond the end of .*-0, 1"),
        ({"endingOffsets": "earliest"}, "endingOffsets: earliest"),
    ],
)  # fmt: skip
def test_positions_that_make_no_sense(broker: Broker, topic: str, fill: Fill, given: dict[str, str], message: str) -> None:
    fill(0, 1)
    with pytest.raises(OptionError, match=message):
        batch_values(broker, subscribe=topic, **{name: text.replace("%s", topic) for name, text in given.items()})


def test_topics_that_cannot_be_read(broker: Broker, topic: str) -> None:
    with pytest.raises(PipelineError, match=r"subscribe: .*'no-such-topic' not found"):
        batch_values(broker, subscribe=f"{topic},no-such-topic")
    with pytest.raises(OptionError, match=f"assign: partition {topic}-7 does not exist"):
        batch_values(broker, assign=f'{{"{topic}":[0,7]}}')


@pytest.mark.parametrize(
    ("api", "code", "message"),
    [
        ("Metadata", "TOPIC_AUTHORIZATION_FAILED", r"^subscribe: TOPIC_AUTHORIZATION_FAILED: topic '%s'$"),
        ("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", r"^subscribe: TOPIC_AUTHORIZATION_FAILED: .*%s"),
        ("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", r"^group: GROUP_AUTHORIZATION_FAILED: .*'%s-g'"),
        ("Fetch", "TOPIC_AUTHORIZATION_FAILED", r"^subscribe: TOPIC_AUTHORIZATION_FAILED: reading %s-0 from offset 0$"),
    ],
)
def test_a_read_without_a_right_is_refused_and_goes_on_when_it_has_it(
    broker: Broker, topic: str, fill: Fill, api: str, code: str, message: str
) -> None:
    fill(0, 3)
    given = {"kafka.bootstrap.servers": broker.bootstrap_server, "subscribe": topic, "group": f"{topic}-g"}
    reader = OttlaBatchReader(parse_source(given), None)
    client_of(reader.options.connection)  # its first request asks for the brokers
    broker.fail_next(api, code)
    try:
        with pytest.raises(PipelineError, match=message.replace("%s", topic)):
            values(reader, reader.partitions())
        assert [row[3] for row in values(reader, reader.partitions())] == [b"0", b"1", b"2"]
    finally:
        forget(reader.options.connection)


def test_a_broker_that_goes_away_while_a_range_is_read(topic: str, broker: Broker, fill: Fill) -> None:
    fill(0, 3)
    given = {"kafka.bootstrap.servers": broker.bootstrap_server, "subscribe": topic, "kafka.request.timeout.ms": "300"}
    reader = OttlaBatchReader(parse_source(given), None)
    planned = reader.partitions()
    try:
        with broker.pause(), pytest.raises(PipelineError, match=rf"^kafka.bootstrap.servers={broker.bootstrap_server}: "):
            values(reader, planned)
        assert len(values(reader, planned)) == 3
    finally:
        forget(reader.options.connection)


# Gaps and lost records


def test_gaps_are_normal(broker: Broker, client: Client, topic: str) -> None:
    with client.producer(transactional_id=f"{topic}-t") as producer:
        for is_committed in (True, False, True):
            producer.begin()
            for number in range(3):
                producer.produce(topic, b"%d" % number, partition=0)
            producer.flush()
            if is_committed:
                producer.commit()
            else:
                producer.abort()
    reader = OttlaBatchReader(options_of(broker, subscribe=topic), None)
    (planned,) = reader.partitions()
    assert (planned.value[0].start, planned.value[0].end) == (0, 12), "three transactions of three records, with their markers"
    assert [row[2] for row in values(reader, [planned])] == [0, 1, 2, 8, 9, 10]
    raw = OttlaBatchReader(options_of(broker, subscribe=topic, isolation="read_uncommitted"), None)
    assert [row[2] for row in values(raw, raw.partitions())] == [0, 1, 2, 4, 5, 6, 8, 9, 10]


def test_an_open_transaction_ends_the_read(broker: Broker, client: Client, topic: str, fill: Fill) -> None:
    fill(0, 2)
    with client.producer(transactional_id=f"{topic}-t") as producer:
        producer.begin()
        producer.produce(topic, b"open", partition=0)
        producer.flush()
        fill(0, 2, first=2)
        assert batch_values(broker, subscribe=topic) == [b"0", b"1"]
        producer.commit()
    assert batch_values(broker, subscribe=topic) == [b"0", b"1", b"open", b"2", b"3"]


def test_records_deleted_before_they_were_read(broker: Broker, client: Client, topic: str, fill: Fill) -> None:
    fill(0, 10)
    reader = OttlaBatchReader(options_of(broker, subscribe=topic), None)
    planned = reader.partitions()
    client.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(DataLossError, match=r"offset 0 of .*-0 no longer exists, the log begins at 4.*failOnDataLoss=false"):
        values(reader, planned)
    lenient = OttlaBatchReader(options_of(broker, subscribe=topic, failOnDataLoss="false"), None)
    assert [row[2] for row in values(lenient, planned)] == [4, 5, 6, 7, 8, 9]
    start = f'{{"{topic}":{{"0":1,"1":-2}}}}'
    with pytest.raises(DataLossError, match="offset 1"):
        batch_values(broker, subscribe=topic, startingOffsets=start)
    assert len(batch_values(broker, subscribe=topic, startingOffsets=start, failOnDataLoss="false")) == 6
