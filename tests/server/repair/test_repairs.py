"""Repairs: which replica repairs damage from which, and how often a leader reports itself as failed. Also the rounds and the rate of the
scrub."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from struct import Struct
from typing import Any, cast

import pytest

from ottla.base.cluster_metadata import BrokerMetadata, ClusterMetadata
from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cluster.metadata_cache import MetadataCache
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.partition_table import PartitionTable
from ottla.server.repair.repairs import HANDOVER_MS, Repairs
from ottla.server.repair.scrub_schedule import FIRST_ROUND_MS_MAX, ScrubSchedule
from ottla.server.repair.segment_checks import SegmentChecks
from ottla.storage.segment import TIME_INDEX_SUFFIX, Segment
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.fakes import SeededRandom
from tests.fakes.log_settings import log_settings
from tests.fakes.world import World
from tests.replication.records import append, batch, refusal
from tests.server.test_partition_table import FIRST, make_partition

OWN = 0
COUNT = 60


class Relief:
    """Records the calls to `ReplicaChanges`."""

    def __init__(self) -> None:
        self.offline: list[TopicPartition] = []
        self.online: list[TopicPartition] = []

    def mark_offline(self, replicas: list[TopicPartition]) -> None:
        self.offline += replicas

    def works_again(self, key: TopicPartition) -> None:
        self.online.append(key)


class RepairsWorld(World):
    """One broker with a log of some segments, and the parts that find and repair damage."""

    def __init__(self) -> None:
        self.relief, self.metadata = Relief(), MetadataCache()
        self.retired: list[str] = []
        directory = LogDirectoryState(self.disk, "/data")
        directory.claim(OWN, "cluster", SeededRandom())
        self.table = PartitionTable(
            self.disk, self.clock, [directory], make_partition, metadata=ClusterMetadata(), producers_max=lambda: 1000
        )
        self.checks = SegmentChecks(self.disk, self.timers, self.threads)
        self.repairs = Repairs(
            broker_id=OWN, clock=self.clock, timers=self.timers, disk=self.disk, threads=self.threads, peers=self.peers,
            metadata=self.metadata, partitions=self.table, replicas=cast(Any, self.relief), checks=self.checks,
            remove_later=lambda paths, _delay_ms: self.retired.extend(paths), is_compacting=lambda _partition: False,
        )  # fmt: skip
        self.settings = log_settings(segment_bytes=1_500, index_interval_bytes=100)
        self.table.on_doubt = self.repairs.doubt
        self.partition = self.table.open(TopicPartition("t", 0), FIRST, self.settings, is_new=True)

    def lead(self, *isr: int) -> None:
        replicas = sorted({OWN, *isr})
        self.metadata.brokers = {each: BrokerMetadata(broker_id=each, endpoints={}) for each in replicas}
        self.partition.become_leader(leader_epoch=0, partition_epoch=len(isr), replicas=replicas, isr=isr, now_ms=0)
        if not self.partition.log.log_end_offset:
            for number in range(COUNT):
                append(self.partition, batch(str(number)))

    def rot(self, number: int) -> tuple[Segment, bytes]:
        """Flips a bit in the middle of a segment. Returns the segment and its former content."""
        segment = self.partition.log.segments[number]
        content = segment.file().pread(segment.size, 0)
        self.disk.flip_bits(segment.path(".log"), segment.size // 2)
        return segment, content

    def open_again(self) -> None:
        """Opens the log as a start of the broker does. Its only replica leads again."""
        self.partition.log.close(clean=True)
        self.table.drop([self.partition])
        self.partition = self.table.open(TopicPartition("t", 0), FIRST, self.settings)

    def answer(self, content: bytes = b"", code: ErrorCode = ErrorCode.NONE) -> int:
        """Answers the only request to another broker. Returns the id of that broker."""
        (asked,) = self.peers.asked
        self.peers.asked = []
        found = PartitionData(partition_index=0, error_code=code, high_watermark=COUNT, records=content, aborted_transactions=None)
        asked.done(FetchResponse(responses=[FetchableTopicResponse(topic_id=FIRST, partitions=[found])]), 0)
        self.settle()
        return asked.broker_id


@pytest.fixture
def world() -> Iterator[RepairsWorld]:
    made = RepairsWorld()
    yield made
    made.repairs.stop()


def test_a_leader_is_relieved_once_and_then_fetches_from_the_new_leader(world: RepairsWorld) -> None:
    world.lead(0, 1, 2)
    segment, content = world.rot(1)
    world.partition.doubt(segment.base_offset)
    world.settle()
    assert world.relief.offline == [world.partition.topic_partition] and world.peers.asked == []
    assert refusal(lambda: world.partition.read_beyond(segment.base_offset + 10, 100)) is ErrorCode.KAFKA_STORAGE_ERROR
    world.partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=9, replicas=[0, 1, 2], isr=[1, 2])
    world.timers.advance(200)
    world.settle()
    assert world.answer(content) == 2
    world.timers.advance(200)
    world.settle()
    assert world.partition.state.damage is None and len(world.relief.offline) == 1
    assert (world.repairs.found, world.repairs.repaired, world.repairs.unrepaired) == (1, 1, 0)
    assert world.partition.log.segments[1].file().pread(1 << 20, 0) == content
    assert world.retired


def test_damage_that_was_found_is_known_after_a_restart_before_anyone_reads_it(world: RepairsWorld) -> None:
    world.lead(0, 1, 2)
    segment, content = world.rot(1)
    world.partition.doubt(segment.base_offset)
    world.settle()
    world.open_again()
    world.timers.advance(200)
    world.settle()
    assert world.partition.state.damage is not None and world.repairs.unrepaired == 1
    world.partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=9, replicas=[0, 1, 2], isr=[1, 2])
    world.timers.advance(200)
    world.settle()
    assert world.answer(content) == 2
    world.timers.advance(200)
    world.settle()
    batches = world.checks.batches
    world.open_again()
    world.settle()
    assert world.checks.batches == batches and not world.disk.exists("/data/t-0/damaged-segments")


def test_a_log_that_is_opened_again_during_its_repair_waits_for_the_end_of_that_repair(world: RepairsWorld) -> None:
    """Formerly both repairs wrote the same files, and the end of the first repair removed the segment of the second one."""
    world.lead(0, 1, 2)
    segment, content = world.rot(1)
    world.partition.doubt(segment.base_offset)
    world.settle()
    world.partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=9, replicas=[0, 1, 2], isr=[1, 2])
    world.timers.advance(200)
    world.settle()
    assert len(world.peers.asked) == 1
    world.open_again()
    world.settle()
    world.partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=9, replicas=[0, 1, 2], isr=[1, 2])
    world.timers.advance(1_000)
    world.settle()
    assert len(world.peers.asked) == 1 and world.partition.state.damage is not None, "a second repair at once"
    world.answer(content)
    world.timers.advance(1_000)
    world.settle()
    world.answer(content)
    world.timers.advance(200)
    world.settle()
    assert world.partition.state.damage is None
    assert world.partition.log.segments[1].file().pread(1 << 20, 0) == content


def test_known_damage_is_forgotten_when_the_file_was_restored(world: RepairsWorld) -> None:
    world.lead(0)
    segment, content = world.rot(1)
    world.partition.doubt(segment.base_offset)
    world.settle()
    assert world.disk.exists("/data/t-0/damaged-segments")
    world.disk.write_file(segment.path(".log"), content)
    world.open_again()
    world.settle()
    assert world.partition.state.damage is None and not world.disk.exists("/data/t-0/damaged-segments")


def test_a_list_of_known_damage_that_is_damaged_stops_nothing(world: RepairsWorld) -> None:
    world.disk.write_file("/data/t-0/damaged-segments", b"x")
    world.open_again()
    assert "damaged-segments is damaged" in world.partition.log.recovery_notes[0]


def test_a_leader_that_is_not_relieved_repairs_its_log_from_any_replica_that_has_it(world: RepairsWorld) -> None:
    world.lead(0, 1, 2)
    segment, content = world.rot(1)
    world.partition.doubt(segment.base_offset)
    world.settle()
    world.timers.advance(HANDOVER_MS + 200)
    world.settle()
    bad = bytearray(content)
    bad[100] ^= 1
    assert world.answer(bytes(bad)) == 1
    assert world.repairs.unrepaired == 1, "damaged bytes repair nothing"
    world.timers.advance(1_000)
    world.settle()
    assert world.answer(content) == 2
    world.timers.advance(200)
    assert world.repairs.unrepaired == 0 and len(world.relief.offline) == 1


def test_a_full_disk_during_a_repair_is_not_blamed_on_the_other_replica(world: RepairsWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.lead(0, 1, 2)
    segment, content = world.rot(1)
    world.partition.doubt(segment.base_offset)
    world.settle()
    world.timers.advance(HANDOVER_MS + 200)
    world.settle()
    world.disk.fail_next("write", errno.ENOSPC, path_part=".cleaned")
    world.answer(content)
    (said,) = [record.getMessage() for record in caplog.records if "was not repaired" in record.getMessage()]
    assert "broker 1" not in said and "No space left" in said


def test_a_broker_that_is_alone_says_what_is_lost_until_it_is_deleted(world: RepairsWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.lead(0)
    segment, _ = world.rot(1)
    world.partition.doubt(segment.base_offset)
    world.settle()
    (lost,) = world.partition.state.damage.ranges if world.partition.state.damage is not None else ()
    assert refusal(lambda: world.partition.read(lost.first_offset, 100)) is ErrorCode.CORRUPT_MESSAGE
    world.timers.advance(10_000)
    (line,) = [record.message for record in caplog.records if "no other replica" in record.message]
    assert f"offsets {lost.first_offset} to {lost.end_offset - 1}" in line and f"--before {lost.end_offset}" in line
    world.partition.require_leading().delete_records(lost.end_offset)
    world.timers.advance(1_000)
    assert world.partition.state.damage is None and world.repairs.unrepaired == 0
    assert (world.relief.offline, world.peers.asked) == ([], [])


def test_a_doubt_without_a_cause_changes_nothing(world: RepairsWorld) -> None:
    world.lead(0, 1)
    for offset in (0, COUNT - 1):
        world.partition.doubt(offset)
        world.partition.doubt(offset)
    assert len(world.threads.waiting) == 2, "a segment is checked once at a time"
    world.settle()
    assert world.partition.state.damage is None and world.relief.offline == []
    assert len(world.partition.log.segments) == len({segment.base_offset for segment in world.partition.log.segments})


def test_damage_in_the_active_segment_is_repaired_after_it_was_sealed(world: RepairsWorld) -> None:
    world.lead(0, 1)
    segment, _ = world.rot(-1)
    world.partition.doubt(COUNT - 1)
    world.settle()
    assert segment.is_sealed and world.partition.log.active.base_offset == COUNT
    assert world.repairs.unrepaired == 1 and world.relief.offline


def test_a_check_makes_a_time_index_that_lacks_records_again(world: RepairsWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.lead(0)
    log = world.partition.log
    right, base = log.segments[1].largest_timestamp(), log.segments[1].base_offset
    world.disk.write_file(log.segments[1].path(TIME_INDEX_SUFFIX), Struct(">qi").pack(right - 1, 3))
    world.open_again()
    segment = world.partition.log.segments[1]
    assert segment.largest_timestamp() == right - 1
    world.partition.doubt(base)
    world.settle()
    assert segment.largest_timestamp() == right and world.repairs.found == 0
    assert f"t-0: the time index of segment {base} lacks records; made it again" in caplog.text
    caplog.clear()
    world.partition.doubt(base)
    world.settle()
    assert not caplog.text


# The scrub


def test_the_scrub_reads_all_segments_at_its_rate(world: RepairsWorld) -> None:
    world.lead(0)
    config = BrokerConfig()
    config.set_dynamic({"ottla.scrub.io.max.bytes.per.second": str(1 << 16)}, {})
    taken: list[Segment] = []
    scrub = ScrubSchedule(
        config=config, clock=world.clock, timers=world.timers, random=SeededRandom(), partitions=world.table, checks=world.checks,
        take=lambda _partition, segment, _check: taken.append(segment),
    )  # fmt: skip
    scrub.start()
    world.timers.advance(FIRST_ROUND_MS_MAX - 1)
    world.settle()
    assert taken == []
    began_ms = world.clock.monotonic_ms()
    while not scrub.rounds:
        world.timers.advance(1)
        world.settle()
    segments = world.partition.log.segments
    assert taken == segments and segments[-1].size
    took_ms = world.clock.monotonic_ms() - began_ms
    assert took_ms >= sum(segment.size for segment in segments[:-1]) * 1000 // (1 << 16)
    config.set_dynamic({"ottla.scrub.interval.ms": "0"}, {})
    world.timers.advance(1 << 31)
    world.settle()
    assert scrub.rounds == 1
    scrub.stop()


def test_the_check_of_an_active_segment_that_is_truncated_has_no_result(world: RepairsWorld) -> None:
    """Formerly the missing end was taken for damage, so the segment was sealed and checked again."""
    world.lead(0)
    log, found = world.partition.log, list[Any]()
    world.checks.run(world.partition, log.active, found.append)
    log.truncate_to(log.active.base_offset + 1)
    world.settle()
    assert found == [None]
