"""The sink without Spark: which rows it accepts, how it encodes a task's rows, and which files are removed when a batch fails."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from ottla.client import AuthorizationError, Client, ErrorCode, TopicPartition, partition_for_key
from ottla.spark import connections, topics
from ottla.spark import sink as sink_module
from ottla.spark.batch_range import leave_range
from ottla.spark.errors import OptionError, OutputError, PipelineError
from ottla.spark.offset_json import write_offsets
from ottla.spark.options import SinkOptions, parse_sink
from ottla.spark.sink import OttlaBatchWriter, OttlaStreamWriter, TaskMessage, encode_task
from ottla.spark.spool import SpoolWriter, TaskOutput, spool_root
from ottla.spark.topics import ask_topic
from ottla.testing.broker import Broker
from ottla.wire.records import iter_records
from tests.spark.pipeline import wait_for_topic

VALUE = StructType([StructField("value", StringType())])


@pytest.fixture
def topic(broker: Broker, client: Client, request: pytest.FixtureRequest) -> str:
    name = broker.create_topic(f"sink-{abs(hash(request.node.name)):x}", partitions=3)
    wait_for_topic(client, name)
    return name


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A task context, and a temporary directory for the test."""
    context = SimpleNamespace(partitionId=lambda: 3, taskAttemptId=lambda: 17, getLocalProperty=lambda _: "query")
    monkeypatch.setattr(sink_module.TaskContext, "get", lambda: context)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(topics, "_known", {})  # like in a process that has run no task yet
    monkeypatch.setattr(topics, "_present", set())


def options_of(broker: Broker, **given: str) -> SinkOptions:
    return parse_sink({"kafka.bootstrap.servers": broker.direct_server, **given})


def encoded(options: SinkOptions, *batches: dict[str, list[Any]]) -> TaskOutput:
    """Returns the output of a task in its message."""
    with SpoolWriter("task", None, options.max_output_bytes) as output:
        encode_task(iter([pa.RecordBatch.from_pydict(batch) for batch in batches]), options, output)
        return output.finish()


def records(output: TaskOutput) -> dict[TopicPartition, list[tuple[bytes | None, bytes | None]]]:
    found: dict[TopicPartition, list[tuple[bytes | None, bytes | None]]] = {}
    for batch in output.batches():
        found.setdefault(batch.partition, []).extend((record.key, record.value) for record in iter_records(batch.data))
    return found


def test_rows_keep_their_order_in_each_partition(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "CHUNK_BYTES", 500)
    numbers = [list(range(first, first + 20)) for first in range(0, 200, 20)]
    rows = [{"key": [str(n % 7) for n in some], "value": [str(n) for n in some]} for some in numbers]
    output = encoded(options_of(broker, topic=topic), *rows)
    assert output.rows == 200
    found = records(output)
    for partition, pairs in found.items():
        assert all(partition_for_key(key or b"", 3) == partition.partition for key, _ in pairs)
        assert [int(value or b"") for _, value in pairs] == sorted(int(value or b"") for _, value in pairs)
    assert sum(len(pairs) for pairs in found.values()) == 200


def test_only_columns_of_the_sink_are_sent(broker: Broker, topic: str) -> None:
    rows = {"value": ["a"], "topic": ["elsewhere"], "timestamp": [5], "offset": [9], "partition": [2]}
    output = encoded(options_of(broker, topic=topic), rows)
    assert records(output) == {TopicPartition(topic, 2): [(None, b"a")]}, "the option topic goes before the column"


def test_a_topic_for_each_row(broker: Broker, client: Client, topic: str) -> None:
    other = broker.create_topic(f"{topic}-other")
    wait_for_topic(client, other)
    output = encoded(options_of(broker), {"value": ["a", "b", "c"], "topic": [topic, other, other]})
    assert sorted(partition.topic for partition in output.partitions) == [topic, other]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"value": ["a"], "topic": [None]}, "column 'topic' must not be null; nulls: 1, rows: 1"),
        ({"value": ["a"], "topic": ["nowhere"]}, "topic: UNKNOWN_TOPIC_OR_PARTITION: topic 'nowhere' not found"),
        ({"value": ["a"], "topic": ["*"], "partition": [3]}, "there is no partition 3 of topic '.*', which has 3"),
        ({"value": ["a"], "topic": ["*"], "partition": [-1]}, "there is no partition -1 of topic '.*', which has 3"),
        ({"value": ["a" * 1_050_000], "topic": ["*"]}, "a record of 10.* bytes is larger than .*raise kafka.max.request.size"),
    ],
)
def test_rows_that_cannot_be_sent(broker: Broker, topic: str, rows: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        encoded(options_of(broker), {**rows, "topic": [topic if name == "*" else name for name in rows["topic"]]})


def test_large_records_are_sent_if_that_is_wanted(broker: Broker, topic: str) -> None:
    options = options_of(broker, topic=topic, **{"kafka.max.request.size": "3000000"})
    assert encoded(options, {"value": ["a" * 1_050_000, "b"]}).rows == 2


def test_output_beyond_its_bound(broker: Broker, topic: str) -> None:
    options = options_of(broker, topic=topic, maxOutputBytes="1000", compression="none")
    with pytest.raises(OutputError, match=r"maxOutputBytes=1000: the output of this batch is larger.*maxOffsetsPerTrigger"):
        encoded(options, {"value": ["a" * 2000]})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (StructType([StructField("v", StringType())]), "column value is missing, the rows have v"),
        (StructType([StructField("value", IntegerType())]), "column value is of type int; cast it to string or binary"),
        (StructType([*VALUE, StructField("key", IntegerType())]), "column key is of type int; cast it to string or binary"),
        (StructType([*VALUE, StructField("partition", StringType())]), "column partition is of type string; cast it to int or bigint"),
        (StructType([*VALUE, StructField("headers", StringType())]), "column headers is of type string; cast it to array<struct"),
        (VALUE, "topic: set the option, or add a column topic"),
    ],
)
def test_columns_that_cannot_be_sent(broker: Broker, schema: Any, message: str) -> None:
    given = {} if schema is VALUE else {"topic": "t"}
    with pytest.raises(OutputError, match=message):
        OttlaBatchWriter(options_of(broker, **given), schema, False)


def test_only_appending_is_possible(broker: Broker) -> None:
    with pytest.raises(OptionError, match=r"mode: a topic cannot be overwritten; write with .mode\('append'\)"):
        OttlaBatchWriter(options_of(broker, topic="t"), VALUE, True)


def test_a_stream_without_a_group_counts_its_batches_in_one_of_its_own(
    broker: Broker, client: Client, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(broker, topic=topic, checkpointLocation=checkpoint_of(tmp_path, "", topic))
    message = pickle.loads(pickle.dumps(OttlaStreamWriter(options, VALUE))).write(rows_of("x", "y"))
    for _ in range(2):
        OttlaStreamWriter(options, VALUE).commit([pickle.loads(pickle.dumps(message)), None], 0)
    assert [record.value for record in broker.records(topic)] == [b"x", b"y"], "the second commit finds the first"
    assert client.committed("ottla-query-the-query")[TopicPartition(topic, 0)].offset == 1
    with pytest.raises(OptionError, match="group: missing, and the id of the query is not known here"):
        OttlaStreamWriter(options_of(broker, topic=topic), VALUE).commit([], 0)


def rows_of(*values: str) -> Iterator[Any]:
    return iter([pa.RecordBatch.from_pydict({"value": list(values)})])


def directories() -> list[Path]:
    return [path for path in spool_root().iterdir() if path.is_dir()]


def test_a_batch_job_writes_what_its_tasks_left(broker: Broker, client: Client, topic: str) -> None:
    writer = OttlaBatchWriter(options_of(broker, topic=topic), VALUE, False)
    assert directories() == [], "only the writer that goes to the tasks has a directory"
    stored = pickle.dumps(writer)
    messages = [pickle.loads(stored).write(rows_of(str(number))) for number in range(3)]
    assert len(directories()) == 1
    assert all(message.output.path is not None for message in messages)
    pickle.loads(stored).commit(messages)
    assert directories() == []
    assert sorted(record.value or b"" for record in broker.records(topic)) == [b"0", b"1", b"2"]


def test_the_driver_asks_for_the_topic_once_and_no_task_does(
    broker: Broker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.alter_topic_configs(topic, {"max.message.bytes": "1000"})
    stored = pickle.dumps(OttlaBatchWriter(options_of(broker, topic=topic, compression="none"), VALUE, False))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a task asks the cluster")

    with monkeypatch.context() as patch:
        patch.setattr(connections, "client_of", refuse)
        messages = [pickle.loads(stored).write(rows_of(*(f"{number:0100}" for number in range(100)))) for _ in range(2)]
    sizes = [len(batch.data) for message in messages for batch in message.output.batches()]
    assert 1000 >= max(sizes) > 500
    pickle.loads(stored).commit(messages)
    assert len(broker.records(topic)) == 200


def test_topics_that_rows_name_are_asked_for_once_in_a_while(
    broker: Broker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics that rows name are not requested by each task, but once in a while by a process, which runs many tasks. New partitions are
    noticed after that time.
    """
    options = options_of(broker)
    monkeypatch.setattr(topics, "REMEMBERED_S", 3600.0)
    rows = {"value": [str(number) for number in range(50)], "topic": [topic] * 50, "partition": [3] * 50}
    asked: list[str] = []

    def count(options: SinkOptions, name: str) -> topics.TopicLimits:
        asked.append(name)
        return ask_topic(options, name)

    monkeypatch.setattr(topics, "ask_topic", count)
    for _ in range(3):
        with pytest.raises(OutputError, match="there is no partition 3"):
            encoded(options, rows)
    client.add_partitions(topic, 4)
    assert asked == [topic]
    monkeypatch.setattr(topics, "REMEMBERED_S", 0.0)
    wait_for_topic(client, topic)
    assert list(records(encoded(options, rows))) == [TopicPartition(topic, 3)]
    assert asked == [topic] * 2
    with pytest.raises(PipelineError, match="nowhere"):
        encoded(options, {"value": ["x"], "topic": ["nowhere"]})


def test_the_driver_s_refusal_is_that_of_the_tasks_that_have_rows(broker: Broker) -> None:
    stored = pickle.dumps(OttlaBatchWriter(options_of(broker, topic="nowhere"), VALUE, False))
    with pytest.raises(PipelineError, match=r"^topic: UNKNOWN_TOPIC_OR_PARTITION: topic 'nowhere' not found"):
        pickle.loads(stored).write(rows_of("x"))
    pickle.loads(stored).commit([pickle.loads(stored).write(iter(()))])
    assert directories() == []


@pytest.mark.parametrize("finished", [0, 1])
def test_a_job_that_fails_leaves_nothing(broker: Broker, topic: str, finished: int) -> None:
    stored = pickle.dumps(OttlaBatchWriter(options_of(broker, topic=topic), VALUE, False))
    done = [pickle.loads(stored).write(rows_of("x")) for _ in range(finished)]
    pickle.loads(stored).abort([*done, None])
    assert directories() == []
    assert broker.records(topic) == []


def checkpoint_of(directory: Path, group: str, topic: str) -> str:
    """Makes a query's checkpoint in which batch 0 ends at offset 5."""
    checkpoint = directory / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"the-query"}')
    offsets = json.dumps(write_offsets(group, {TopicPartition(topic, 0): 5}))
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{offsets}")
    return str(checkpoint)


def test_a_stream_commits_by_a_writer_of_its_own(broker: Broker, client: Client, topic: str, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, f"{topic}-g", topic)
    options = options_of(broker, topic=topic, group=f"{topic}-g", checkpointLocation=checkpoint)
    message = pickle.loads(pickle.dumps(OttlaStreamWriter(options, VALUE))).write(rows_of("x", "y"))
    assert message.query_id == "query"
    for _ in range(2):
        OttlaStreamWriter(options, VALUE).commit([pickle.loads(pickle.dumps(message)), None], 0)
    assert [record.value for record in broker.records(topic)] == [b"x", b"y"], "the second commit finds the first"
    found = client.committed(f"{topic}-g")[TopicPartition(topic, 0)]
    assert found.offset == 5 and '"the-query"' in (found.metadata or "")
    assert directories() == []


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("MESSAGE_TOO_LARGE", "make values smaller, or raise the topic's max.message.bytes"),
        ("TOPIC_AUTHORIZATION_FAILED", "the principal needs an ACL for WRITE on the topic"),
    ],
)
def test_refusals_of_the_broker_come_with_a_hint(broker: Broker, topic: str, code: str, hint: str) -> None:
    options = parse_sink({"kafka.bootstrap.servers": broker.bootstrap_server, "topic": topic})
    stored = pickle.dumps(OttlaBatchWriter(options, VALUE, False))
    message = pickle.loads(stored).write(rows_of("x"))
    broker.fail_next("Produce", code)
    with pytest.raises(OutputError, match=f"{code}.*; {hint}"):
        pickle.loads(stored).commit([message])
    pickle.loads(stored).abort([message])
    assert broker.records(topic) == []


@pytest.mark.parametrize(
    ("api", "code", "hint"),
    [
        ("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "ACLs for DESCRIBE and WRITE on the transactional id"),
        ("InitProducerId", "INVALID_TRANSACTION_TIMEOUT", "lower kafka.transaction.timeout.ms, or raise the broker's"),
        ("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", "the principal needs an ACL for READ on the group"),
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", "the principal needs an ACL for WRITE on the topic"),
        ("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", "the principal needs an ACL for READ on the group"),
    ],
)
def test_a_stream_without_a_right_stops_and_goes_on_when_it_has_it(
    broker: Broker, client: Client, topic: str, tmp_path: Path, api: str, code: str, hint: str
) -> None:
    group = f"{topic}-g"
    given = {"kafka.bootstrap.servers": broker.bootstrap_server, "checkpointLocation": checkpoint_of(tmp_path, group, topic)}
    options = parse_sink({**given, "topic": topic, "group": group})
    message = pickle.loads(pickle.dumps(OttlaStreamWriter(options, VALUE))).write(rows_of("x"))
    broker.fail_next(api, code)
    with pytest.raises(OutputError, match=f"batch 0 of group '{group}' was not committed: {code}.*{hint}") as caught:
        OttlaStreamWriter(options, VALUE).commit([message], 0)
    assert "\n" not in str(caught.value)
    assert broker.records(topic) == [] and client.committed(group, [TopicPartition(topic, 0)], require_stable=False) == {}
    OttlaStreamWriter(options, VALUE).commit([message], 0)
    assert [record.value for record in broker.records(topic)] == [b"x"]
    assert client.committed(group)[TopicPartition(topic, 0)].offset == 5


def test_a_source_of_another_cluster_stops_at_its_first_batch(
    broker: Broker, client: Client, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source on another cluster is refused at its first batch. Without this check the commit would be retried until its timeout, because
    the coordinator treats the topic as not yet known.
    """
    monkeypatch.setattr(topics, "ABSENT_PAUSE_S", 0.01)
    group = f"{topic}-g"
    options = options_of(broker, topic=topic, group=group, checkpointLocation=checkpoint_of(tmp_path, group, f"{topic}-elsewhere"))
    message = pickle.loads(pickle.dumps(OttlaStreamWriter(options, VALUE))).write(rows_of("x"))
    wanted = rf"has no topic '{topic}-elsewhere', .*; the topics of source and sink have to exist, all of them on one cluster$"
    with pytest.raises(OutputError, match=wanted):
        OttlaStreamWriter(options, VALUE).commit([message], 0)
    assert broker.records(topic) == []
    client.create_topic(f"{topic}-elsewhere")
    OttlaStreamWriter(options, VALUE).commit([message], 0)
    assert [record.value for record in broker.records(topic)] == [b"x"]


def test_a_source_of_another_cluster_with_a_topic_of_that_name_stops_too(
    broker: Broker, client: Client, topic: str, tmp_path: Path
) -> None:
    group = f"{topic}-g"
    options = options_of(broker, topic=topic, group=group, checkpointLocation=checkpoint_of(tmp_path, group, topic))
    message = pickle.loads(pickle.dumps(OttlaStreamWriter(options, VALUE))).write(rows_of("x"))
    leave_range(group, {}, {}, cluster="elsewhere")
    with pytest.raises(OutputError, match=f"the sink is on cluster '{client.cluster_id}', the source on cluster 'elsewhere'"):
        OttlaStreamWriter(options, VALUE).commit([message], 0)
    assert broker.records(topic) == []
    leave_range(group, {}, {}, cluster=client.cluster_id or "")
    OttlaStreamWriter(options, VALUE).commit([message], 0)
    assert [record.value for record in broker.records(topic)] == [b"x"]


def test_a_value_over_the_topic_s_limit(broker: Broker, client: Client, topic: str) -> None:
    client.alter_topic_configs(topic, {"max.message.bytes": "1000"})
    options = options_of(broker, topic=topic, compression="none")
    stored = pickle.dumps(OttlaBatchWriter(options, VALUE, False))
    messages = [pickle.loads(stored).write(rows_of("x" * 2000)), pickle.loads(stored).write(rows_of("y"))]
    wanted = r"MESSAGE_TOO_LARGE.*; make values smaller, or raise the topic's max.message.bytes"
    with pytest.raises(OutputError, match=wanted):
        pickle.loads(stored).commit(messages)
    pickle.loads(stored).abort(messages)
    assert broker.records(topic) == [], "neither of the two tasks' rows"


def test_batches_are_no_larger_than_the_topic_takes(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are not larger than their topic allows. Each row has its own topic with its own limit. Without permission to read the limit,
    kafka.batch.size is used.
    """
    small = broker.create_topic(f"{topic}-small", max_message_bytes="1000")
    rows = {"topic": [topic, small] * 50, "value": [f"{number:0100}" for number in range(100)]}
    sizes: dict[str, list[int]] = {topic: [], small: []}
    for batch in encoded(options_of(broker, compression="none"), rows).batches():
        sizes[batch.partition.topic].append(len(batch.data))
    assert max(sizes[topic]) > 1000 >= max(sizes[small]) > 500

    def refuse(*_: object) -> None:
        raise AuthorizationError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, small)

    monkeypatch.setattr(Client, "topic_configs", refuse)
    topics._known.clear()
    output = encoded(options_of(broker, topic=small, compression="none"), {"value": rows["value"]})
    assert max(len(batch.data) for batch in output.batches()) > 1000


def test_messages_that_are_too_large_for_spark_are_explained(broker: Broker) -> None:
    """If messages are too large, Spark itself stops the job and calls `abort` with the messages that it has. The error then names the
    option to change.
    """
    writer = OttlaStreamWriter(options_of(broker, topic="t", group="g", maxOutputBytes="100"), VALUE)
    outputs = [TaskOutput(f"{number}", (), b"", 1, 60, None, ()) for number in range(2)]
    with pytest.raises(OutputError, match="maxOutputBytes=100: the output of this batch is larger, 120 bytes or more"):
        writer.abort([TaskMessage(output, None) for output in outputs], 4)
    writer.abort([TaskMessage(outputs[0], None), None], 4)
