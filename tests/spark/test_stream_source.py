"""The source of a stream without Spark: what each batch covers, over restarts, changes of topics and broken connections."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")
pytest.importorskip("pyarrow")

from ottla.client import Client, Committed, TopicPartition
from ottla.spark import source as source_module
from ottla.spark.batch_range import mark_used, source_cluster
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.connections import client_of, forget
from ottla.spark.errors import DataLossError, OptionError, PipelineError
from ottla.spark.offset_json import write_offsets
from ottla.spark.options import parse_source
from ottla.spark.source import OttlaBatchReader, OttlaStreamReader
from ottla.spark.spark_versions import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from ottla.testing.broker import Broker
from tests.spark.pipeline import wait_for_markers
from tests.spark.reading import Fill, batch_values, offsets, stream, values


def batches(reader: OttlaStreamReader, start: dict[str, Any], limit: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Returns all batches that a query would run, until there are no new records."""
    found = []
    while (end := reader.latestOffset(start, limit)) != start:
        found.append((start, end))
        start = end
    return found


def test_the_first_batch_of_a_query_covers_nothing(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 5)
    reader = stream(broker, subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(100)) == start
    assert reader.partitions(start, start) == []
    assert offsets(reader.latestOffset(start, ReadMaxRows(100))) == {(topic, 0): 5, (topic, 1): 0}


def test_a_first_batch_that_is_run_again_is_the_only_one_that_covers_nothing(broker: Broker, topic: str, fill: Fill) -> None:
    """Only the first batch is empty, even if it is repeated after a crash. Spark repeats it without asking for its end, and a query with
    Trigger.AvailableNow would stop after a second empty batch.
    """
    fill(0, 5)
    reader = stream(broker, subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    reader.partitions(start, start)
    assert offsets(reader.latestOffset(start, ReadMaxRows(100)))[topic, 0] == 5


def test_the_sink_learns_which_cluster_the_source_reads(broker: Broker, client: Client, topic: str, fill: Fill) -> None:
    group = f"{topic}-g"
    reader = stream(broker, subscribe=topic, group=group, startingOffsets="earliest")
    start = reader.initialOffset()
    assert source_cluster(group) == ""
    fill(0, 3)
    reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert source_cluster(group) == client.cluster_id != ""


def test_a_restarted_query_goes_on_at_once(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 5)
    start = write_offsets("", {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0})
    assert offsets(stream(broker, subscribe=topic).latestOffset(start, ReadMaxRows(100)))[topic, 0] == 5


def test_a_trigger_that_takes_everything_ignores_the_limit(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 50)
    reader = stream(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert offsets(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))[topic, 0] == 50


def test_a_batch_is_bounded_by_the_size_of_its_records(broker: Broker, client: Client, topic: str) -> None:
    with client.producer(codec="none") as producer:
        for number in range(400):
            producer.produce(topic, b"%1000d" % number, partition=0)
            if number % 20 == 19:
                producer.flush()
    reader = stream(broker, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="102400")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(102400)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxBytes(102400)) == start
    ends = [offsets(end)[topic, 0] for _, end in batches(reader, start, ReadMaxBytes(102400))]
    assert 90 <= ends[0] <= 105, "about a hundred records of a little more than a thousand bytes"
    assert ends[-1] == 400
    generous = stream(broker, subscribe=topic)
    assert offsets(generous.latestOffset(start, generous.getDefaultReadLimit()))[topic, 0] == 400
    both = stream(broker, subscribe=topic, maxBytesPerTrigger="102400", maxOffsetsPerTrigger="10")
    assert offsets(both.latestOffset(start, both.getDefaultReadLimit()))[topic, 0] == 10
    assert 90 <= offsets(both.latestOffset(start, ReadMaxRows(399)))[topic, 0] <= 105


def test_a_bound_in_bytes_where_there_is_nothing_to_look_at(broker: Broker, client: Client, topic: str) -> None:
    with client.producer(transactional_id=f"{topic}-t") as producer:
        producer.begin()
        for number in range(300):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush()
        producer.abort()
    wait_for_markers(client, f"{topic}-t")
    start = write_offsets("", {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
    reader = stream(broker, subscribe=topic, maxBytesPerTrigger=str(100 * source_module.UNKNOWN_OFFSET_BYTES))
    assert offsets(reader.latestOffset(start, reader.getDefaultReadLimit()))[topic, 0] == 100


def test_batches_cover_each_record_once(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 40)
    fill(1, 13)
    reader = stream(broker, subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(10))
    ran = batches(reader, start, ReadMaxRows(10))
    assert len(ran) == 6
    rows = [row for low, high in ran for row in values(reader, list(reader.partitions(low, high)))]
    assert sorted(rows) == [(topic, 0, n, b"%d" % n) for n in range(40)] + [(topic, 1, n, b"%d" % n) for n in range(13)]


def test_a_new_query_starts_at_the_end_by_default(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 5)
    assert offsets(stream(broker, subscribe=topic).initialOffset()) == {(topic, 0): 5, (topic, 1): 0}


def test_the_groups_offsets_come_first(broker: Broker, client: Client, topic: str, fill: Fill) -> None:
    fill(0, 5)
    fill(1, 5)
    group = f"{topic}-g"
    reader = stream(broker, subscribe=topic, group=group, startingOffsets="latest")
    assert offsets(reader.initialOffset()) == {(topic, 0): 5, (topic, 1): 5}
    client.commit(group, {TopicPartition(topic, 0): 3})
    assert offsets(reader.initialOffset())[topic, 0] == 5, "asked for once: a batch that is planned twice starts at the same offset"
    assert offsets(stream(broker, subscribe=topic, group=group).initialOffset()) == {(topic, 0): 3, (topic, 1): 0}
    client.commit(group, {TopicPartition(topic, 0): 9})
    with pytest.raises(DataLossError, match=r"-0 ends at offset 5, but the query would continue from 9: the offsets of group .*reset"):
        stream(broker, subscribe=topic, group=group).initialOffset()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ottla.spark"]


def test_a_new_checkpoint_behind_another_query_warns_that_state_is_lost(
    broker: Broker, client: Client, topic: str, fill: Fill, caplog: pytest.LogCaptureFixture
) -> None:
    fill(0, 5)
    group = f"{topic}-g"
    partition = TopicPartition(topic, 0)
    stream(broker, subscribe=topic, group=group).initialOffset()
    client.commit(group, {partition: Committed(3, metadata=CommitMetadata("q", 0, 0).to_text())})
    stream(broker, subscribe=topic, group=group).initialOffset()
    assert warnings(caplog) == [], "its first batch may be this query's own, which is run again"
    client.commit(group, {partition: Committed(3, metadata=CommitMetadata("q", 41, 0).to_text())})
    reader = stream(broker, subscribe=topic, group=group)
    assert offsets(reader.initialOffset())[topic, 0] == 3
    reader.initialOffset()
    (warning,) = warnings(caplog)
    assert warning.startswith(f"group: this query begins with a new checkpoint where batch 41 of query q has left group '{group}'; if that")
    batch_values(broker, subscribe=topic, group=group)
    assert len(warnings(caplog)) == 1, "a batch read keeps no state"


@pytest.mark.usefixtures("own_temporary_directory")
def test_a_group_that_no_sink_commits_is_warned_of_once(
    broker: Broker, topic: str, fill: Fill, caplog: pytest.LogCaptureFixture
) -> None:
    """With a sink of another format the group's offsets are not committed, so its lag grows; a warning is printed once."""

    def run(group: str, batches: int, *, is_ours: bool) -> None:
        reader = stream(broker, subscribe=topic, group=group, startingOffsets="earliest", maxOffsetsPerTrigger="2")
        start = reader.initialOffset()
        for number in range(batches):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            reader.partitions(start, end)
            reader.partitions(start, end)  # a second action in foreachBatch plans the batch again
            if is_ours:
                mark_used(group, number)
            start = end

    fill(0, 10)
    run(f"{topic}-ours", 5, is_ours=True)
    run(f"{topic}-short", 1, is_ours=False)
    assert warnings(caplog) == []
    run(f"{topic}-other", 5, is_ours=False)
    (warning,) = warnings(caplog)
    assert warning.startswith(f"group: no sink commits the offsets of group '{topic}-other', so that its position stays and its lag grows")


def test_new_partitions_start_at_their_first_record(broker: Broker, client: Client, topic: str, fill: Fill) -> None:
    reader = stream(broker, subscribe=topic)
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(10))
    client.add_partitions(topic, 3)
    fill(2, 4)
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert offsets(end) == {(topic, 0): 0, (topic, 1): 0, (topic, 2): 4}
    assert [row[1:3] for row in values(reader, list(reader.partitions(start, end)))] == [(2, 0), (2, 1), (2, 2), (2, 3)]


def test_topics_that_match_later_are_read(broker: Broker, topic: str, fill: Fill) -> None:
    reader = stream(broker, subscribePattern=f"{topic}(-new)?")
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(10))
    fill(0, 3, name=broker.create_topic(f"{topic}-new"))
    assert offsets(reader.latestOffset(start, ReadMaxRows(10)))[f"{topic}-new", 0] == 3


@pytest.mark.parametrize("given", [{}, {"group": "later"}])
def test_a_stream_begins_before_any_topic_matches(broker: Broker, topic: str, fill: Fill, given: dict[str, str]) -> None:
    pattern = f"{topic}-later"
    reader = stream(broker, subscribePattern=pattern, startingOffsets="latest", **given)
    start = reader.initialOffset()
    assert offsets(reader.latestOffset(start, ReadMaxRows(10))) == offsets(reader.latestOffset(start, ReadMaxRows(10))) == {}
    assert list(reader.partitions(start, start)) == []
    fill(0, 3, name=broker.create_topic(pattern))
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert offsets(end) == {(pattern, 0): 3}
    assert [row[1:3] for row in values(reader, list(reader.partitions(start, end)))] == [(0, 0), (0, 1), (0, 2)]


def test_batches_of_a_stream_end_where_an_open_transaction_begins(broker: Broker, client: Client, topic: str, fill: Fill) -> None:
    """Batches end at the last stable offset. A range beyond it could give other records when it is read again."""
    fill(0, 2)
    with client.producer(transactional_id=f"{topic}-t") as producer:
        producer.begin()
        producer.produce(topic, b"open", partition=0)
        producer.flush()
        fill(0, 2, first=2)
        given = {"subscribe": topic, "startingOffsets": "earliest"}
        reader, final = stream(broker, **given), stream(broker, **given)
        start = reader.initialOffset()
        reader.latestOffset(start, ReadMaxRows(100))
        final.prepareForTriggerAvailableNow()
        final.latestOffset(final.initialOffset(), ReadMaxRows(100))
        ends = [
            reader.latestOffset(start, ReadMaxRows(100)),
            reader.latestOffset(start, ReadAllAvailable()),
            final.latestOffset(start, ReadMaxRows(100)),
            reader.reportLatestOffset(),
            stream(broker, subscribe=topic).initialOffset(),
        ]
        assert [offsets(end)[topic, 0] for end in ends] == [2] * 5
        assert [row[3] for row in values(reader, list(reader.partitions(start, ends[0])))] == [b"0", b"1"]
        assert offsets(stream(broker, isolation="read_uncommitted", **given).latestOffset(start, ReadAllAvailable()))[topic, 0] == 5
        producer.commit()
    wait_for_markers(client, f"{topic}-t")
    end = reader.latestOffset(ends[0], ReadMaxRows(100))
    assert [row[3] for row in values(reader, list(reader.partitions(ends[0], end)))] == [b"open", b"2", b"3"]


def test_a_log_that_ends_before_the_checkpoint_stops_the_query(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "SETTLE_PAUSE_S", 0.01)
    start = write_offsets("", {TopicPartition(topic, 0): 77, TopicPartition(topic, 1): 0})
    with pytest.raises(DataLossError, match=f"{topic}-0 ends at offset 0, but the query would continue from 77: the checkpoint belong"):
        stream(broker, subscribe=topic).latestOffset(start, ReadMaxRows(10))


def test_available_now_stops_at_the_ends_it_found(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 20)
    reader = stream(broker, subscribe=topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    fill(0, 20, first=20)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(8)) == start
    assert [offsets(end)[topic, 0] for _, end in batches(reader, start, ReadMaxRows(8))] == [8, 16, 20]


def test_a_batch_waits_for_enough(broker: Broker, topic: str, fill: Fill) -> None:
    reader = stream(broker, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(100))
    fill(0, 9)
    assert reader.latestOffset(start, ReadMaxRows(100)) == start
    fill(1, 1)
    assert offsets(reader.latestOffset(start, ReadMaxRows(100))) == {(topic, 0): 9, (topic, 1): 1}
    impatient = stream(broker, subscribe=topic, minOffsetsPerTrigger="1000", maxTriggerDelay="0s")
    assert offsets(impatient.latestOffset(start, ReadMaxRows(100)))[topic, 0] == 9


def test_the_offsets_of_an_older_checkpoint_are_gone_on_from(broker: Broker, topic: str, fill: Fill) -> None:
    fill(1, 6)
    old = {"group": "", "offsets": {topic: {"0": 0, "1": 4}}}
    end = stream(broker, subscribe=topic).latestOffset(old, ReadMaxRows(100))
    assert end[topic] == {"0": 0, "1": 6}
    assert [one.value[0].start for one in stream(broker, subscribe=topic).partitions(old, end)] == [4]


def test_lag_is_reported(broker: Broker, topic: str, fill: Fill) -> None:
    fill(1, 6)
    reader = stream(broker, subscribe=topic)
    assert offsets(reader.reportLatestOffset()) == {(topic, 0): 0, (topic, 1): 6}
    assert stream(broker, **{"kafka.bootstrap.servers": "localhost:1"}, subscribe=topic).reportLatestOffset() is None


def test_offsets_of_another_query_are_refused(broker: Broker, topic: str) -> None:
    with pytest.raises(PipelineError, match=r"checkpointLocation: it has offsets of another format: .*; begin with a new checkpoint"):
        stream(broker, subscribe=topic).latestOffset({topic: {"0": 1}}, ReadMaxRows(1))
    with pytest.raises(OptionError, match="group: the checkpoint was made with group 'g', the query has None"):
        stream(broker, subscribe=topic).latestOffset(write_offsets("g", {}), ReadMaxRows(1))
    with pytest.raises(OptionError, match="endingOffsets: only a batch read ends"):
        stream(broker, subscribe=topic, endingOffsets="latest")


# Connections


def test_a_connection_that_broke_while_idle_is_made_again(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 1)
    given = {"kafka.bootstrap.servers": broker.bootstrap_server}
    reader = OttlaBatchReader(parse_source({**given, "subscribe": topic}), None)
    assert len(reader.partitions()) == 1
    assert broker.drop_connections() > 0
    assert len(reader.partitions()) == 1
    forget(reader.options.connection)


CUT = ("Metadata", "ListOffsets", "FindCoordinator", "OffsetFetch", "Fetch")


@pytest.mark.parametrize("api", CUT)
@pytest.mark.parametrize("is_known", [False, True])
def test_planning_survives_connections_that_are_cut(broker: Broker, topic: str, fill: Fill, api: str, is_known: bool) -> None:
    """Planning succeeds although four connections break for each kind of request, in a new process and in a process that knows the cluster.
    """
    fill(0, 5)
    given = {"kafka.bootstrap.servers": broker.bootstrap_server, "group": f"cut-{topic}", "startingOffsets": "earliest"}
    options = parse_source({**given, "subscribe": topic, "maxBytesPerTrigger": "1000"})
    if is_known:
        client_of(options.connection).list_offsets({TopicPartition(topic, 0): 0})
    broker.fail_next(api, None, times=4)
    try:
        reader = OttlaStreamReader(options)
        start = reader.initialOffset()
        reader.latestOffset(start, ReadMaxBytes(1000))
        end = reader.latestOffset(start, ReadMaxBytes(1000))
        assert [row[2] for row in values(reader, list(reader.partitions(start, end)))] == list(range(5))
        batch = OttlaBatchReader(parse_source({**given, "subscribe": topic}), None)
        assert [row[2] for row in values(batch, batch.partitions())] == list(range(5))
    finally:
        broker.end_faults()
        forget(options.connection)


def test_a_read_survives_lost_connections(broker: Broker, topic: str, fill: Fill) -> None:
    fill(0, 2000)
    given = {"kafka.bootstrap.servers": broker.bootstrap_server, "kafka.max.partition.fetch.bytes": "1000"}
    for first in range(2000, 6000, 500):
        fill(0, 500, first=first)
    reader = OttlaBatchReader(parse_source({**given, "subscribe": topic}), None)
    planned = reader.partitions()
    is_done = threading.Event()

    def drop() -> None:
        while not is_done.wait(0.05):
            broker.drop_connections()

    dropper = threading.Thread(target=drop)
    dropper.start()
    try:
        found = values(reader, planned)
    finally:
        is_done.set()
        dropper.join()
        forget(reader.options.connection)
    assert [row[2] for row in found] == list(range(6000))
