"""One of several log directories fails: its partitions answer with an error, the other directories serve and get the new partitions, and
the failed one can return (I44)."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.adapters.disk import OsDisk, OsFile
from ottla.adapters.lock import DirectoryLock
from ottla.adapters.randomness import SystemRandom
from ottla.base.errors import DamagedLogError, DirectoryRefused, DiskError, ErrorCode, StorageError
from ottla.base.types import TopicPartition
from ottla.server import app
from ottla.server.app import BrokerServer
from ottla.server.directories import log_directories
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.monitoring.metrics import Metrics
from ottla.storage.companion_directories import note_companions, refuse_absent
from ottla.storage.offset_checkpoints import LogOffsets
from ottla.storage.stage_file import SUFFIX, StageFile
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tests.clients.wire_client import WireClient
from tests.fakes import MemDisk, SeededRandom
from tests.server.conftest import config_for
from tests.server.threads import run_until, with_client

PARTITIONS = 4


class FailingDisk(OsDisk):
    """A disk on which the test can break one directory, or make one file unreadable."""

    __slots__ = ()
    broken = ""
    unreadable = ""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self.check(path)
        return FailingFile(path, super().open(path, create=create).fileno())

    def makedirs(self, path: str) -> None:
        self.check(path)
        super().makedirs(path)

    @classmethod
    def check(cls, path: str) -> None:
        if cls.broken and path.startswith(cls.broken):
            raise DiskError(f"cannot use {path}: Input/output error", path)

    @classmethod
    def check_read(cls, path: str) -> None:
        cls.check(path)
        if path == cls.unreadable:
            raise DamagedLogError(f"cannot read {path}: Input/output error", path)


class FailingFile(OsFile):
    __slots__ = ()

    def pread(self, length: int, position: int) -> bytes:
        FailingDisk.check_read(self.path)
        return super().pread(length, position)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        FailingDisk.check_read(self.path)
        return super().pread_into(buffer, position)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        FailingDisk.check(self.path)
        super().pwrite(data, position)

    def sync(self) -> None:
        FailingDisk.check(self.path)
        super().sync()


@pytest.fixture
def server(loop: asyncio.AbstractEventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerServer]:
    monkeypatch.setattr(app, "OsDisk", FailingDisk)
    monkeypatch.setattr(FailingDisk, "broken", "")
    config = config_for(tmp_path, f"log.dirs={tmp_path}/good,{tmp_path}/bad")
    made = BrokerServer(loop, config)
    made.start()
    made.node.create_topics([("t", PARTITIONS)])
    yield made
    FailingDisk.broken = ""
    loop.run_until_complete(made.stop())


def produce(client: WireClient, topic: str = "t", count: int = PARTITIONS) -> list[int]:
    data = [PartitionProduceData(index=index, records=encode_batch([Record(0, 1, None, b"v")])) for index in range(count)]
    request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    answer = client.ask(request, 9).responses[0].partition_responses
    return [partition.error_code for partition in sorted(answer, key=lambda found: found.index)]


def end_offsets(client: WireClient) -> list[tuple[int, int]]:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
    answer = client.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=wanted)]), 6).topics[0].partitions
    return [(found.error_code, found.offset) for found in answer]


def fetch_codes(client: WireClient) -> list[int]:
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(PARTITIONS)]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10_000, topics=[FetchTopic(topic="t", partitions=wanted)])
    return [found.error_code for found in client.ask(request, 11).responses[0].partitions]


def on(server: BrokerServer, name: str, topic: str = "t") -> list[int]:
    """Returns the partitions in the log directory of that name."""
    found = server.node.partitions.of_topic(topic)
    return sorted(partition.topic_partition.partition for partition in found if f"/{name}/" in partition.log.directory)


def test_i44_one_of_two_directories_fails(server: BrokerServer, loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    bad = on(server, "bad")
    assert len(bad) == 2 == len(on(server, "good")), "new partitions go to the directory with the fewest"
    assert with_client(loop, server, produce) == [0] * PARTITIONS

    FailingDisk.broken = f"{tmp_path}/bad"
    failed = [ErrorCode.KAFKA_STORAGE_ERROR if index in bad else 0 for index in range(PARTITIONS)]
    assert with_client(loop, server, produce) == failed
    assert with_client(loop, server, fetch_codes) == failed
    assert [code for code, _ in with_client(loop, server, end_offsets)] == failed
    described = with_client(loop, server, lambda client: client.ask(DescribeLogDirsRequest(topics=None), 4)).results
    assert {Path(found.log_dir).name: found.error_code for found in described} == {"good": 0, "bad": ErrorCode.KAFKA_STORAGE_ERROR}

    topics = CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=3, replication_factor=1)], timeout_ms=5_000)
    assert with_client(loop, server, lambda client: client.ask(topics, 5)).topics[0].error_code == 0
    assert on(server, "good", "new") == [0, 1, 2]
    assert with_client(loop, server, lambda client: produce(client, "new", 3)) == [0, 0, 0]

    server.node.housekeeping.recheck_offline()
    server.node.housekeeping.write_checkpoints()
    FailingDisk.broken = ""
    run_until(loop, lambda: server.node.housekeeping.recheck_offline() or all(found.is_online for found in server.directories))
    assert with_client(loop, server, produce) == [0] * PARTITIONS
    assert with_client(loop, server, end_offsets) == [(0, 2 if index in bad else 3) for index in range(PARTITIONS)]


def test_what_was_deleted_stays_deleted_when_a_directory_heals(
    server: BrokerServer, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    """A reopened log begins with the offsets that it had when its directory failed, not with the checkpoints from the broker's start."""
    index = on(server, "bad")[0]
    for _ in range(3):
        with_client(loop, server, produce)
    partition = server.node.partitions.get("t", index)
    assert partition is not None
    partition.log.flush()
    partition.require_leading().delete_records(2)
    server.directories[1].clean_offsets[partition.topic_partition] = 1

    FailingDisk.broken = f"{tmp_path}/bad"
    assert with_client(loop, server, produce)[index] == ErrorCode.KAFKA_STORAGE_ERROR
    FailingDisk.broken = ""
    run_until(loop, lambda: server.node.housekeeping.recheck_offline() or all(found.is_online for found in server.directories))
    healed = server.node.partitions.get("t", index)
    assert healed is not None and healed is not partition
    assert (healed.log.log_start_offset, healed.log.log_end_offset, healed.high_watermark) == (2, 3, 3)
    assert healed.log.recovery_point == 3, "what was synced is not checked again"
    assert server.node.housekeeping.compaction.first_dirty_offset(healed) == 1


def test_a_log_that_found_no_room_is_there_when_there_is_some(
    server: BrokerServer, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    """The directory stays online; only the logs of the new topic could not be created."""
    FailingDisk.broken = f"{tmp_path}/bad/new-"
    server.node.create_topics([("new", 2)])
    offline = on(server, "good", "new")
    codes = with_client(loop, server, lambda client: produce(client, "new", 2))
    assert len(offline) == 1 and sorted(codes) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    server.node.housekeeping.write_checkpoints()
    FailingDisk.broken = ""
    run_until(loop, lambda: server.node.housekeeping.recheck_offline() or len(server.node.partitions.of_topic("new")) == 2)
    assert with_client(loop, server, lambda client: produce(client, "new", 2)) == [0, 0]


def test_a_restart_with_a_broken_directory_serves_the_other(
    server: BrokerServer, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    bad = on(server, "bad")
    assert with_client(loop, server, produce) == [0] * PARTITIONS
    loop.run_until_complete(server.stop())
    FailingDisk.broken = f"{tmp_path}/bad"
    again = BrokerServer(loop, server.config)
    again.start()
    codes = with_client(loop, again, produce)
    assert [code for index, code in enumerate(codes) if index not in bad] == [0, 0]
    assert all(codes[index] != 0 for index in bad)
    FailingDisk.broken = ""
    run_until(loop, lambda: again.node.housekeeping.recheck_offline() or all(found.is_online for found in again.directories))
    assert with_client(loop, again, end_offsets) == [(0, 1 if index in bad else 2) for index in range(PARTITIONS)]
    loop.run_until_complete(again.stop())
    loop.run_until_complete(again.stop())


def test_a_directory_belongs_to_one_broker_of_one_cluster(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    disk, random = OsDisk(), SystemRandom()
    first = LogDirectoryState(disk, path, DirectoryLock)
    first.lock()
    first.claim(1, "cluster-a", random)
    with pytest.raises(DirectoryRefused, match="in use"):
        LogDirectoryState(disk, path, DirectoryLock).lock()
    first.note_boot()
    first.close(is_clean=True)
    second = LogDirectoryState(disk, path, DirectoryLock)
    second.lock()
    with pytest.raises(DirectoryRefused, match="cluster cluster-a"):
        second.claim(1, "cluster-b", random)
    with pytest.raises(DirectoryRefused, match=r"broker 1, not 2; set broker\.id=1"):
        second.claim(2, "cluster-a", random)
    second.claim(1, "cluster-a", random)
    assert second.was_clean
    second.release()
    third = LogDirectoryState(disk, path, DirectoryLock)
    third.lock()
    third.claim(1, "cluster-a", random)
    assert not third.was_clean, "the marker counts once"
    third.release()


def claimed(path: Path, boot_id: str, *, is_flush_on_ack: bool = False) -> LogDirectoryState:
    directory = LogDirectoryState(OsDisk(), str(path), boot_id=boot_id, is_flush_on_ack=is_flush_on_ack)
    directory.lock()
    directory.claim(1, "c", SystemRandom())
    return directory


def test_a_directory_is_whole_after_a_clean_close_or_while_the_machine_runs_on(tmp_path: Path) -> None:
    assert not claimed(tmp_path, "boot-1").was_whole, "new: what was there before is unknown"
    assert not claimed(tmp_path, "boot-1").was_whole, "killed before the loss had been dealt with"
    directory = claimed(tmp_path, "boot-1")
    directory.note_boot()
    assert claimed(tmp_path, "boot-1").was_whole
    assert not claimed(tmp_path, "boot-2").was_whole and not claimed(tmp_path, "").was_whole
    claimed(tmp_path, "boot-2").close(is_clean=True)
    directory = claimed(tmp_path, "boot-3")
    assert not directory.was_whole, "stopped cleanly before the loss had been dealt with"
    directory.note_boot()
    directory.close(is_clean=True)
    directory = claimed(tmp_path, "boot-3")
    assert directory.was_clean
    directory.close(is_clean=True)
    assert claimed(tmp_path, "boot-4").was_clean, "nothing was lost before a start that did not come far"


def test_a_power_failure_loses_nothing_where_acknowledgements_wait_for_the_disk(tmp_path: Path) -> None:
    claimed(tmp_path, "boot-1", is_flush_on_ack=True)  # the broker was killed before it registered
    claimed(tmp_path, "boot-1", is_flush_on_ack=True).note_boot()
    assert claimed(tmp_path, "boot-2", is_flush_on_ack=True).was_whole
    directory = claimed(tmp_path, "boot-2")  # the setting is off from here on
    assert directory.was_whole
    directory.note_boot()
    assert not claimed(tmp_path, "boot-3").was_whole


def test_what_was_not_synced_before_is_not_proved_by_a_setting(tmp_path: Path) -> None:
    """A process without flush on ack is killed, and the next one has it. The records of the first process may still be only in the system's
    memory."""
    claimed(tmp_path, "boot-1").note_boot()
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "partition.metadata").touch()
    claimed(tmp_path, "boot-1", is_flush_on_ack=True).note_boot()
    assert not claimed(tmp_path, "boot-2", is_flush_on_ack=True).was_whole
    claimed(tmp_path, "boot-2", is_flush_on_ack=True).note_boot()  # the present data was read from the disk
    assert claimed(tmp_path, "boot-3", is_flush_on_ack=True).was_whole


def test_the_proof_ends_before_the_first_acknowledgement_that_does_not_wait(tmp_path: Path) -> None:
    claimed(tmp_path, "boot-1", is_flush_on_ack=True).note_boot()
    claimed(tmp_path, "boot-1")  # the broker was killed before a controller knew it
    assert not claimed(tmp_path, "boot-2", is_flush_on_ack=True).was_whole


def test_a_directory_that_failed_proves_nothing_by_its_setting(tmp_path: Path) -> None:
    directory = claimed(tmp_path, "boot-1", is_flush_on_ack=True)
    directory.note_boot()
    directory.go_offline("a failed sync")
    assert not claimed(tmp_path, "boot-2", is_flush_on_ack=True).was_whole


def test_a_refused_start_leaves_a_new_directory_to_any_broker(tmp_path: Path) -> None:
    directory = claimed(tmp_path, "boot-1")
    directory.disown()
    directory.close(is_clean=True)
    other = LogDirectoryState(OsDisk(), str(tmp_path), boot_id="boot-1")
    other.claim(2, "c", SystemRandom())
    assert not other.was_whole
    other.note_boot()
    other.close(is_clean=True)
    mine = LogDirectoryState(OsDisk(), str(tmp_path), boot_id="boot-1")
    mine.claim(2, "c", SystemRandom())
    mine.disown()
    assert mine.cluster_id() == "c", "a directory that was in use keeps its owner"


def test_after_a_failed_write_the_memory_of_the_system_proves_nothing(tmp_path: Path) -> None:
    directory = claimed(tmp_path, "boot-1")
    directory.note_boot()
    directory.go_offline("a failed sync")
    directory.come_online()
    directory.note_boot()
    assert not claimed(tmp_path, "boot-1").was_whole


def test_a_directory_has_an_id_of_its_own_also_one_of_an_older_kafka(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    first = claimed(tmp_path, "")
    assert first.directory_id and claimed(tmp_path, "").directory_id == first.directory_id
    assert claimed(tmp_path / "other", "").directory_id not in ("", first.directory_id)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_a_damaged_checkpoint_is_logged_and_counts_as_lost(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / name).write_text("0\n7\nnonsense\n")
    directory = LogDirectoryState(OsDisk(), str(tmp_path))
    directory.lock()
    directory.claim(1, "c", SystemRandom())
    directory.release()
    assert name in caplog.text and "ignored" in caplog.text
    assert directory.noted(TopicPartition("t", 0), bytes(16)) == LogOffsets(bytes(16))


def test_i44_the_path_of_an_error_says_which_directory_failed(server: BrokerServer) -> None:
    """The text of the error does not decide, because it may contain the names of other directories."""
    bad, good = (server.node.partitions.get("t", on(server, name)[0]) for name in ("bad", "good"))
    assert bad is not None and good is not None
    server.node.storage_failed(StorageError(f"{good.log.directory}/x is fine", f"{bad.log.directory}/00000000000000000000.log"))
    assert not bad.is_online and good.is_online


def test_the_only_directory_fails_and_every_view_says_so(
    loop: asyncio.AbstractEventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata, the metric and the command line show the same as /readyz, and all show a healthy broker afterwards."""
    monkeypatch.setattr(app, "OsDisk", FailingDisk)
    monkeypatch.setattr(FailingDisk, "broken", "")
    server = BrokerServer(loop, config_for(tmp_path))
    server.start()
    server.node.create_topics([("t", 2)])

    def leaders(client: WireClient) -> list[tuple[int, int, list[int]]]:
        (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics
        return [(one.error_code, one.leader_id, one.offline_replicas) for one in topic.partitions]

    def offline_partitions() -> float:
        node = server.node
        metrics = Metrics(node)
        return float(re.findall(r"^kafka_controller_kafkacontroller_offlinepartitionscount (\S+)$", metrics.render().decode(), re.M)[0])

    def health(_client: WireClient) -> tuple[int, str]:
        line = [sys.executable, "-m", "ottla.cli.main", "cluster", "health", "-b", f"127.0.0.1:{server.node.endpoints[0].port}"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    well = [(0, 0, [])] * 2
    assert with_client(loop, server, leaders) == well and with_client(loop, server, health) == (0, "healthy\n")
    FailingDisk.broken = f"{tmp_path}/"
    assert with_client(loop, server, lambda client: produce(client, "t", 1)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert with_client(loop, server, leaders) == [(ErrorCode.LEADER_NOT_AVAILABLE, -1, [0])] * 2
    assert offline_partitions() == 2
    code, said = with_client(loop, server, health)
    assert code == 1 and "of broker 0 is offline" in said and "2 partitions without a leader" in said
    FailingDisk.broken = ""
    partitions, housekeeping = server.node.partitions, server.node.housekeeping
    run_until(loop, lambda: housekeeping.recheck_offline() or sum(partition.is_online for partition in partitions.all()) == 2)
    assert with_client(loop, server, leaders) == well and with_client(loop, server, health) == (0, "healthy\n")
    assert offline_partitions() == 0
    loop.run_until_complete(server.stop())


def test_a_stop_ends_though_the_marker_of_a_clean_shutdown_cannot_be_written(
    loop: asyncio.AbstractEventLoop, server: BrokerServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(disk: object, path: str) -> None:
        raise StorageError(f"cannot write in {path}: No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_directories.small_files, "write_clean_shutdown", fail)
        server.begin_stop()
        assert loop.run_until_complete(asyncio.wait_for(server.stopped, 20)) == 0
    assert "No space left on device" in caplog.text
    again = BrokerServer(loop, server.config)
    again.start()
    assert not any(directory.was_clean for directory in again.directories)
    loop.run_until_complete(again.stop())


def test_a_stop_that_fails_ends_the_process_too(loop: asyncio.AbstractEventLoop, server: BrokerServer) -> None:
    async def fail() -> int:
        raise StorageError("the disk is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "stop", fail)
        server.begin_stop()
        with pytest.raises(StorageError, match="gone"):
            loop.run_until_complete(asyncio.wait_for(server.stopped, 20))


def test_what_was_staged_is_removed_by_a_start_and_when_a_directory_comes_back() -> None:
    """The partitions in the directory have had no leader on this broker since, so the staged chunks can no longer be attached."""
    disk = MemDisk("/data")
    directory = LogDirectoryState(disk, "/data")
    for begin in (lambda: directory.claim(1, "cluster", SeededRandom(1)), directory.come_online):
        StageFile(disk, f"/data/1{SUFFIX}").append(b"left")
        begin()
        assert not [name for name in disk.listdir("/data") if name.endswith(SUFFIX)]


def test_a_directory_that_comes_back_empty_after_the_start_stays_offline(tmp_path: Path) -> None:
    """The disk of the directory could not be read at the start, and is not mounted now. No empty logs are created in the mount point."""
    paths = [str(tmp_path / name) for name in "ab"]
    note_companions(OsDisk(), {claimed(Path(path), "boot").directory_id: path for path in paths}, are_all=True)
    (tmp_path / "b").rename(tmp_path / "unmounted")
    late = LogDirectoryState(OsDisk(), paths[1])
    late.belong_to(1, "c", SystemRandom())
    late.before_first_claim = lambda: refuse_absent(OsDisk(), paths)
    late.go_offline("broken")
    with pytest.raises(DirectoryRefused, match=r"b \(directory\.id=.* is missing or empty; mount it"):
        late.come_online()
    (tmp_path / "b").rmdir()
    (tmp_path / "unmounted").rename(tmp_path / "b")
    late.come_online()
    assert late.is_online and late.is_claimed
