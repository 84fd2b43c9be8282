"""The rules by which commits and outputs are judged, on commits made by hand."""

from __future__ import annotations

from ottla.client import TopicPartition
from ottla.spark.commit_history import CommittedRange, CommittedTransaction, GroupCommit
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.output_digest import OutputDigest
from ottla.spark.proof import UNKNOWN_START, InputRange, find_older_producers, judge
from ottla.spark.sink_contents import SinkPartition

from .relay_by_hand import batch_of

A, B = TopicPartition("in", 0), TopicPartition("in", 1)
SINK = TopicPartition("out", 0)


def output(rows: int) -> OutputDigest:
    digest = OutputDigest()
    if rows:
        digest.add(SINK, batch_of(*(b"row" for _ in range(rows))))
    return digest


def commit(batch: int, ranges: dict[TopicPartition, tuple[int, int]], *, rows: int = 2, epoch: int | None = None) -> GroupCommit:
    found = {
        partition: CommittedRange(end, CommitMetadata("q", batch, start, rows, output(rows).text()))
        for partition, (start, end) in ranges.items()
    }
    return GroupCommit(CommittedTransaction(7, batch if epoch is None else epoch), batch, 0, found)


def outputs(*epochs: int, rows: int = 2) -> dict[CommittedTransaction, OutputDigest]:
    return {CommittedTransaction(7, epoch): output(rows) for epoch in epochs}


def test_a_history_without_its_oldest_commits_is_judged_from_the_first_that_is_left() -> None:
    found = judge([commit(5, {A: (50, 60)}), commit(6, {A: (60, 70)})], outputs(3, 4, 5, 6))
    assert not found.faults
    assert found.ranges[A] == InputRange(50, 70, 2)
    assert found.notes == ["not judged: transactions in the sink that are older than the first commit that is left (2)"]


def test_the_last_commit_of_a_partition_that_is_read_no_more_outlasts_those_behind_it() -> None:
    """Compaction keeps the last commit of a partition that is no longer read, but not the commits after it, because the other partitions
    have newer commits.
    """
    left = [commit(5, {B: (0, 9)}), commit(6000, {A: (50, 60)}, epoch=3), commit(6001, {A: (60, 70)}, epoch=4)]
    found = judge(left, outputs(3, 4, 5, 7, 9), producer_ids={7})
    assert [(fault.kind, fault.transaction) for fault in found.faults] == [
        ("uncommitted", CommittedTransaction(7, 7)), ("uncommitted", CommittedTransaction(7, 9))
    ]  # fmt: skip
    older = [commit(5, {B: (0, 9)})._replace(transaction=CommittedTransaction(6, 30_000)), *left[1:]]
    of_older = {CommittedTransaction(6, 30_000): output(2), CommittedTransaction(6, 30_001): output(2)}
    found = judge(older, {**outputs(3, 4), **of_older}, older_producers={6})
    assert not found.faults and found.batches == 2
    (note,) = found.notes
    assert note == "not judged: 1 commits of partitions that later batches do not read; compaction has removed the commits after them"
    joined = [commit(5, {A: (40, 50), B: (0, 9)}), *left[1:]]
    assert [fault.kind for fault in judge(joined, outputs(3, 4, 5)).faults] == ["skipped"]
    replaced = [commit(0, {B: (0, 9)}), commit(1, {B: (9, 10)}), commit(2, {A: (0, 5)})]
    assert judge(replaced, outputs(0, 2)).faults[0].kind == "missing", "another topic without a gap in the batches"


def test_producers_that_are_older_than_the_first_commit_that_is_left() -> None:
    def contents(*found: tuple[int, int]) -> SinkPartition:
        spans = {CommittedTransaction(producer, epoch): (10 * epoch, 10 * epoch + 5) for producer, epoch in found}
        return SinkPartition(0, 100, False, {}, spans)

    partitions = {SINK: contents((1, 0), (2, 1), (7, 5), (3, 6)), TopicPartition("out", 1): contents((2, 6), (7, 5))}
    partitions[TopicPartition("out", 2)] = contents((4, 0))
    commits = [commit(5, {A: (50, 60)})]
    assert find_older_producers(commits, partitions) == {1}
    assert find_older_producers([commit(0, {A: (0, 60)}, epoch=5)], partitions) == set(), "there were no commits before"
    assert find_older_producers([], partitions) == set()


def test_each_partition_is_a_chain_of_its_own() -> None:
    found = judge([commit(0, {A: (0, 5), B: (0, 9)}), commit(1, {A: (5, 5), B: (8, 12)})], outputs(0, 1))
    assert [(fault.kind, fault.message.split(":")[0]) for fault in found.faults] == [("overlap", "in-1")]


def test_a_partition_that_is_new_may_begin_anywhere() -> None:
    found = judge([commit(0, {A: (0, 5)}), commit(1, {A: (5, 6), B: (3, 4)})], outputs(0, 1))
    assert not found.faults and found.ranges[B] == InputRange(3, 4, 1)


def test_a_topic_that_was_created_anew_begins_a_new_chain() -> None:
    commits = [commit(0, {A: (0, 50)}), commit(1, {A: (UNKNOWN_START, 3)}), commit(2, {A: (3, 9)})]
    for one, topic_id in zip(commits, ("x", "z", "z"), strict=True):
        end, metadata = one.ranges[A]
        assert metadata is not None
        one.ranges[A] = CommittedRange(end, metadata._replace(topic_id=topic_id))
    found = judge(commits, outputs(0, 1, 2))
    assert not found.faults and found.ranges[A] == InputRange(0, 9, 2, "z")
    assert found.notes == ["in-0: the topic was deleted and created again after offset 50; only the new topic is judged (id z)"]
    assert [fault.kind for fault in judge([commits[0], commits[2]], outputs(0, 2)).faults] == ["skipped"]


def test_the_topics_of_one_commit_have_ids_of_their_own() -> None:
    both = commit(0, {A: (0, 5), TopicPartition("other", 0): (0, 2)})
    for partition, (end, metadata) in both.ranges.items():
        assert metadata is not None
        both.ranges[partition] = CommittedRange(end, metadata._replace(topic_id=partition.topic))
    assert not judge([both], outputs(0)).faults


def test_a_batch_that_goes_backwards() -> None:
    assert [fault.kind for fault in judge([commit(0, {A: (9, 4)})], outputs(0)).faults] == ["backwards"]


def test_a_commit_whose_partitions_name_different_batches() -> None:
    mixed = commit(0, {A: (0, 5)})
    mixed.ranges[B] = commit(1, {B: (0, 5)}).ranges[B]
    assert [fault.kind for fault in judge([mixed], outputs(0)).faults] == ["mixed"]


def test_deleted_offsets_are_noted_and_the_chain_goes_on() -> None:
    deleted = GroupCommit(None, 1, 0, {A: CommittedRange(None, None)})
    found = judge([commit(0, {A: (0, 5)}), deleted, commit(1, {A: (5, 6)})], outputs(0, 1))
    assert not found.faults and len(found.notes) == 1
    assert [fault.kind for fault in judge([commit(0, {A: (0, 5)}), deleted, commit(1, {A: (4, 6)})], outputs(0, 1)).faults] == ["overlap"]


def test_a_compacted_sink_cannot_show_that_rows_are_missing_but_that_there_are_too_many() -> None:
    commits = [commit(0, {A: (0, 5)}), commit(1, {A: (5, 6)}), commit(2, {A: (6, 7)})]
    found = judge(commits, {**outputs(0, 2), **outputs(1, rows=1)}, is_sink_compacted=True)
    assert not found.faults
    found = judge(commits, {**outputs(0, 2), **outputs(1, rows=3)}, is_sink_compacted=True)
    assert [fault.kind for fault in found.faults] == ["surplus"]
    assert [fault.kind for fault in judge(commits, {}, is_sink_compacted=True).faults] == ["removed"], "a later row replaces each"
    assert not judge([commit(0, {A: (0, 5)}, rows=0)], {}, is_sink_compacted=True).faults


def test_output_of_an_epoch_without_a_commit_behind_the_first() -> None:
    found = judge([commit(0, {A: (0, 5)}), commit(2, {A: (5, 6)})], outputs(0, 1, 2))
    assert [(fault.kind, fault.transaction) for fault in found.faults] == [("skipped", None), ("uncommitted", CommittedTransaction(7, 1))]


def test_output_of_the_producer_before_any_commit() -> None:
    found = judge([], outputs(0), producer_ids={7})
    assert [fault.kind for fault in found.faults] == ["uncommitted"]
    assert not judge([], outputs(0)).faults
