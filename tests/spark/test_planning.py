"""Plans of batches: where they start and end, how many offsets they admit, how they are split over tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client import TopicPartition
from ottla.spark.errors import DataLossError, OptionError
from ottla.spark.options import ReadPosition
from ottla.spark.planning import (
    LogBounds,
    Range,
    admit,
    available,
    check_partitions,
    check_progress,
    ending_offsets,
    initial_offsets,
    join,
    plan_ranges,
    split,
    starting_offsets,
    wanted_tasks,
    wanted_timestamps,
)

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
BOUNDS = {A: LogBounds(10, 100), B: LogBounds(0, 50)}
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("tuv"), st.integers(0, 5)), st.tuples(st.integers(0, 9), st.integers(0, 1000)), min_size=1
)


def starting(kind: str, **given: object) -> dict[TopicPartition, int]:
    found = given.pop("found", {})
    is_latest = bool(given.pop("is_latest", False))
    return starting_offsets(ReadPosition(kind=kind, option="o", **given), BOUNDS, found, is_latest_after_last=is_latest)  # type: ignore[arg-type]


def ending(kind: str, **given: object) -> dict[TopicPartition, int]:
    found = given.pop("found", {})
    return ending_offsets(ReadPosition(kind=kind, option="o", **given), BOUNDS, found)  # type: ignore[arg-type]


def test_where_a_query_starts() -> None:
    assert starting("earliest") == {A: 10, B: 0}
    assert starting("latest") == {A: 100, B: 50}
    assert starting("offsets", numbers={A: 20, B: -1}) == {A: 20, B: 50}
    assert starting("offsets", numbers={A: -2, B: 7}) == {A: 10, B: 7}
    assert starting("timestamp", timestamp=5, found={A: 30, B: 40}) == {A: 30, B: 40}
    assert starting("timestamps", found={A: 30, B: -1}, is_latest=True) == {A: 30, B: 50}
    assert starting("timestamps", found={A: 100, B: 70}, is_latest=True) == {A: 100, B: 50}, "written after the snapshot"


def test_where_a_read_ends() -> None:
    assert ending("latest") == {A: 100, B: 50}
    assert ending("offsets", numbers={A: 20, B: -1}) == {A: 20, B: 50}
    assert ending("timestamp", found={A: 30, B: -1}) == {A: 30, B: 50}
    assert ending("timestamp", found={A: 300, B: 40}) == {A: 100, B: 40}


def test_positions_that_make_no_sense() -> None:
    with pytest.raises(OptionError, match=r"o: t-1 is missing; all partitions"):
        starting("offsets", numbers={A: 1})
    with pytest.raises(OptionError, match=r"o: u-0 is not read by this query"):
        starting("offsets", numbers={A: 1, B: 1, C: 1})
    with pytest.raises(OptionError, match=r"o: t-0, t-1 has no readable record at or after the timestamp"):
        starting("timestamp", timestamp=5, found={A: -1, B: -1})
    with pytest.raises(OptionError, match=r"o: 101 is beyond the end of t-0, 100"):
        starting("offsets", numbers={A: 101, B: 1})
    with pytest.raises(OptionError, match="earliest makes no sense as an end"):
        ending("earliest")
    with pytest.raises(OptionError, match="-2"):
        ending("offsets", numbers={A: -2, B: 1})
    with pytest.raises(OptionError, match=r"o: 101 is beyond the end of t-0, 100"):
        ending("offsets", numbers={A: 101, B: 1})


def test_timestamps_to_look_up() -> None:
    assert wanted_timestamps(ReadPosition(kind="timestamp", option="o", timestamp=9), [A, B]) == {A: 9, B: 9}
    assert wanted_timestamps(ReadPosition(kind="timestamps", option="o", numbers={A: 1, B: 2}), [A, B]) == {A: 1, B: 2}
    assert wanted_timestamps(ReadPosition(kind="earliest", option="o"), [A]) == {}


def test_committed_offsets_come_before_starting_ones() -> None:
    assert initial_offsets({}, {A: 1, B: 2}, BOUNDS) == {A: 1, B: 2}
    assert initial_offsets({A: 70, B: 5}, {A: 1, B: 2}, BOUNDS) == {A: 70, B: 5}
    assert initial_offsets({A: 70}, {A: 1, B: 2}, BOUNDS) == {A: 70, B: 0}, "a partition without a commit is new, and read whole"
    assert initial_offsets({C: 3}, {A: 1, B: 2}, BOUNDS) == {A: 1, B: 2}


def test_partitions_that_are_gone_or_go_backwards() -> None:
    check_partitions([A, B], [A, B, C], is_loss_fatal=True)
    check_partitions([A, B], [A], is_loss_fatal=False)
    with pytest.raises(DataLossError, match=r"t-1 was being read, and is deleted or no longer subscribed.*failOnDataLoss=false"):
        check_partitions([A, B], [A], is_loss_fatal=True)
    assert check_progress({A: 5}, {A: 5, B: 0}) is None
    assert check_progress({A: 5, B: 1}, {A: 5, B: 0}) == B


def test_a_batch_is_shared_in_proportion() -> None:
    assert admit({A: 0, B: 0}, {A: 900, B: 100}, 100) == {A: 90, B: 10}
    assert admit({A: 0, B: 0}, {A: 60, B: 40}, 100) == {A: 60, B: 40}
    assert admit({A: 0, B: 0, C: 5}, {A: 1000, B: 1, C: 5}, 10) == {A: 9, B: 1, C: 5}
    assert admit({A: 0, B: 0}, {A: 1000, B: 1000}, 1) == {A: 1, B: 0}


@given(OFFSETS, st.integers(1, 5000))
def test_admission_uses_the_limit_and_never_more(offsets: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    starts = {partition: start for partition, (start, _) in offsets.items()}
    ends = {partition: start + size for partition, (start, size) in offsets.items()}
    admitted = admit(starts, ends, limit)
    assert available(starts, admitted) == min(limit, available(starts, ends))
    assert all(starts[partition] <= admitted[partition] <= ends[partition] for partition in ends)
    assert set(admitted) == set(ends)


@given(OFFSETS, st.integers(1, 200))
def test_admitted_batches_reach_the_end(offsets: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    starts = {partition: start for partition, (start, _) in offsets.items()}
    ends = {partition: start + size for partition, (start, size) in offsets.items()}
    for _ in range(-(-available(starts, ends) // limit)):
        assert starts != ends
        starts = admit(starts, ends, limit)
    assert starts == ends


def test_ranges_are_of_what_has_something() -> None:
    assert plan_ranges({A: 1, B: 5, C: 0}, {A: 3, B: 5}) == [Range(A, 1, 3)]
    assert split(plan_ranges({A: 0}, {A: 2}, {A.topic: "id", "other": "x"}), max_records=1) == [Range(A, 0, 1, "id"), Range(A, 1, 2, "id")]


@given(OFFSETS, st.integers(0, 60))
def test_joining_keeps_the_order_and_respects_the_limit(offsets: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    ranges = [Range(partition, start, start + size) for partition, (start, size) in sorted(offsets.items())]
    groups = join(ranges, most)
    assert [one for group in groups for one in group] == ranges
    sizes = [sum(one.end - one.start for one in group) for group in groups]
    assert all(size <= most or len(group) == 1 for size, group in zip(sizes, groups, strict=True))
    assert all(size + group[0].end - group[0].start > most for size, group in zip(sizes, groups[1:], strict=False))


@given(OFFSETS, st.integers(0, 30), st.integers(0, 50))
def test_splitting_covers_each_offset_once(offsets: dict[TopicPartition, tuple[int, int]], min_partitions: int, max_records: int) -> None:
    ranges = plan_ranges(
        {partition: start for partition, (start, _) in offsets.items()},
        {partition: start + size for partition, (start, size) in offsets.items()},
    )
    pieces = split(ranges, min_partitions=min_partitions, max_records=max_records)
    joined: list[Range] = []
    for piece in pieces:
        assert piece.start < piece.end
        if joined and joined[-1].partition == piece.partition and joined[-1].end == piece.start:
            joined[-1] = Range(piece.partition, joined[-1].start, piece.end)
        else:
            joined.append(piece)
    assert joined == ranges
    assert len(pieces) >= min(min_partitions, sum(one.end - one.start for one in ranges))
    if max_records:
        assert all(one.end - one.start <= max_records for one in pieces)


def test_pieces_are_nearly_equal() -> None:
    assert split([Range(A, 0, 90), Range(B, 0, 10)], min_partitions=4) == [
        Range(A, 0, 22), Range(A, 22, 45), Range(A, 45, 67), Range(A, 67, 90), Range(B, 0, 10),
    ]  # fmt: skip
    assert split([Range(A, 0, 10)]) == [Range(A, 0, 10)]
    assert split([], min_partitions=3) == []


def test_a_large_read_is_shared_out_among_the_processors() -> None:
    """A large read with 1 KiB for each offset is divided into tasks of 4 to 16 MiB, whose number is a multiple of the processors."""
    assert [wanted_tasks([Range(A, 0, size * 1024)], 1024, 2) for size in (0, 4, 7, 8, 16, 33, 100)] == [0, 0, 0, 2, 2, 4, 8]
    assert [wanted_tasks([Range(A, 0, 100 * 1024)], 1024, processors) for processors in (1, 3, 16, 64)] == [7, 9, 16, 25]


def test_what_is_divided_already_is_left_alone() -> None:
    even = [Range(TopicPartition("t", number), 0, 8 * 1024 + number) for number in range(8)]
    assert wanted_tasks(even, 1024, 2) == 0
    assert wanted_tasks([*even[1:], Range(A, 0, 40 * 1024)], 1024, 2) == 8, "one range is nearly as large as all the others together"
    assert wanted_tasks([], 1024, 2) == 0
