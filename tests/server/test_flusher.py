"""Group commit: one round serves all appends meanwhile, a failure acknowledges nothing, and `flush.messages` counts every append."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ottla.base.cluster_metadata import CONFIG_TOPIC
from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest
from ottla.replication.partition import Partition
from ottla.server.flusher import Flusher
from ottla.storage.log import Log
from ottla.storage.small_files import Boot, read_boot, write_boot
from ottla.wire.records import Record, encode_batch
from tests.fakes.log_settings import log_settings
from tests.fakes.world import World
from tests.server.conftest import MakeServer
from tests.server.threads import run_until


class FlusherWorld(World):
    """A flusher whose thread runs only when the test lets it."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.failed: list[tuple[Partition, StorageError]] = []
        self.flusher = Flusher(lambda work, done: self.work.append((work, done)), lambda *failure: self.failed.append(failure), lambda: 0)

    def partition(self, index: int, *, is_flush_on_ack: bool = True, flush_messages: int = 1 << 62) -> Partition:
        key = TopicPartition("t", index)
        log = Log.open(self.disk, f"/data/{key}", key, log_settings(flush_messages=flush_messages), now_ms=0, was_clean=True)
        made = Partition(log, broker_id=0, is_flush_on_ack=is_flush_on_ack, request_flush=self.flusher.request)
        made.become_leader(leader_epoch=0, partition_epoch=0, replicas=(0,), isr=(0,), now_ms=0)
        return made

    def run(self) -> None:
        """Runs one round of the thread."""
        work, done = self.work.pop(0)
        done(work())


def append(partition: Partition, count: int = 1) -> None:
    partition.require_leading().append(encode_batch([Record(0, 1, None, b"v")] * count), acks=-1, now_ms=1)


def test_the_directory_of_all_logs_is_synced_once_in_a_round_after_the_directories_of_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly a stop with 3,000 new logs synced the common directory 3,000 times."""
    world = FlusherWorld()
    logs = [world.partition(index) for index in range(3)]
    append(logs[0])
    append(logs[1])
    append(logs[2])
    world.run()
    synced: list[str] = []
    sync = world.disk.sync_directory
    monkeypatch.setattr(world.disk, "sync_directory", lambda path: (synced.append(path), sync(path)))
    world.run()
    assert synced == ["/data/t-1", "/data/t-2", "/data"]
    assert [log.high_watermark for log in logs] == [1, 1, 1]


def test_a_directory_of_all_logs_that_cannot_be_synced_fails_each_log_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FlusherWorld()
    logs = [world.partition(index) for index in range(3)]
    for log in logs:
        append(log)
    world.run()

    def fail(path: str) -> None:
        if path == "/data":
            raise StorageError("broken", path)

    monkeypatch.setattr(world.disk, "sync_directory", fail)
    append(logs[0])
    world.run()
    assert [partition for partition, _ in world.failed] == logs[1:]
    assert [log.high_watermark for log in logs] == [1, 0, 0]


def test_i44_a_failed_sync_removes_the_proof_of_its_directory_before_the_loop_knows_of_it() -> None:
    """The process may be killed in between, and the next start must not take the lost pages for synced ones."""
    world = FlusherWorld()
    partition = world.partition(0)
    write_boot(world.disk, "/data", Boot("boot", is_synced=True, has_ledger=True))
    world.disk.fail_next("sync", path_part=".log")
    append(partition)
    work, _done = world.work.pop(0)
    work()
    assert not world.failed and not read_boot(world.disk, "/data").boot_id


def test_one_round_serves_all_requests_made_during_the_last_one() -> None:
    world = FlusherWorld()
    first, second = world.partition(0), world.partition(1)
    append(first)
    assert len(world.work) == 1 and first.high_watermark == 0
    for _ in range(3):
        append(first)
        append(second)
    assert len(world.work) == 1, "a round that runs is not joined by another"
    world.run()
    assert (first.high_watermark, second.high_watermark) == (1, 0), "a later append is not durable yet"
    assert len(world.work) == 1
    world.run()
    assert (first.high_watermark, second.high_watermark) == (4, 3)
    assert world.flusher.is_idle and world.flusher.rounds == 2


def test_appends_made_when_a_round_ends_wait_for_one_next_round() -> None:
    """A transaction coordinator appends as soon as its last record is durable. Formerly two rounds then ran at the same time, each with
    some of the files, and the end of one round was taken for the end of the other. A power failure lost acknowledged records in a new
    segment, because the segment's file name was not synced."""
    world = FlusherWorld()
    logs = [world.partition(index) for index in range(3)]
    for log in logs:
        append(log)
        log.notifier.call_when_durable(1, partial(append, log))
    while world.work:
        assert len(world.work) == 1, "two rounds run at once"
        world.run()
    assert [log.high_watermark for log in logs] == [2, 2, 2] and world.flusher.is_idle


def test_a_failed_sync_acknowledges_nothing_and_leaves_the_others_alone() -> None:
    world = FlusherWorld()
    bad, good = world.partition(0), world.partition(1)
    append(good)
    world.run()
    append(bad)
    append(good)

    class BrokenFile:
        def sync(self) -> None:
            raise StorageError("cannot sync")

        def close(self) -> None: ...

    bad.log.active.open_file().file = BrokenFile()  # type: ignore[assignment]
    while world.work:
        world.run()
    assert [partition for partition, _ in world.failed] == [bad]
    assert bad.high_watermark == 0 and good.high_watermark == 2


def test_i44_a_failed_write_of_a_small_file_does_not_hang_the_group_commit() -> None:
    """The leader epochs are written when a round begins; a full directory then stops its own logs and no others, for one round."""
    world = FlusherWorld()
    bad, good = world.partition(0), world.partition(1)
    append(good)
    world.run()
    world.disk.fail_next("write", 28, path_part="t-0/leader-epoch-checkpoint")
    append(bad)
    append(good)
    while world.work:
        world.run()
    assert [partition for partition, _ in world.failed] == [bad]
    assert bad.high_watermark == 0 and good.high_watermark == 2 and world.flusher.is_idle
    append(good)
    world.run()
    assert good.high_watermark == 3


@pytest.mark.parametrize(("flush_messages", "appends", "asked"), [(10, 9, 0), (10, 10, 1), (1, 1, 1), (1 << 62, 50, 0)])
def test_flush_messages_counts_every_append(flush_messages: int, appends: int, asked: int) -> None:
    world = FlusherWorld()
    partition = world.partition(0, is_flush_on_ack=False, flush_messages=flush_messages)
    for _ in range(appends):
        append(partition)
    assert len(world.work) == asked
    assert partition.high_watermark == appends, "no acknowledgement waits for it"


def test_flush_messages_begins_to_count_anew_after_each_flush() -> None:
    world = FlusherWorld()
    partition = world.partition(0, is_flush_on_ack=False, flush_messages=5)
    append(partition, 7)
    world.run()
    assert partition.log.recovery_point == 7 and world.flusher.is_idle
    append(partition, 4)
    assert not world.work
    append(partition)
    world.run()
    assert partition.log.recovery_point == 12
    partition.log.configure(log_settings(flush_messages=2, is_unclean_election_enabled=True))
    append(partition, 2)
    assert len(world.work) == 1
    world.run()
    partition.become_follower(leader_id=1, leader_epoch=1, partition_epoch=1, replicas=(0, 1), isr=(1,))
    assert partition.follower_log is not None
    partition.follower_log.truncate(10)
    partition.become_leader(leader_epoch=2, partition_epoch=2, replicas=(0,), isr=(0,), now_ms=0)
    append(partition)
    assert not world.work
    append(partition)
    assert len(world.work) == 1


def test_flush_messages_of_1_is_flush_on_ack(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("log.flush.interval.messages=1")
    server.node.create_topics([("t", 1)])
    partition = server.node.partitions.get("t", 0)
    assert partition is not None
    append(partition)
    assert partition.high_watermark == 0
    run_until(loop, lambda: partition.high_watermark == 1)
    assert partition.log.recovery_point == 1


def test_flush_messages_of_1_set_on_a_live_topic_holds_at_once(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server()
    server.node.create_topics([("t", 1)])
    partition = server.node.partitions.get("t", 0)
    assert partition is not None

    def configure(operation: ConfigOperation) -> None:
        entry = ConfigEntry(name="flush.messages", operation=operation, value="1")
        request = ConfigRequest(resource_type=CONFIG_TOPIC, name="t", entries=(entry,))
        server.node.controller.alter_configs([request], False, lambda _: None)

    append(partition)
    assert partition.high_watermark == 1 and partition.log.recovery_point == 0
    configure(ConfigOperation.SET)
    append(partition)
    assert partition.high_watermark == 1, "what was acknowledged stays so, what follows waits for the disk"
    run_until(loop, lambda: partition.high_watermark == 2)
    assert partition.log.recovery_point == 2
    append(partition)
    configure(ConfigOperation.DELETE)
    assert partition.high_watermark == 3
    append(partition)
    assert partition.high_watermark == 4
