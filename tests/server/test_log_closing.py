"""Closing all logs: a power failure afterwards loses no record, however the files were synced. A log that fails takes its directory
offline."""

from __future__ import annotations

import pytest

from ottla.base.broker_ports import Ages, Ports
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.server import log_closing
from ottla.server.log_closing import LogClosing
from ottla.storage.log import Log
from ottla.wire.records import Record, encode_batch
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.fakes.memory_store import MemoryStore
from tests.fakes.randomness import SeededRandom
from tests.fakes.threads import ManualThreads
from tests.fakes.timers import ManualTimers
from tests.sim.network import Host, SimNetwork

DIRECTORIES = ("/first", "/second")
COUNT = 40
"""Logs in each directory: enough for more than one thread."""


class LogDirectory:
    def __init__(self) -> None:
        self.is_online = True

    def go_offline(self, reason: str) -> None:
        self.is_online = False


class Closing:
    """Logs with records in two directories of one disk, and one way to sync them."""

    def __init__(self) -> None:
        self.disk = MemDisk(*DIRECTORIES)
        self.directories = {path: LogDirectory() for path in DIRECTORIES}
        self.logs = [self._written(path, index) for path in DIRECTORIES for index in range(COUNT)]
        self.results: list[bool] = []

    def _written(self, directory: str, index: int) -> Partition:
        key = TopicPartition(directory.strip("/"), index)
        opened = Log.open(self.disk, f"{directory}/{key}", key, log_settings(), now_ms=0, was_clean=True)
        made = Partition(opened, broker_id=0, is_flush_on_ack=False, request_flush=lambda _partition: None)
        made.become_leader(leader_epoch=7, partition_epoch=0, replicas=(0,), isr=(0,), now_ms=0)
        made.require_leading().append(encode_batch([Record(0, 1, None, b"v")]), acks=1, now_ms=1)
        return made

    def all(self) -> list[Partition]:
        return self.logs

    def directory_of(self, partition: Partition) -> LogDirectory:
        return self.directories["/" + partition.topic_partition.topic]

    def run(self) -> None:
        timers, threads, random = ManualTimers(), ManualThreads(), SeededRandom(1)
        network = Host(SimNetwork(random, timers), "broker-1", timers)  # type: ignore[arg-type]
        ports = Ports(
            clock=timers.clock, timers=timers, ages=Ages(timers.clock, timers), random=random, disk=self.disk, threads=threads,
            network=network, store=MemoryStore(),
        )
        LogClosing(ports, self, self.results.append).begin()
        timers.run_due()
        while threads.waiting:
            threads.run_one()
            timers.run_due()

    def ends_after_a_power_failure(self, directory: str) -> list[tuple[int, int]]:
        """Returns the end and the newest leader epoch of each log after a power failure. The logs are opened as after a clean stop."""
        image = self.disk.image()
        opened = []
        for index in range(COUNT):
            key = TopicPartition(directory.strip("/"), index)
            log = Log.open(image, f"{directory}/{key}", key, log_settings(), now_ms=0, was_clean=True, recovery_point=1)
            opened.append((log.log_end_offset, log.epochs.latest))
        return opened


@pytest.mark.parametrize("are_failures_reported", [True, False])
@pytest.mark.parametrize("singly_max", [COUNT - 1, COUNT])
def test_a_power_failure_after_the_closing_loses_nothing(
    singly_max: int, are_failures_reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_closing, "SYNCED_SINGLY_MAX", singly_max)
    closing = Closing()
    closing.disk.are_failures_reported = are_failures_reported
    closing.disk.counts.clear()
    closing.run()
    assert closing.results == [True]
    assert [closing.ends_after_a_power_failure(path) for path in DIRECTORIES] == [[(1, 7)] * COUNT] * 2
    is_together = singly_max < COUNT
    assert closing.disk.counts.get("sync_file_systems", 0) == len(DIRECTORIES) * is_together
    assert ("sync" in closing.disk.counts) == (not is_together or not are_failures_reported)


def test_a_file_system_that_cannot_be_synced_takes_its_directory_offline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_closing, "SYNCED_SINGLY_MAX", 0)
    closing = Closing()
    closing.disk.fail_next("sync_file_systems", path_part="/first/")
    closing.run()
    assert closing.results == [False]
    assert {path: directory.is_online for path, directory in closing.directories.items()} == {"/first": False, "/second": True}
    assert len(caplog.records) == 1, "a line for each log would be thousands"
    assert {partition.log.recovery_point for partition in closing.logs[:COUNT]} == {0}, "nothing of it counts as synced"
    assert closing.ends_after_a_power_failure("/second") == [(1, 7)] * COUNT


def test_a_log_that_cannot_be_synced_takes_its_directory_offline() -> None:
    closing = Closing()
    closing.disk.fail_next("sync", path_part="/second/")
    closing.run()
    assert closing.results == [False]
    assert {path: directory.is_online for path, directory in closing.directories.items()} == {"/first": True, "/second": False}
    assert closing.ends_after_a_power_failure("/first") == [(1, 7)] * COUNT


def test_what_the_closing_has_not_synced_a_power_failure_takes() -> None:
    """Unsynced records are lost in this test, so the tests above can fail."""
    assert Closing().ends_after_a_power_failure("/first") == [(0, -1)] * COUNT
