"""Damaged segments are replaced by the batches of another replica, byte for byte, and never by anything else (P11, I3, I43)."""

from __future__ import annotations

import pytest

from ottla.base.errors import DamagedLogError
from ottla.base.types import NO_OFFSET
from ottla.storage import segment_repair
from ottla.storage.log import Log
from ottla.storage.segment import Segment
from ottla.storage.segment_repair import RefusedBatch, Replacement
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import LogBuilder, batch_of, marker_of, names, read_all

SETTINGS = {"segment_bytes": 2_000, "index_interval_bytes": 100}


def two_replicas(*, is_transactional: bool = False, **changes: object) -> tuple[LogBuilder, LogBuilder]:
    """Returns a leader and a follower with the same log of several segments."""
    leader, follower = (LogBuilder(log_settings(**SETTINGS, **changes)) for _ in range(2))
    for number in range(60):
        if is_transactional and number % 10 < 9:
            leader.append(batch_of(producer_id=7, producer_epoch=0, base_sequence=number - number // 10, is_transactional=True))
        elif is_transactional:
            leader.append(marker_of(is_commit=number % 20 == 9, producer_id=7))
        else:
            leader.append(batch_of(key=b"%d" % (number % 7), timestamp=number), leader_epoch=number // 25)
    for _, batch in read_all(leader.log):
        follower.log.append_as_follower(memoryview(bytearray(batch)))
    follower.log.flush()
    assert len(follower.log.segments) > 2
    return leader, follower


def disk_of(built: LogBuilder) -> MemDisk:
    assert isinstance(built.disk, MemDisk)
    return built.disk


def repair(follower: Log, segment: Segment, leader: Log, *, bytes_max: int = 500) -> list[str] | None:
    """Repairs a segment as a follower does, from a leader that sends `bytes_max` at a time."""
    plan, old = segment_repair.plan(follower, segment, now_ms=5_000)
    made = Replacement(follower.disk, plan)
    while not made.is_complete:
        found = leader.read(made.next_offset, bytes_max, end_offset=leader.log_end_offset)
        assert found is not None
        made.add(found.read())
    return segment_repair.install(follower, plan, old, made.finish())


def rot(built: LogBuilder, offset: int) -> Segment:
    """Flips a bit in the records at an offset. Returns the segment."""
    (segment,) = [each for each in built.log.segments if each.base_offset <= offset and (offset < each.end_offset or not each.is_sealed)]
    disk_of(built).flip_bits(segment.path(".log"), segment.position_of(offset) + 64)
    return segment


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_segment_is_replaced_by_the_same_bytes_with_its_indexes_and_aborted_transactions(is_transactional: bool) -> None:
    leader, follower = two_replicas(is_transactional=is_transactional)
    whole, files = read_all(leader.log), names(follower.disk)
    segment = rot(follower, follower.log.segments[1].base_offset + 3)
    before = {path: disk_of(follower).open(path).size() for path in segment.files()}
    assert read_all(follower.log) != whole
    retired = repair(follower.log, segment, leader.log)
    assert retired is not None and len(retired) == len(before)
    for path in retired:
        follower.disk.remove(path)
    assert read_all(follower.log) == whole and names(follower.disk) == files
    assert {path: disk_of(follower).open(path).size() for path in before} == before
    ends = 0, leader.log.log_end_offset
    assert follower.log.aborted_transactions(*ends) == leader.log.aborted_transactions(*ends)
    assert bool(leader.log.aborted_transactions(*ends)) is is_transactional
    follower.append(batch_of())
    follower.reopen()
    assert read_all(follower.log)[:-1] == whole
    assert follower.log.aborted_transactions(*ends) == leader.log.aborted_transactions(*ends)


def test_a_file_that_is_missing_is_made_again_at_its_place() -> None:
    leader, follower = two_replicas()
    segment = follower.log.segments[1]
    for path in segment.files():
        follower.disk.remove(path)
    segment.release_file()
    with pytest.raises(DamagedLogError):
        follower.log.read(segment.base_offset, 100, end_offset=60)
    repair(follower.log, segment, leader.log)
    assert read_all(follower.log) == read_all(leader.log)


def test_a_hole_that_a_start_found_between_segments_is_filled() -> None:
    """The start accepts the segments that it finds. A reader at the hole gets an error, and not the records behind it (P11)."""
    leader, follower = two_replicas()
    first, gone, third = follower.log.segments[:3]
    follower.log.close(clean=True)
    for path in gone.files():
        follower.disk.remove(path)
    follower.recovery_point = follower.log.recovery_point
    follower.open(was_clean=True)
    segment = follower.log.segments[0]
    assert (segment.base_offset, segment.end_offset) == (first.base_offset, third.base_offset)
    with pytest.raises(DamagedLogError, match=f"ends before offset {gone.base_offset}"):
        follower.log.read(gone.base_offset, 1000, end_offset=60)
    repair(follower.log, segment, leader.log)
    assert read_all(follower.log) == read_all(leader.log)


def test_damage_in_the_active_segment_is_replaced_once_it_is_sealed() -> None:
    leader, follower = two_replicas()
    segment = rot(follower, 59)
    assert segment is follower.log.active
    follower.log.roll()
    assert segment.end_offset == 60
    repair(follower.log, segment, leader.log)
    assert read_all(follower.log) == read_all(leader.log)
    assert follower.append(batch_of(), leader_epoch=2) == 60


@pytest.mark.parametrize("crash_at", ["rename", "sync_directory"])
def test_a_crash_leaves_the_old_segment_or_the_new_one(crash_at: str) -> None:
    """The broker crashes at each rename, or at each sync of the directory."""
    leader, follower = two_replicas()
    whole = read_all(leader.log)
    segment = rot(follower, follower.log.segments[1].base_offset + 3)
    damaged = read_all(follower.log)
    follower.checkpoint()
    images: list[MemDisk] = []

    def changed(operation: str, _path: str) -> None:
        if operation == crash_at:
            images.append(disk_of(follower).image())

    disk_of(follower).on_change = changed
    repair(follower.log, segment, leader.log)
    disk_of(follower).on_change = None
    found = [
        read_all(LogBuilder(log_settings(**SETTINGS), image, recovery_point=follower.recovery_point).log)
        for image in images
    ]  # fmt: skip
    assert len(found) > 2 and found[0] == damaged and found[-1] in (damaged, whole)
    assert all(each in (damaged, whole) for each in found)


def test_a_compacted_log_is_fetched_from_its_beginning_and_may_have_gaps() -> None:
    """A tombstone that the leader has compacted away must not leave the old value of its key here."""
    leader, follower = two_replicas(is_compacted=True)
    segment = rot(follower, follower.log.segments[1].base_offset + 3)
    kept = [batch for header, batch in read_all(leader.log) if header.base_offset % 5 == 0 and header.base_offset < segment.end_offset]
    plan, old = segment_repair.plan(follower.log, segment, now_ms=5_000)
    assert (plan.base_offset, plan.end_offset) == (0, segment.end_offset) and len(old) == 2
    made = Replacement(follower.disk, plan)
    made.add(b"".join(kept))
    assert not made.is_complete  # what follows may be in the range, or not
    (further,) = [batch for header, batch in read_all(leader.log) if header.base_offset == segment.end_offset + 1]
    made.add(further)
    assert made.is_complete
    segment_repair.install(follower.log, plan, old, made.finish())
    found = [header.base_offset for header, _ in read_all(follower.log)]
    assert found == [*range(0, segment.end_offset, 5), *range(segment.end_offset, 60)]


def batches_of(built: LogBuilder, start: int, end: int) -> list[bytearray]:
    return [bytearray(batch) for header, batch in read_all(built.log) if start <= header.base_offset < end]


def test_nothing_but_the_same_history_replaces_a_segment() -> None:
    leader, follower = two_replicas()
    segment = rot(follower, follower.log.segments[1].base_offset + 3)
    plan, _ = segment_repair.plan(follower.log, segment, now_ms=5_000)
    good = batches_of(leader, segment.base_offset, segment.end_offset)
    flipped, other_epoch = bytearray(good[0]), bytearray(good[0])
    flipped[70] ^= 1
    other_epoch[15] ^= 1  # the leader epoch, which no CRC covers
    too_far = batches_of(leader, segment.end_offset - 1, segment.end_offset + 1)
    for bad in ([flipped], [other_epoch], [good[0], good[2]], [good[1]], [b"x" * 100], [good[0][:50]], []):
        made = Replacement(follower.disk, plan)
        with pytest.raises(RefusedBatch):
            made.add(b"".join(bad))
        assert not made.is_complete
        made.discard()
    made = Replacement(follower.disk, plan)
    made.add(b"".join(good[:-1] + too_far))
    assert made.is_complete  # batches behind the range are not used
    assert sum(made.finish()) == segment.base_offset
    made.discard()
    assert not [name for name in names(follower.disk) if "cleaned" in name]


def test_a_log_that_has_changed_meanwhile_keeps_what_it_has() -> None:
    leader, follower = two_replicas()
    segment = rot(follower, follower.log.segments[1].base_offset + 3)
    plan, old = segment_repair.plan(follower.log, segment, now_ms=5_000)
    made = Replacement(follower.disk, plan)
    made.add(b"".join(batches_of(leader, segment.base_offset, segment.end_offset)))
    bases = made.finish()
    follower.log.truncate_to(segment.end_offset - 1)
    assert segment.end_offset == NO_OFFSET
    assert segment_repair.install(follower.log, plan, old, bases) is None
    made.discard()
    assert follower.log.log_end_offset == plan.end_offset - 1


def test_only_what_the_log_still_has_to_serve_is_fetched() -> None:
    """The leader has deleted the records below the log's start."""
    leader, follower = two_replicas()
    segment = rot(follower, follower.log.segments[1].base_offset + 3)
    start = segment.base_offset + 5
    follower.log.advance_log_start(start)
    plan, old = segment_repair.plan(follower.log, segment, now_ms=5_000)
    assert plan.fetch_from == start
    made = Replacement(follower.disk, plan)
    made.add(b"".join(batches_of(leader, start, segment.end_offset)))
    segment_repair.install(follower.log, plan, old, made.finish())
    assert [header.base_offset for header, _ in read_all(follower.log)] == list(range(start, 60))
