"""Reads of damaged offsets are refused, and all other records are served. A follower that gets a damaged batch reports it, and the leader
checks its segment (P11)."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.replication.damage import Damage
from ottla.replication.fetcher import Fetcher
from ottla.replication.follower_sessions import FollowerSession
from ottla.replication.partition import Partition
from ottla.storage.segment_check import DamagedRange
from ottla.wire.batch_header import iter_batches
from ottla.wire.messages.fetch import FetchPartition
from tests.fakes.log_settings import log_settings
from tests.replication.records import OpenLog, append, batch, refusal
from tests.replication.test_fetcher import answer, data, fetch_of, fetcher, follower, named, opened, records

__all__ = ["fetcher"]

COUNT = 60


@pytest.fixture
def leader(open_log: OpenLog) -> Partition:
    """Returns a leader with batches of one record in some segments."""
    made = Partition(open_log(log_settings(segment_bytes=1_500, index_interval_bytes=100)), broker_id=1)
    made.become_leader(leader_epoch=4, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    for number in range(COUNT):
        append(made, batch(str(number)))
    assert len(made.log.segments) > 2
    return made


def damage(partition: Partition, first: int, end: int, *, is_final: bool = False) -> None:
    """Marks offsets of one segment as damaged."""
    (segment,) = [each for each in partition.log.segments if each.base_offset <= first and (first < each.end_offset or not each.is_sealed)]
    found = DamagedRange(
        base_offset=segment.base_offset, first_offset=first, end_offset=end, position=segment.position_of(first),
        end_position=segment.position_of(end), reason="a test",
    )  # fmt: skip
    partition.state.damage = Damage([found], is_final=is_final)


def offsets(partition: Partition, offset: int, bytes_max: int = 1 << 20) -> list[int]:
    """Returns the base offsets of the complete batches in one read."""
    found = partition.read(offset, bytes_max).slice
    return [] if found is None else [header.base_offset for _, header in iter_batches(found.read())]


def test_a_read_ends_where_the_damage_begins_and_one_within_it_is_refused(leader: Partition) -> None:
    damage(leader, 5, 7)
    assert offsets(leader, 0) == [0, 1, 2, 3, 4]
    assert offsets(leader, 4, bytes_max=1) == [4]
    for offset in (5, 6):
        assert refusal(lambda offset=offset: leader.read(offset, 1000)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal(lambda offset=offset: leader.read_beyond(offset, 1000)) is ErrorCode.KAFKA_STORAGE_ERROR
    end = leader.log.segments[0].end_offset
    assert offsets(leader, 7) == list(range(7, end))
    assert offsets(leader, end)[0] == end
    assert leader.is_online and leader.is_leading


def test_damage_that_no_replica_can_repair_is_shown_to_clients(leader: Partition) -> None:
    damage(leader, 5, 7, is_final=True)
    assert refusal(lambda: leader.read(5, 1000)) is ErrorCode.CORRUPT_MESSAGE


def test_damage_at_the_beginning_of_a_segment_hides_nothing_of_the_one_before(leader: Partition) -> None:
    first, second = leader.log.segments[:2]
    damage(leader, second.base_offset, second.base_offset + 1)
    assert offsets(leader, 0) == list(range(first.end_offset))
    assert refusal(lambda: leader.read(second.base_offset, 1000)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert refusal(lambda: leader.read(COUNT + 1, 1000)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_that_finds_no_batch_raises_a_doubt_and_leaves_the_replica_online(leader: Partition) -> None:
    doubts: list[str] = []
    leader.on_doubt = lambda _partition, path: doubts.append(path)
    segment = leader.log.segments[1]
    for path in segment.files():
        leader.log.disk.remove(path)
    segment.release_file()
    assert refusal(lambda: leader.read(segment.base_offset, 1000)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert doubts == [segment.path(".log")] and leader.is_online
    assert offsets(leader, 0)[0] == 0


def test_a_follower_that_was_sent_a_damaged_batch_says_so_until_it_has_a_whole_one(fetcher: Fetcher) -> None:
    replica = follower(0)
    sent = opened(fetcher, replica)
    sound = records("a", "b")
    flipped = bytearray(sound)
    flipped[-1] ^= 1
    fetcher.on_answer(sent, answer(data(0, batches=bytes(flipped))), 0)
    fetcher.next_request(0)  # removes the partition from the session
    again = fetcher.next_request(2_000)
    (asked,) = [one for topic in fetch_of(again).topics for one in topic.partitions]
    assert (asked.fetch_offset, asked.came_damaged) == (0, True)
    assert again is not None
    fetcher.on_answer(again, answer(data(0, batches=sound)), 2_000)
    following = fetcher.next_request(2_000)
    (asked,) = [one for topic in fetch_of(following).topics for one in topic.partitions]
    assert named(following) == {0: (2, 5)} and not asked.came_damaged


def test_what_a_follower_says_makes_the_leader_look_at_its_own_segment(leader: Partition) -> None:
    doubts: list[str] = []
    leader.on_doubt = lambda _partition, path: doubts.append(path)
    leader.become_leader(leader_epoch=4, partition_epoch=1, replicas=[1, 2], isr=[1], now_ms=0)
    session = FollowerSession(1, replica_id=2, broker_epoch=1)
    segment = leader.log.segments[1]
    for is_damaged in (False, True):
        asked = FetchPartition(
            partition=0, current_leader_epoch=4, fetch_offset=segment.base_offset, last_fetched_epoch=4, partition_max_bytes=100,
            came_damaged=is_damaged,
        )  # fmt: skip
        session.name((bytes(16), 0), asked, leader, ErrorCode.NONE)
        assert doubts == [segment.path(".log")] * is_damaged
