"""A topic that is deleted and created again under its name stops the query by its id, or is read from its first record.

The new topic has at least as many records as the old one, so the offsets alone do not show the change.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")
pytest.importorskip("pyarrow")

from ottla.client import Client, Committed, TopicPartition
from ottla.spark import source as source_module
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.decision import BatchRange
from ottla.spark.errors import DataLossError
from ottla.spark.offset_json import read_offsets, write_offsets
from ottla.spark.options import parse_source
from ottla.spark.source import OttlaBatchReader, OttlaStreamReader
from ottla.spark.spark_versions import ReadMaxRows
from ottla.spark.verify import verify
from ottla.testing.broker import Broker
from tests.spark.encoded import values
from tests.spark.pipeline import Pipeline, transaction_state, wait_for_markers, wait_for_topic

WAIT_S = 60.0
MESSAGE = (
    r"subscribe: topic '{topic}' was deleted and created again since the query read it \(id \S+, now \S+\), or this is another cluster"
    r".*failOnDataLoss=false"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "SETTLE_PAUSE_S", 0.01)


@pytest.fixture
def topic(client: Client) -> str:
    """Makes a topic with one partition and the records 0 to 9."""
    name = f"replaced-{uuid.uuid4().hex[:12]}"
    create(client, name, range(10))
    return name


def create(client: Client, name: str, numbers: range) -> None:
    client.create_topic(name)
    wait_for_topic(client, name)
    with client.producer() as producer:
        for number in numbers:
            producer.produce(name, b"%d" % number, partition=0)


def replace(client: Client, name: str, numbers: range = range(100, 120)) -> None:
    """Deletes a topic and creates another one with its name."""
    client.delete_topic(name)
    deadline = time.monotonic() + WAIT_S
    while name in client.topics():
        assert time.monotonic() < deadline, "the topic is not deleted in time"
        time.sleep(0.01)
    create(client, name, numbers)


def stream(broker: Broker, topic: str, **given: str) -> OttlaStreamReader:
    return OttlaStreamReader(parse_source({"kafka.bootstrap.servers": broker.direct_server, "subscribe": topic, **given}))


def begun(broker: Broker, topic: str, **given: str) -> tuple[OttlaStreamReader, dict[str, Any]]:
    """Returns a query that has read everything, and its offset."""
    reader = stream(broker, topic, startingOffsets="earliest", **given)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(100)) == start
    end = reader.latestOffset(start, ReadMaxRows(100))
    assert records(reader, start, end) == list(range(10))
    return reader, end


def records(reader: OttlaStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Returns the records that the tasks of a batch read."""
    planned = reader.partitions(start, end)
    return [int(value) for one in planned for batch in reader.read(one) for value in batch.column("value").to_pylist()]


def test_it_is_found_while_the_query_runs_and_when_it_starts_again(broker: Broker, client: Client, topic: str) -> None:
    reader, end = begun(broker, topic)
    replace(client, topic)
    for one in (reader, stream(broker, topic)):
        with pytest.raises(DataLossError, match=MESSAGE.format(topic=topic)):
            one.latestOffset(end, ReadMaxRows(100))


def test_without_fatal_loss_the_new_topic_is_read_from_its_first_record(broker: Broker, client: Client, topic: str) -> None:
    _, end = begun(broker, topic)
    replace(client, topic)
    for reader in (stream(broker, topic, failOnDataLoss="false") for _ in range(2)):
        after = reader.latestOffset(end, ReadMaxRows(15))
        assert records(reader, end, after) == list(range(100, 115))
        last = reader.latestOffset(after, ReadMaxRows(15))
        assert records(reader, after, last) == list(range(115, 120))


def test_a_batch_that_was_planned_before_is_not_read_from_the_new_topic(broker: Broker, client: Client, topic: str) -> None:
    """A batch that was planned before the change is not read from the new topic. Spark repeats such a batch after a restart without asking
    for its end.
    """
    _, end = begun(broker, topic)
    with client.producer() as producer:
        producer.produce(topic, b"10", partition=0)
    planned = stream(broker, topic).latestOffset(end, ReadMaxRows(100))
    replace(client, topic)
    with pytest.raises(DataLossError, match=MESSAGE.format(topic=topic)):
        stream(broker, topic).partitions(end, planned)
    assert stream(broker, topic).partitions(planned, planned) == [], "a batch without records of the topic needs none"
    lenient = stream(broker, topic, failOnDataLoss="false")
    assert records(lenient, end, planned) == []
    assert records(lenient, planned, lenient.latestOffset(planned, ReadMaxRows(100))) == list(range(100, 120))


@pytest.mark.parametrize(("count", "lenient"), [(20, "false"), (3, "false"), (20, "true")])
def test_a_range_that_is_being_read_is_refused(broker: Broker, client: Client, topic: str, count: int, lenient: str) -> None:
    options = {"failOnDataLoss": "false" if lenient == "true" else "true", "kafka.request.timeout.ms": "1000"}
    reader = stream(broker, topic, startingOffsets="earliest", **options)
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(100))
    (planned,) = reader.partitions(start, reader.latestOffset(start, ReadMaxRows(100)))
    replace(client, topic, range(100, 100 + count))
    wanted = "start the query again" if lenient == "true" else "failOnDataLoss=false"
    with pytest.raises(DataLossError, match=f"topic '{topic}' was deleted and created again.*{wanted}"):
        list(reader.read(planned))


def test_the_groups_offsets_are_of_the_topic_that_they_were_committed_for(broker: Broker, client: Client, topic: str) -> None:
    """The group's offsets belong to the topic for which they were committed. If the broker keeps offsets of deleted topics, the change is
    found even if the checkpoint is lost too.
    """
    partition, group = TopicPartition(topic, 0), f"{topic}-g"
    before = client.describe_topic(topic).topic_id_text
    replace(client, topic)
    committed = Committed(10, metadata=CommitMetadata("q", 0, 0, topic_id=before).to_text())
    client.commit(group, {partition: committed})
    with pytest.raises(DataLossError, match=MESSAGE.format(topic=topic)):
        stream(broker, topic, group=group).initialOffset()
    options = {"kafka.bootstrap.servers": broker.direct_server, "subscribe": topic, "group": group}
    with pytest.raises(DataLossError, match=MESSAGE.format(topic=topic)):
        OttlaBatchReader(parse_source(options), None).partitions()
    initial = read_offsets(stream(broker, topic, group=group, failOnDataLoss="false", startingOffsets="earliest").initialOffset())
    assert initial is not None and initial.offsets == {partition: 0}


@pytest.mark.parametrize("is_of_older_version", [False, True])
def test_a_checkpoint_without_ids_is_gone_on_with(broker: Broker, client: Client, topic: str, is_of_older_version: bool) -> None:
    reader = stream(broker, topic)
    start = {"group": "", "offsets": {topic: {"0": 4}}} if is_of_older_version else write_offsets("", {TopicPartition(topic, 0): 4})
    end = reader.latestOffset(start, ReadMaxRows(100))
    read = read_offsets(end)
    assert read is not None and read.topic_ids == {topic: client.describe_topic(topic).topic_id_text}
    assert records(reader, start, end) == list(range(4, 10))


def test_the_sink_commits_the_new_topic_s_offsets_and_the_proof_is_of_it_alone(client: Client, pipeline: Pipeline) -> None:
    source = TopicPartition(pipeline.source, 0)
    first = client.describe_topic(pipeline.source).topic_id_text

    def commit(batch_id: int, start: dict[TopicPartition, int], end: int, topic_id: str) -> None:
        driver, batch_range = pipeline.driver(), BatchRange(start, {source: end}, {source.topic: topic_id})
        outcome = driver.relay.commit(driver.outputs(batch_id), batch_id=batch_id, query_id="q", batch_range=batch_range)
        assert outcome.is_committed_now
        wait_for_markers(client, f"eos/{pipeline.group}")

    commit(0, {source: 0}, 50, first)
    replace(client, pipeline.source)
    second = client.describe_topic(pipeline.source).topic_id_text
    assert second != first
    found = verify(client, pipeline.group, [pipeline.sink])
    assert [fault.kind for fault in found.faults] == ["beyond"]
    assert found.faults[0].message == f"{source} is of another topic than the one that was read (id {first}, now {second})"
    commit(1, {}, 5, second)
    commit(2, {source: 5}, 20, second)
    assert len(values(client, pipeline.sink)) == 3 * 6
    assert transaction_state(client, f"eos/{pipeline.group}") == "CompleteCommit"
    found = verify(client, pipeline.group, [pipeline.sink])
    assert found.is_proved and [tuple(one) for one in found.source] == [(*source, 0, 20, 2, 20, 0)]
    assert any("was deleted and created again after offset 50" in note for note in found.notes)
