"""Retention by time and size, DeleteRecords and rolling in a broker process with short settings; checkpoints and flushes by age."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition as Key
from ottla.replication.partition import Partition
from ottla.storage.offset_checkpoints import TOPIC_IDS_FILE
from ottla.storage.small_files import CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, read_offsets
from ottla.wire.records import Record, encode_batch
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.left_open import leaves_nothing_open
from tests.server.conftest import MakeServer
from tests.server.threads import run_until

__all__ = ["leaves_nothing_open"]

SETTINGS = (
    "log.retention.check.interval.ms=100",
    "log.segment.delete.delay.ms=100",
    "log.flush.offset.checkpoint.interval.ms=100",
    "ottla.log.format=text",
)
QUIET = {"log_level": 0, "reconnect.backoff.ms": 20}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("retention"), SETTINGS).start()
    yield process
    process.stop()


def create(broker: BrokerProcess, topic: str, **configs: str) -> str:
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    with AdminClient({"bootstrap.servers": broker.address, **QUIET}) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, config=wanted)])[topic].result(60)
    return topic


def produce(broker: BrokerProcess, topic: str, count: int, *, size: int = 1000, timestamp: int | None = None) -> None:
    client = Producer({"bootstrap.servers": broker.address, "batch.num.messages": 1, "linger.ms": 0, **QUIET})
    for _ in range(count):
        client.produce(topic, b"v" * size, timestamp=timestamp or int(time.time() * 1000))
        client.poll(0)
    assert client.flush(20) == 0


def bounds(broker: BrokerProcess, topic: str) -> tuple[int, int]:
    """(first offset, end) by ListOffsets."""
    with closing(Consumer({"bootstrap.servers": broker.address, "group.id": "g", **QUIET})) as client:
        low, high = client.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    return low, high


def segments(broker: BrokerProcess, topic: str) -> list[int]:
    return sorted(int(path.stem) for path in (broker.data / f"{topic}-0").glob("*.log"))


def leftovers(broker: BrokerProcess, topic: str) -> list[str]:
    return [path.name for path in (broker.data / f"{topic}-0").glob("*.deleted")]


def test_retention_by_size(broker: BrokerProcess) -> None:
    topic = create(broker, "by-size", retention_bytes="30000", internal_segment_bytes="10000")
    produce(broker, topic, 100)
    eventually(lambda: len(segments(broker, topic)) <= 5)
    low, high = bounds(broker, topic)
    assert high == 100 and 50 <= low <= 75, "about thirty of a hundred kilobytes stay, in whole segments"
    assert segments(broker, topic)[0] == low
    eventually(lambda: not leftovers(broker, topic))


def test_retention_by_time(broker: BrokerProcess) -> None:
    topic = create(broker, "by-time", retention_ms="3600000", internal_segment_bytes="10000")
    now_ms = int(time.time() * 1000)
    produce(broker, topic, 40, timestamp=now_ms - 7_200_000)
    produce(broker, topic, 20)
    eventually(lambda: bounds(broker, topic)[0] >= 30)
    low, high = bounds(broker, topic)
    assert 30 <= low <= 40 and high == 60, "what is young stays, and what shares a segment with it"


def test_a_segment_that_a_timestamp_in_the_future_keeps_is_named_once(broker: BrokerProcess) -> None:
    """KAFKA-18929: later segments are kept too, and only this log line gives the reason."""
    topic = create(broker, "of-the-future", retention_ms="500")
    future_ms = int(time.time() * 1000) + 1_800_000
    produce(broker, topic, 1, timestamp=future_ms)
    line = f"{topic}-0: the segment at offset 0 has a record with timestamp {future_ms}, "
    eventually(lambda: line in broker.log_text())
    old = create(broker, "beside-the-future", retention_ms="500")
    produce(broker, old, 5, timestamp=int(time.time() * 1000) - 10_000)
    eventually(lambda: bounds(broker, old) == (5, 5))  # a later look at all logs
    assert bounds(broker, topic) == (0, 1) and broker.log_text().count(line) == 1


def test_all_that_is_old_goes_and_offsets_go_on(broker: BrokerProcess) -> None:
    topic = create(broker, "all-old", retention_ms="500")
    produce(broker, topic, 5, timestamp=int(time.time() * 1000) - 10_000)
    eventually(lambda: bounds(broker, topic) == (5, 5))
    produce(broker, topic, 1)
    assert bounds(broker, topic)[1] == 6


def test_segments_roll_by_age_and_by_size(broker: BrokerProcess) -> None:
    topic = create(broker, "rolling", segment_ms="1000", internal_segment_bytes="10000")
    now_ms = int(time.time() * 1000)
    produce(broker, topic, 2, size=10, timestamp=now_ms - 5_000)
    produce(broker, topic, 1, size=10, timestamp=now_ms)
    assert segments(broker, topic) == [0, 2], "a record a second younger than the segment's first begins another"
    produce(broker, topic, 12, timestamp=now_ms)
    assert len(segments(broker, topic)) == 3


def test_i7_delete_records(broker: BrokerProcess) -> None:
    topic = create(broker, "cut", internal_segment_bytes="10000")
    produce(broker, topic, 60)
    with AdminClient({"bootstrap.servers": broker.address, **QUIET}) as admin:
        deleted = admin.delete_records([TopicPartition(topic, 0, 45)])
        assert next(iter(deleted.values())).result(60).low_watermark == 45
    assert bounds(broker, topic) == (45, 60)
    eventually(lambda: segments(broker, topic)[0] > 20 and not leftovers(broker, topic))
    assert segments(broker, topic)[0] <= 45
    checkpoint = broker.data / "log-start-offset-checkpoint"
    eventually(lambda: checkpoint.exists() and "cut 0 45" in checkpoint.read_text())
    broker.crash()
    assert bounds(broker, topic) == (45, 60), "a cut in the middle of a segment is known after a kill"


# A broker in this process


def append(server: object, topic: str, count: int) -> None:
    partition = server.node.partitions.get(topic, 0)  # type: ignore[attr-defined]
    for _ in range(count):
        partition.require_leading().append(encode_batch([Record(0, 1, None, b"v" * 20)]), acks=1, now_ms=1)


def test_checkpoints_say_what_is_so(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("log.flush.offset.checkpoint.interval.ms=3600000", "log.flush.interval.messages=3")
    server.node.create_topics([("t", 1)])
    append(server, "t", 3)
    partition = server.node.partitions.get("t", 0)
    assert partition is not None
    run_until(loop, lambda: partition.log.recovery_point == 3)
    append(server, "t", 2)
    server.node.housekeeping.write_checkpoints()
    server.node.housekeeping.write_checkpoints()
    path = Path(server.directories[0].path)
    run_until(loop, (path / HIGH_WATERMARK_FILE).exists)
    assert read_offsets(server.disk, str(path / RECOVERY_POINT_FILE)) == {Key("t", 0): 3}
    assert read_offsets(server.disk, str(path / HIGH_WATERMARK_FILE)) == {Key("t", 0): 5}


def test_i17_high_watermarks_are_noted_more_often_than_the_rest(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("log.flush.offset.checkpoint.interval.ms=3600000", "replica.high.watermark.checkpoint.interval.ms=20")
    server.node.create_topics([("t", 1)])
    server.begin_turns()
    path = Path(server.directories[0].path)
    for count in (3, 2):
        append(server, "t", count)
        end = server.node.partitions.get("t", 0).log.log_end_offset
        run_until(loop, lambda end=end: read_offsets(server.disk, str(path / HIGH_WATERMARK_FILE)) == {Key("t", 0): end})  # type: ignore[misc]
    assert not (path / RECOVERY_POINT_FILE).exists()


def test_i17_high_watermarks_that_could_not_be_noted_are_noted_by_the_next_round(
    make_server: MakeServer, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Formerly they were treated as written, so no round wrote them before another record was appended."""
    server = make_server("log.flush.offset.checkpoint.interval.ms=3600000", "replica.high.watermark.checkpoint.interval.ms=20")
    server.node.create_topics([("t", 1)])
    append(server, "t", 3)
    failures: list[StorageError] = []

    def fail(*_: object) -> None:
        failures.append(StorageError("planned"))
        raise failures[-1]

    with monkeypatch.context() as patch:
        patch.setattr("ottla.server.directories.log_directories.write_watermarks", fail)
        server.begin_turns()
        run_until(loop, lambda: bool(failures) and not server.node.housekeeping._is_writing_checkpoints)
    path = Path(server.directories[0].path) / HIGH_WATERMARK_FILE
    run_until(loop, lambda: path.exists() and read_offsets(server.disk, str(path)) == {Key("t", 0): 3})


def test_i7_a_deletion_counts_when_it_outlasts_a_restart(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("log.flush.offset.checkpoint.interval.ms=3600000")
    server.node.create_topics([("t", 2)])
    append(server, "t", 5)
    server.begin_turns()
    leader = server.node.partitions.get("t", 0).require_leading()
    for offset in (2, 3):
        leader.delete_records(offset)
        assert leader.log.log_start_offset == offset > leader.low_watermark()
        run_until(loop, lambda offset=offset: leader.low_watermark() == offset)  # type: ignore[misc]
        path = Path(server.directories[0].path) / LOG_START_FILE
        assert read_offsets(server.disk, str(path)) == {Key("t", 0): offset}


def test_i7_a_deletion_that_cannot_be_noted_is_not_said_to_be_done(
    make_server: MakeServer, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server("log.flush.offset.checkpoint.interval.ms=3600000")
    server.node.create_topics([("t", 1)])
    append(server, "t", 5)
    server.begin_turns()
    leader = server.node.partitions.get("t", 0).require_leading()
    failures: list[StorageError] = []

    def fail(*_: object) -> None:
        failures.append(StorageError("planned"))
        raise failures[-1]

    with monkeypatch.context() as patch:
        patch.setattr("ottla.server.directories.log_directories.write_entries", fail)
        leader.delete_records(2)
        run_until(loop, lambda: bool(failures) and not server.node.housekeeping._is_writing_checkpoints)
    assert leader.low_watermark() == 0
    server.node.housekeeping.write_checkpoints()
    run_until(loop, lambda: leader.low_watermark() == 2)


def test_a_round_that_is_under_way_is_not_joined_by_another(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    """If the interval is shorter than a round, the number of running rounds would grow without limit."""
    server = make_server()
    server.node.create_topics([("t", 1)])
    append(server, "t", 3)
    server.begin_turns()
    housekeeping = server.node.housekeeping
    housekeeping.turns.piece_ms = 0
    tasks = [housekeeping.apply_retention, housekeeping.flush_due, housekeeping.expire_producers, housekeeping.shrink_isrs]
    for task in tasks * 3:
        task()
    assert len(housekeeping.turns.unfinished) == len(tasks)
    run_until(loop, lambda: housekeeping.turns.is_idle)
    housekeeping.apply_retention()
    assert len(housekeeping.turns.unfinished) == 1


def test_a_round_of_checkpoints_that_fails_is_not_the_last(
    make_server: MakeServer, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server("log.flush.offset.checkpoint.interval.ms=3600000")
    server.node.create_topics([("t", 1)])
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(type(server.directories[0]), "_offsets_of", lambda *_: (_ for _ in ()).throw(RuntimeError("planned")))
        server.node.housekeeping.write_checkpoints()
    server.node.housekeeping.write_checkpoints()
    run_until(loop, (Path(server.directories[0].path) / HIGH_WATERMARK_FILE).exists)


def test_logs_are_flushed_by_age_and_sealed_segments_at_once(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("log.flush.interval.ms=50", "ottla.tick.interval.ms=10")
    server.node.create_topics([("t", 1)])
    append(server, "t", 3)
    partition = server.node.partitions.get("t", 0)
    assert partition is not None
    run_until(loop, lambda: partition.log.recovery_point == 3)
    still = make_server("ottla.tick.interval.ms=10")
    still.node.create_topics([("t", 1)])
    append(still, "t", 3)
    other = still.node.partitions.get("t", 0)
    assert other is not None
    other.log.roll()
    run_until(loop, lambda: other.log.recovery_point == 3)


def test_i41_a_deletion_leaves_no_entry_in_any_checkpoint(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("log.flush.offset.checkpoint.interval.ms=3600000")
    server.node.create_topics([("gone", 1), ("kept", 1)])
    append(server, "gone", 3)
    append(server, "kept", 3)
    path = Path(server.directories[0].path)
    server.directories[0].clean_offsets[Key("gone", 0)] = 1
    server.node.housekeeping.write_checkpoints()
    files = [path / name for name in (HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE, CLEANER_OFFSET_FILE, TOPIC_IDS_FILE)]
    run_until(loop, lambda: all(file.exists() and "gone" in file.read_text() for file in files))
    server.node.controller.delete_topics(["gone"], lambda _: None)
    run_until(loop, lambda: not any("gone" in file.read_text() for file in files))
    assert "kept" in (path / HIGH_WATERMARK_FILE).read_text()


def test_nothing_of_a_deleted_partition_is_kept(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("ottla.tick.interval.ms=10")
    server.node.create_topics([("t", 1)])
    append(server, "t", 1)
    server.node.housekeeping.flush_due()
    server.node.controller.delete_topics(["t"], lambda _: None)
    run_until(loop, lambda: server.node.partitions.get("t", 0) is None)

    def is_known() -> bool:
        gc.collect()
        return any(type(found) is Partition and found.topic_partition == Key("t", 0) for found in gc.get_objects())

    run_until(loop, lambda: not is_known())
