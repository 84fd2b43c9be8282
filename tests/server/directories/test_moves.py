"""Replicas move between the log directories of a serving broker: no record is lost, a restarted broker continues the move, and after a
failure one intact log remains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.server import app
from ottla.server.app import BrokerServer, close_loop
from ottla.server.directories import moves
from ottla.storage.future_log import FutureLog
from ottla.wire.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.records import Record, encode_batch
from tests.server.conftest import config_for
from tests.server.directories.test_log_directories import FailingDisk
from tests.server.threads import run_until, with_client
from tests.storage.log_builder import read_all

Start = Callable[..., BrokerServer]
KEY = TopicPartition("t", 0)
SLOW = "replica.alter.log.dirs.io.max.bytes.per.second=1"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """`start("a.setting=value")` starts a broker with the directories a and b, and stops the previous broker."""
    monkeypatch.setattr(app, "OsDisk", FailingDisk)
    monkeypatch.setattr(FailingDisk, "broken", "")
    monkeypatch.setattr(FailingDisk, "unreadable", "")
    monkeypatch.setattr(moves, "PIECE_BYTES", 4_000)
    monkeypatch.setattr(moves, "LAST_BYTES", 1_000)
    running: list[BrokerServer] = []

    def stop_all() -> None:
        FailingDisk.broken = ""
        for server in running:
            if not server.loop.is_closed():
                stop(server)
        running.clear()

    def begin(*assignments: str) -> BrokerServer:
        stop_all()
        loop = asyncio.SelectorEventLoop()
        server = BrokerServer(loop, config_for(tmp_path, f"log.dirs={tmp_path}/a,{tmp_path}/b", *assignments))
        server.start()
        server.node.create_topics([("t", 1)])
        running.append(server)
        return server

    yield begin
    stop_all()


def stop(server: BrokerServer) -> None:
    server.loop.run_until_complete(server.stop())
    close_loop(server.loop)


def partition_of(server: BrokerServer) -> Partition:
    found = server.node.partitions.get(*KEY)
    assert found is not None
    return found


def fill(server: BrokerServer, count: int = 200, size: int = 100) -> None:
    for _ in range(count):
        partition_of(server).require_leading().append(encode_batch([Record(0, 1, None, b"v" * size)]), acks=1, now_ms=1)


def values(server: BrokerServer) -> list[tuple[int, bytes]]:
    return [(header.base_offset, data) for header, data in read_all(partition_of(server).log)]


def place(server: BrokerServer) -> str:
    return Path(partition_of(server).log.directory).parent.name


def other_of(server: BrokerServer) -> str:
    return "b" if place(server) == "a" else "a"


def move(server: BrokerServer, tmp_path: Path, name: str) -> ErrorCode:
    return server.node.moves.move(partition_of(server), f"{tmp_path}/{name}")


def begin_move(server: BrokerServer, tmp_path: Path, target: str) -> FutureLog:
    """Begins to move the replica. Returns when a part of it is copied."""
    move(server, tmp_path, target)
    future = next(server.node.moves.under_way())
    until(server, lambda: future.copy.log_end_offset > 0)
    return future


def copies(tmp_path: Path) -> list[str]:
    return [path.parent.name for path in tmp_path.glob("*/t-0.*-future")]


def until(server: BrokerServer, is_true: Callable[[], object]) -> None:
    run_until(server.loop, is_true, seconds=60)


def test_a_replica_moves_while_it_serves(start: Start, tmp_path: Path) -> None:
    server = start("log.segment.bytes=1048576")
    fill(server)
    target, origin = other_of(server), place(server)
    partition, before = partition_of(server), values(server)
    assert move(server, tmp_path, target) is ErrorCode.NONE and place(server) == origin
    run_until(server.loop, lambda: fill(server, 1) or place(server) == target, seconds=60)
    assert partition_of(server) is partition and values(server)[: len(before)] == before
    fill(server, 3)
    assert copies(tmp_path) == [] and not list(tmp_path.glob(f"{origin}/t-0"))
    whole = values(server)
    assert [offset for offset, _ in whole] == list(range(len(whole)))
    again = start()
    assert place(again) == target and values(again) == whole and partition_of(again).high_watermark == len(whole)


def test_by_requests_of_a_client(start: Start, tmp_path: Path) -> None:
    server = start(SLOW)
    fill(server)
    target = other_of(server)

    def alter(name: str, topic: str = "t") -> int:
        wanted = AlterReplicaLogDir(path=f"{tmp_path}/{name}", topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])
        answer = with_client(server.loop, server, lambda client: client.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), 2))
        return int(answer.results[0].partitions[0].error_code)

    def described() -> dict[str, list[tuple[bool, bool]]]:
        """Returns for each directory with the replica: whether it has the copy (`is_future_key`), and whether offsets are missing."""
        answer = with_client(server.loop, server, lambda client: client.ask(DescribeLogDirsRequest(topics=None), 4))
        return {
            Path(found.log_dir).name: [(part.is_future_key, part.offset_lag > 0) for topic in found.topics for part in topic.partitions]
            for found in answer.results
        }

    origin = place(server)
    assert alter(origin) == 0 and copies(tmp_path) == [], "it is there already"
    assert alter(target) == 0 and copies(tmp_path) == [target]
    assert described() == {origin: [(False, False)], target: [(True, True)]}
    assert alter(target) == 0 and copies(tmp_path) == [target], "the same again changes nothing"
    assert alter("elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(target, "u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(origin) == 0 and copies(tmp_path) == [], "naming its own directory ends the move"
    assert described() == {origin: [(False, False)], target: []}
    assert values(server)[-1][0] == 199


def test_a_restart_in_the_middle_goes_on(start: Start, tmp_path: Path) -> None:
    server = start(SLOW)
    fill(server)
    target, before = other_of(server), values(server)
    future = begin_move(server, tmp_path, target)
    server = start(SLOW)
    (future,) = server.node.moves.under_way()
    assert 0 < future.copy.log_end_offset < 200 and copies(tmp_path) == [target]
    server = start()
    until(server, lambda: place(server) == target)
    assert values(server) == before and copies(tmp_path) == []


def test_the_throttle_holds(start: Start, tmp_path: Path) -> None:
    """The rate is one byte a second. One batch overdraws the token bucket, and it does not fill again during this test."""
    server = start(SLOW)
    fill(server, 20, 10_000)
    future = begin_move(server, tmp_path, other_of(server))
    for _ in range(50):
        server.loop.run_until_complete(asyncio.sleep(0))
    assert future.copy.log_end_offset == 1


class HeldThreads:
    """Threads that do not run their work until the test lets them."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], Any], Callable[[Any], object]]] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        self.held.append((work, done))


@pytest.mark.parametrize(("assignment", "at_a_time"), [("", 2), ("num.replica.alter.log.dirs.threads=3", 3)])
def test_so_many_replicas_move_at_a_time(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assignment: str, at_a_time: int
) -> None:
    """At most as many replicas are copied at a time as there are directories, or as the setting says."""
    server = start(*([assignment] if assignment else []))
    server.node.create_topics([("several", 4)])
    partitions = [found for number in range(4) if (found := server.node.partitions.get("several", number)) is not None]
    for partition in partitions:
        for _ in range(50):
            partition.require_leading().append(encode_batch([Record(0, 1, None, b"v" * 200)]), acks=1, now_ms=1)
    before = {partition: Path(partition.log.directory).parent.name for partition in partitions}
    threads, held = server.node.moves._threads, HeldThreads()
    monkeypatch.setattr(server.node.moves, "_threads", held)
    for partition, place in before.items():
        assert server.node.moves.move(partition, f"{tmp_path}/{'b' if place == 'a' else 'a'}") is ErrorCode.NONE
    run_until(server.loop, lambda: len(held.held) >= at_a_time, seconds=60)
    for _ in range(20):
        server.loop.run_until_complete(asyncio.sleep(0))
    assert len(held.held) == at_a_time, "the others wait for their turn"
    work, done = held.held.pop()
    done(work())
    run_until(server.loop, lambda: len(held.held) == at_a_time, seconds=60)
    progress = [future.copy.log_end_offset > 0 for future in server.node.moves.under_way()]
    assert progress == [number == at_a_time - 1 for number in range(4)], "a replica that is held up holds up no other"
    monkeypatch.setattr(server.node.moves, "_threads", threads)
    for work, done in held.held:
        threads.run(work, done)
    until(server, lambda: all(Path(one.log.directory).parent.name != place for one, place in before.items()))
    assert [partition.log.log_end_offset for partition in partitions] == [50] * 4 and not any(server.node.moves.under_way())


def test_a_deleted_topic_takes_its_copy_along(start: Start, tmp_path: Path) -> None:
    server = start(SLOW, "log.segment.delete.delay.ms=1000")
    fill(server)
    move(server, tmp_path, other_of(server))
    assert copies(tmp_path) != []
    deleted: list[object] = []
    server.node.controller.delete_topics(["t"], deleted.append)
    until(server, lambda: deleted and server.node.partitions.get(*KEY) is None)
    assert copies(tmp_path) == [] and not any(server.node.moves.under_way())


def test_a_copy_of_an_earlier_topic_is_not_gone_on_with(start: Start, tmp_path: Path) -> None:
    server = start()
    origin, target = place(server), other_of(server)
    stop(server)
    left = tmp_path / target / f"t-0.{'0' * 32}-future"
    left.mkdir()
    (left / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    server = start()
    assert copies(tmp_path) == [] and place(server) == origin


def test_a_damaged_copy_is_begun_anew(start: Start, tmp_path: Path) -> None:
    server = start(SLOW)
    fill(server)
    target, before = other_of(server), values(server)
    future = begin_move(server, tmp_path, target)
    stop(server)
    Path(future.copy.active.path(".log")).write_bytes(b"")
    server = start()
    until(server, lambda: place(server) == target)
    assert values(server) == before


def test_the_destination_fails_and_heals(start: Start, tmp_path: Path) -> None:
    server = start(SLOW)
    fill(server)
    target, before = other_of(server), values(server)
    begin_move(server, tmp_path, target)
    FailingDisk.broken = f"{tmp_path}/{target}"
    server.node._directory_failed(next(found for found in server.directories if found.path.endswith(f"/{target}")), "broken")
    assert not any(server.node.moves.under_way()) and partition_of(server).is_online
    assert move(server, tmp_path, target) is ErrorCode.KAFKA_STORAGE_ERROR
    fill(server, 5)
    FailingDisk.broken = ""
    until(server, lambda: server.node.housekeeping.recheck_offline() or any(server.node.moves.under_way()))
    assert values(server)[: len(before)] == before
    server = start()
    until(server, lambda: place(server) == target)
    assert len(values(server)) == 205


def test_the_logs_own_directory_fails_and_heals(start: Start, tmp_path: Path) -> None:
    server = start(SLOW)
    fill(server)
    target, origin = other_of(server), place(server)
    begin_move(server, tmp_path, target)
    first = partition_of(server)
    server.node._directory_failed(server.node.partitions.directory_of(first), "broken")
    assert place(server) == origin and not first.is_online
    until(server, lambda: server.node.housekeeping.recheck_offline() or partition_of(server) is not first)
    fill(server, 5)
    server = start()
    until(server, lambda: place(server) == target)
    assert [offset for offset, _ in values(server)] == list(range(205))


def test_unreadable_bytes_of_the_log_end_its_move_alone(start: Start, tmp_path: Path) -> None:
    server = start()
    fill(server)
    target, origin, before = other_of(server), place(server), values(server)
    FailingDisk.unreadable = partition_of(server).log.active.path(".log")
    assert move(server, tmp_path, target) is ErrorCode.NONE
    until(server, lambda: not any(server.node.moves.under_way()))
    assert all(directory.is_online for directory in server.directories)
    assert partition_of(server).is_online and place(server) == origin and not copies(tmp_path)
    FailingDisk.unreadable = ""
    assert move(server, tmp_path, target) is ErrorCode.NONE
    until(server, lambda: place(server) == target)
    assert values(server) == before


def test_a_replica_that_is_not_here_yet_is_made_where_it_is_wanted(start: Start, tmp_path: Path) -> None:
    server = start()
    for name in ("a", "b", "b", "a"):
        topic = f"new-{len(server.node.partitions.of_topic('t'))}-{server.node.partitions.count()}"
        assert server.node.moves.prefer(TopicPartition(topic, 0), f"{tmp_path}/{name}") is ErrorCode.REPLICA_NOT_AVAILABLE
        server.node.create_topics([(topic, 1)])
        made = server.node.partitions.get(topic, 0)
        assert made is not None and Path(made.log.directory).parent.name == name
    assert server.node.moves.prefer(KEY, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND


def test_a_log_without_room_for_its_copy_stays(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start()
    fill(server)
    monkeypatch.setattr(moves, "FREE_BYTES_MIN", 1 << 60)
    assert move(server, tmp_path, other_of(server)) is ErrorCode.KAFKA_STORAGE_ERROR and copies(tmp_path) == []


def test_a_log_is_not_compacted_while_it_moves(start: Start, tmp_path: Path) -> None:
    server = start(SLOW)
    fill(server)
    partition, compaction = partition_of(server), server.node.housekeeping.compaction
    assert compaction._is_here(partition)
    move(server, tmp_path, other_of(server))
    assert not compaction._is_here(partition)
    move(server, tmp_path, place(server))
    assert compaction._is_here(partition)
