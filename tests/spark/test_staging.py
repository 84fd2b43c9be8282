"""Tasks stage their output on the brokers, and send the rest in their messages; the driver combines both in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.client import ConnectError, ErrorCode, KafkaError, Staged, StagedChunk, TopicPartition
from ottla.spark import connections, sending, staging
from ottla.spark.errors import BrokerError, OptionError, OutputError, PipelineError
from ottla.spark.options import ClusterConnection
from ottla.spark.output_digest import OutputDigest
from ottla.spark.spool import Spool, SpoolWriter, TaskOutput
from ottla.spark.staging import Attachment, StagedWriter, TaskAttempt, open_output, steps
from ottla.wire.batch_header import iter_batches
from tests.spark.encoded import encode

A, B = TopicPartition("out", 0), TopicPartition("out", 1)
CONNECTION = ClusterConnection(bootstrap="b:9092")
TOKEN = bytes(range(16))


class StagingClient:
    """A fake client that keeps staged chunks; partitions in `refusing` accept only the given number of chunks."""

    def __init__(self, *, is_offered: bool = True, room: Mapping[TopicPartition, int] | None = None) -> None:
        self.is_offered = is_offered
        self.room = dict(room or {})
        self.kept: dict[tuple[TopicPartition, int, int], bytes] = {}
        self.calls: list[dict[TopicPartition, list[int]]] = []
        self.failure: Exception | None = None
        self.cuts = 0

    def offers_staging(self) -> bool:
        if self.cuts:
            self.cuts -= 1
            raise ConnectError("the connection broke")
        return self.is_offered

    def stage(self, token: bytes, attempt_id: int, chunks: Mapping[TopicPartition, Mapping[int, bytes]]) -> Staged:
        assert token == TOKEN
        if self.failure is not None:
            raise self.failure
        self.calls.append({partition: list(some) for partition, some in chunks.items()})
        found = Staged({partition: [] for partition in chunks}, {})
        for partition, some in chunks.items():
            for number, data in some.items():
                if self.room.get(partition, 1_000) <= number:
                    found.refused[partition] = KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "no room")
                    break
                self.kept[partition, attempt_id, number] = data
                found.chunks[partition].append(StagedChunk(attempt_id, number, len(list(iter_batches(data))), len(data), 0))
        return found


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[StagingClient]:
    """The client that the writers of a test get, with small limits for chunks and rounds."""
    made = StagingClient()
    monkeypatch.setattr(connections, "client_of", lambda *_, **__: made)
    monkeypatch.setattr(staging, "CHUNK_BYTES_MAX", 250)
    monkeypatch.setattr(staging, "ROUND_BYTES", 800)
    monkeypatch.setattr(staging, "STAGED_BYTES_MIN", 800)
    yield made


def output_of(rows: list[tuple[TopicPartition, bytes]], *, attempt_id: int = 7, is_required: bool = False) -> TaskOutput:
    with StagedWriter(TaskAttempt(3, attempt_id), TOKEN, CONNECTION, is_required=is_required) as writer:
        for partition, value in rows:
            writer.append(partition, encode(value), 1)
        return writer.finish()


def many(partition: TopicPartition, count: int, start: int = 0) -> list[tuple[TopicPartition, bytes]]:
    return [(partition, b"%d-%05d" % (partition.partition, number)) for number in range(start, start + count)]


def digest_of(rows: list[tuple[TopicPartition, bytes]]) -> str:
    digest = OutputDigest()
    for partition, value in rows:
        digest.add(partition, encode(value))
    return digest.text()


def carried_out(outputs: list[TaskOutput], client: StagingClient) -> tuple[dict[TopicPartition, bytes], str]:
    """Returns the bytes that each partition gets when the driver executes all steps, and their digest."""
    logs: dict[TopicPartition, bytes] = {}
    digest = OutputDigest()
    for step in steps(outputs):
        if isinstance(step, Attachment):
            assert step.token == TOKEN
            step.add_to(digest)
            for partition, chunks in step.manifest().items():
                staged = (client.kept[partition, chunk.attempt_id, chunk.chunk] for chunk in chunks)
                logs[partition] = logs.get(partition, b"") + b"".join(staged)
            continue
        for partition, batches in step.items():
            for batch in batches:
                digest.add(partition, batch)
                logs[partition] = logs.get(partition, b"") + bytes(batch)
    return logs, digest.text()


def logs_of(rows: list[tuple[TopicPartition, bytes]]) -> dict[TopicPartition, bytes]:
    found: dict[TopicPartition, bytes] = {}
    for partition, value in rows:
        found[partition] = found.get(partition, b"") + bytes(encode(value))
    return found


def test_the_message_has_the_manifest_alone_and_the_same_digest_as_the_bytes(client: StagingClient) -> None:
    rows = [row for pair in zip(many(A, 30), many(B, 30), strict=True) for row in pair]
    output = output_of(rows)
    assert (output.rows, output.message_bytes, output.data, output.index) == (60, 0, (), b"")
    assert output.size_bytes == sum(len(encode(value)) for _, value in rows)
    assert output.targets == {A, B}
    assert len(client.calls) > 2, "several rounds"
    assert carried_out([output], client) == (logs_of(rows), digest_of(rows))


def test_chunks_are_numbered_and_bounded(client: StagingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    output_of(many(A, 40))
    assert [number for _, _, number in client.kept] == list(range(len(client.kept)))
    assert all(len(data) <= 250 for data in client.kept.values())
    client.kept.clear()
    monkeypatch.setattr(staging, "CHUNK_BATCHES_MAX", 2)
    output_of(many(A, 40))
    assert max(len(list(iter_batches(data))) for data in client.kept.values()) == 2


def test_little_output_travels_in_the_message_unless_it_has_to_be_staged(client: StagingClient) -> None:
    little = output_of(many(A, 3))
    assert little.staged is None and little.message_bytes == little.size_bytes
    assert client.calls == []
    assert output_of(many(A, 3), is_required=True).message_bytes == 0
    assert output_of([]).rows == 0


@pytest.mark.parametrize("room", [0, 1, 5])
def test_a_partition_without_room_goes_on_in_the_message_in_order(client: StagingClient, room: int) -> None:
    client.room[A] = room
    rows = [row for pair in zip(many(A, 40), many(B, 40), strict=True) for row in pair]
    output = output_of(rows)
    assert output.staged is not None and output.message_bytes > 0
    assert {part.partition: len(part.chunks) for part in output.staged.parts}.get(A, 0) == room
    assert output.partitions == (A,), "the other partition is staged to its end"
    assert carried_out([output], client) == (logs_of(rows), digest_of(rows))


def test_without_the_extension_everything_is_relayed(client: StagingClient) -> None:
    client.is_offered = False
    rows = [*many(A, 20), *many(B, 20), *many(A, 20, start=20)]
    output = output_of(rows)
    assert output.staged is None and client.calls == []
    assert carried_out([output], client) == (logs_of(rows), digest_of(rows))
    with pytest.raises(OptionError, match="taskOutput=staged"):
        output_of(rows, is_required=True)


@pytest.mark.parametrize("failure", [ConnectError("lost"), KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "out-0")])
def test_a_task_whose_upload_fails_fails(client: StagingClient, failure: Exception) -> None:
    client.failure = failure
    with pytest.raises(BrokerError, match="the output of task 3-7 was not staged: ") as caught:
        output_of(many(A, 100))
    assert caught.value.__cause__ is failure, "so that a hint can be given"


def test_whether_staging_is_offered_is_asked_again_when_the_connection_breaks(client: StagingClient) -> None:
    client.cuts = 2
    rows = many(A, 100)
    output = output_of(rows)
    assert client.cuts == 0 and output.staged is not None
    assert carried_out([output], client) == (logs_of(rows), digest_of(rows))


def test_brokers_that_stay_away_are_one_line_that_names_their_option(client: StagingClient) -> None:
    client.cuts = 1_000
    with (
        pytest.raises(PipelineError, match=r"kafka\.bootstrap\.servers=b:9092: the connection broke"),
        StagedWriter(TaskAttempt(3, 7), TOKEN, ClusterConnection(bootstrap="b:9092", timeout_s=0.1)) as writer,
    ):
        for partition, value in many(A, 100):
            writer.append(partition, encode(value), 1)


def test_an_output_beyond_its_bound_is_refused(client: StagingClient) -> None:
    with (
        pytest.raises(OutputError, match="maxOutputBytes=1000"),
        StagedWriter(TaskAttempt(3, 7), TOKEN, CONNECTION, bytes_max=1000) as writer,
    ):
        for partition, value in many(A, 100):
            writer.append(partition, encode(value), 1)


def test_the_steps_follow_the_order_of_the_tasks(client: StagingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SLICE_BYTES_MAX", sum(len(encode(value)) for _, value in many(A, 5)))
    def relayed(rows: list[tuple[TopicPartition, bytes]]) -> TaskOutput:
        writer = SpoolWriter("x", None)
        for partition, value in rows:
            writer.append(partition, encode(value), 1)
        return writer.finish()

    def staged(rows: list[tuple[TopicPartition, bytes]]) -> TaskOutput:
        return output_of(rows, attempt_id=len(tasks), is_required=True)

    tasks: list[TaskOutput] = [output_of([])]
    rows: list[tuple[TopicPartition, bytes]] = []
    for make in (staged, staged, relayed, relayed, staged):
        some = many(A, 10, start=len(rows))
        tasks.append(make(some))
        rows += some
    kinds = [type(step) for step in steps(tasks)]
    assert kinds == [Attachment, dict, dict, dict, dict, Attachment], "what follows one another is attached at once, or sent in slices"
    assert carried_out(tasks, client) == (logs_of(rows), digest_of(rows))


@pytest.mark.usefixtures("own_temporary_directory")
def test_where_a_task_writes(tmp_path: Path, client: StagingClient) -> None:
    here = Spool.create(None)
    away = here._replace(token="00" * 16)

    def kind(way: str, spool: Spool) -> str:
        with open_output(way, spool, TaskAttempt(3, 7), CONNECTION, None) as writer:
            if isinstance(writer, StagedWriter):
                return "staged"
            return "message" if writer.finish().path is None else "file"

    assert [kind(way, here) for way in ("auto", "files", "messages", "staged")] == ["file", "file", "message", "staged"]
    assert [kind(way, away) for way in ("auto", "messages", "staged")] == ["staged", "message", "staged"]
    with pytest.raises(OptionError, match="taskOutput=files: an executor does not see the driver's directory"):
        kind("files", away)
