"""A batch's range is read from Spark's offset log, or from the rendezvous file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ottla.client import TopicPartition
from ottla.spark import batch_range
from ottla.spark.batch_range import BatchRange, find_batch_range, find_query_id, leave_range, local_path, mark_used, source_cluster
from ottla.spark.decision import BatchOffsets
from ottla.spark.errors import OffsetConflictError
from ottla.spark.offset_json import write_offsets
from ottla.spark.spool import spool_root

pytestmark = pytest.mark.usefixtures("own_temporary_directory")

A, B = TopicPartition("in", 0), TopicPartition("other", 0)
CONFIG = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'


def _log(checkpoint: Path, batch_id: int, *lines: str) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch_id)).write_text("\n".join(["v1", CONFIG, *lines]))


def _line(offsets: BatchOffsets, group: str = "g") -> str:
    return json.dumps(write_offsets(group, offsets))


def test_start_and_end_stand_in_the_offset_log(tmp_path: Path) -> None:
    _log(tmp_path, 3, _line({A: 5}))
    _log(tmp_path, 4, _line({A: 9}))
    for checkpoint in (str(tmp_path), tmp_path.as_uri(), f"file:{tmp_path}"):
        assert find_batch_range(checkpoint, 4, group="g") == BatchRange({A: 5}, {A: 9})


def test_a_topic_that_was_created_anew_has_no_start(tmp_path: Path) -> None:
    def line(offsets: BatchOffsets, topic_ids: dict[str, str]) -> str:
        return json.dumps(write_offsets("g", offsets, topic_ids))

    _log(tmp_path, 3, line({A: 5, B: 7}, {"in": "x", "other": "y"}))
    _log(tmp_path, 4, line({A: 9, B: 2}, {"in": "x", "other": "z"}))
    assert find_batch_range(str(tmp_path), 4, group="g") == BatchRange({A: 5}, {A: 9, B: 2}, {"in": "x", "other": "z"})
    _log(tmp_path, 5, line({A: 9, B: 2}, {"in": "x", "other": "z"}))
    assert find_batch_range(str(tmp_path), 5, group="g").start == {A: 9, B: 2}


def test_a_partition_that_was_gone_and_is_back_starts_where_it_was(tmp_path: Path) -> None:
    """A partition that exists again starts at its last offset, unless its topic was created again meanwhile."""
    _log(tmp_path, 3, json.dumps(write_offsets("g", {A: 5}, {"in": "x", "other": "y"}, {B: 7})))
    for topic_id, start in ("y", {A: 5, B: 7}), ("z", {A: 5}):
        _log(tmp_path, 4, json.dumps(write_offsets("g", {A: 9, B: 8}, {"in": "x", "other": topic_id})))
        assert find_batch_range(str(tmp_path), 4, group="g") == BatchRange(start, {A: 9, B: 8}, {"in": "x", "other": topic_id})


def test_a_checkpoint_without_topic_ids_is_gone_on_with(tmp_path: Path) -> None:
    _log(tmp_path, 3, _line({A: 5}))
    _log(tmp_path, 4, json.dumps(write_offsets("g", {A: 9}, {"in": "x"})))
    assert find_batch_range(str(tmp_path), 4, group="g") == BatchRange({A: 5}, {A: 9}, {"in": "x"})


def test_topic_ids_go_by_the_rendezvous_file(tmp_path: Path) -> None:
    leave_range("g", {A: 2}, {A: 9}, {"in": "x"})
    assert find_batch_range(None, 5, group="g") == BatchRange({A: 2}, {A: 9}, {"in": "x"})
    mark_used("g", 5)
    assert find_batch_range(None, 6, group="g") == BatchRange({A: 9}, {A: 9}, {"in": "x"})


def test_the_cluster_of_a_source_counts_while_its_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_range("g", {A: 2}, {A: 9}, cluster="c")
    mark_used("g", 5)
    assert (source_cluster("g"), source_cluster("h")) == ("c", "")
    monkeypatch.setattr(batch_range, "is_alive", lambda _: False)
    assert source_cluster("g") == "", "what an earlier query read says nothing of this one"


@pytest.mark.parametrize(("source_group", "named"), [("other", "'other'"), ("", "no group")])
def test_a_sink_whose_group_no_source_has_is_refused(tmp_path: Path, source_group: str, named: str) -> None:
    _log(tmp_path, 0, _line({A: 5}, source_group))
    with pytest.raises(OffsetConflictError, match=f"group: the sink has group 'g', the query's sources of format ottla have {named}; "):
        find_batch_range(str(tmp_path), 0, group="g", sink_topic="out")


def test_a_source_without_partitions_yet_moves_nothing(tmp_path: Path) -> None:
    """A source whose pattern matches no topic yet moves no offset. A topic that matches later begins at its first record."""
    _log(tmp_path, 0, _line({}))
    _log(tmp_path, 1, _line({}))
    _log(tmp_path, 2, _line({A: 3}))
    assert find_batch_range(str(tmp_path), 0, group="g") == BatchRange(None, {})
    leave_range("g", {}, {})
    leave_range("g", {}, {})
    assert find_batch_range(None, 0, group="g") == BatchRange({}, {})
    assert find_batch_range(str(tmp_path), 1, group="g") == BatchRange({}, {})
    assert find_batch_range(str(tmp_path), 2, group="g") == BatchRange({}, {A: 3})


@pytest.mark.parametrize("offsets", [{B: 1}, {}], ids=["with records", "its pattern matches nothing yet"])
def test_sources_of_two_groups_are_refused_since_the_sink_would_commit_one(tmp_path: Path, offsets: BatchOffsets) -> None:
    _log(tmp_path, 0, _line({A: 5}), _line(offsets, "another"), _line({A: 5}, ""))
    with pytest.raises(OffsetConflictError) as caught:
        find_batch_range(str(tmp_path), 0, group="g", sink_topic="out")
    assert str(caught.value) == (
        "group: the query's sources of format ottla have the groups 'another', 'g', and the sink would commit the offsets of 'g' alone; "
        "set the option to 'g' in all of them, or remove it from a source that keeps its position only in the checkpoint"
    )


def test_sources_of_one_group_are_taken_together_and_others_left_out(tmp_path: Path) -> None:
    kafka = json.dumps({"x": {"0": 1}})
    _log(tmp_path, 0, _line({A: 5}), "17", "-", _line({A: 1}, ""), kafka)
    _log(tmp_path, 1, _line({A: 6}), "18", _line({B: 2}), _line({A: 4}, ""), kafka)
    assert find_batch_range(str(tmp_path), 1, group="g") == BatchRange({A: 5}, {A: 6, B: 2})


def test_a_stream_that_is_used_twice_is_one_if_both_stand_at_the_same_offsets(tmp_path: Path) -> None:
    _log(tmp_path, 0, _line({A: 5}), _line({A: 5}), _line({B: 1}))
    _log(tmp_path, 1, _line({A: 6}), _line({A: 6}), _line({B: 1}))
    assert find_batch_range(str(tmp_path), 1, group="g") == BatchRange({A: 5, B: 1}, {A: 6, B: 1})


def test_sources_that_stand_apart_have_the_lowest_offsets_and_a_checksum(tmp_path: Path) -> None:
    lines = [({A: 5}, {A: 5}), ({A: 9}, {A: 7}), ({A: 9}, {A: 8}), ({A: 9}, {A: 9})]
    for batch_id, pair in enumerate(lines):
        _log(tmp_path, batch_id, *map(_line, pair))
    found = [find_batch_range(str(tmp_path), batch_id, group="g") for batch_id in range(4)]
    assert [(one.start, one.end) for one in found] == [(None, {A: 5}), ({A: 5}, {A: 7}), ({A: 7}, {A: 8}), ({A: 8}, {A: 9})]
    (_, none), (level, first), (again, second), (last, end) = (one.apart for one in found)
    assert (none, level, end) == ("", "", "")
    assert first and second and first != second and (again, last) == (first, second)


@pytest.mark.parametrize("pair", [({A: 5}, {A: 5, B: 1}), ({A: 5, B: 0}, {A: 5, B: 1})])
def test_sources_of_other_partitions_beside_a_common_one_stand_apart(tmp_path: Path, pair: tuple[BatchOffsets, BatchOffsets]) -> None:
    """If two sources have a common partition but different other ones, one offset for each partition would not show that a source does not
    read one of them. Their offsets are therefore stored as different (`apart`).
    """
    _log(tmp_path, 0, *map(_line, pair))
    assert find_batch_range(str(tmp_path), 0, group="g").apart[1]


def test_a_query_without_our_source_counts_its_batches(tmp_path: Path) -> None:
    _log(tmp_path, 4, "17")
    out = TopicPartition("out", 0)
    assert find_batch_range(str(tmp_path), 4, group="g", sink_topic="out") == BatchRange({out: 4}, {out: 5}, is_counted=True)
    assert find_batch_range(str(tmp_path), 4, group="g") == BatchRange({}, {}, is_counted=True)


def test_a_sink_without_a_group_counts_batches_unless_a_source_has_one(tmp_path: Path) -> None:
    _log(tmp_path, 4, _line({A: 5}, ""), "17")
    _log(tmp_path, 5, _line({A: 5}, "g"))
    out = TopicPartition("out", 0)
    assert find_batch_range(str(tmp_path), 4, group=None, sink_topic="out") == BatchRange({out: 4}, {out: 5}, is_counted=True)
    assert find_batch_range("s3a://bucket/c", 4, group=None, seen_groups=[""]) == BatchRange({}, {}, is_counted=True)
    for checkpoint, seen in ((str(tmp_path), []), ("s3a://bucket/c", ["", "g"]), (None, ["g"])):
        with pytest.raises(OffsetConflictError, match=r"group: the sink has none, the query's sources .* have 'g'; set the option"):
            find_batch_range(checkpoint, 5, group=None, seen_groups=seen)


def test_the_start_of_the_first_batch_is_the_planned_one_if_it_is_known(tmp_path: Path) -> None:
    _log(tmp_path, 0, _line({A: 9}))
    assert find_batch_range(str(tmp_path), 0, group="g") == BatchRange(None, {A: 9})
    leave_range("g", {A: 2}, {A: 9})
    assert find_batch_range(str(tmp_path), 0, group="g") == BatchRange({A: 2}, {A: 9})
    leave_range("g", {A: 9}, {A: 12})
    assert find_batch_range(str(tmp_path), 0, group="g") == BatchRange(None, {A: 9})


def test_a_start_that_is_not_in_the_log_is_unknown(tmp_path: Path) -> None:
    _log(tmp_path, 4, _line({A: 9}))
    assert find_batch_range(str(tmp_path), 4, group="g") == BatchRange(None, {A: 9})


def test_named_sources_stand_in_the_log_by_their_names_in_any_order(tmp_path: Path) -> None:
    def log(batch_id: int, *lines: str) -> None:
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(batch_id)).write_text("\n".join(["v2", CONFIG, *lines]))

    log(0, f"orders:{_line({A: 5})}", f"again:{_line({A: 6})}", 'files:{"logOffset":0}', "late:-", "0:17")
    log(1, f"again:{_line({A: 6})}", 'files:{"logOffset":1}', f"orders:{_line({A: 5})}", f"late:{_line({B: 2})}")
    start, end, _, (before, after), _ = find_batch_range(str(tmp_path), 1, group="g")
    assert (start, end) == ({A: 5}, {A: 5, B: 2})
    assert before and after and before != after
    log(2, f"late:{_line({B: 2})}", f"orders:{_line({A: 5})}", f"again:{_line({A: 6})}")
    assert find_batch_range(str(tmp_path), 2, group="g").apart == (after, after)
    log(3, f"late:{_line({B: 2}, 'another')}", f"orders:{_line({A: 5})}")
    with pytest.raises(OffsetConflictError, match=r"have the groups 'another', 'g'"):
        find_batch_range(str(tmp_path), 3, group="g")


def test_another_format_of_the_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "1").write_text("v3\n{}\n{}")
    with pytest.raises(OffsetConflictError, match=r"checkpointLocation.*v3"):
        find_batch_range(str(tmp_path), 1, group="g")


def test_a_checkpoint_on_another_file_system_needs_the_rendezvous(tmp_path: Path) -> None:
    checkpoint = "s3a://bucket/checkpoint"
    with pytest.raises(OffsetConflictError, match=r"range of batch 5 cannot be found.*s3a"):
        find_batch_range(checkpoint, 5, group="g")
    leave_range("g", {A: 2}, {A: 9})
    assert find_batch_range(checkpoint, 5, group="g") == BatchRange({A: 2}, {A: 9})
    with pytest.raises(OffsetConflictError):
        find_batch_range(checkpoint, 5, group="another")


def test_a_source_of_another_group_is_known_from_the_tasks_where_the_checkpoint_is_on_another_file_system() -> None:
    checkpoint = "s3a://bucket/checkpoint"
    leave_range("g", {A: 2}, {A: 9})
    for seen in ([], ["g"], ["", "g"], [""]):
        assert find_batch_range(checkpoint, 5, group="g", seen_groups=seen) == BatchRange({A: 2}, {A: 9})
    with pytest.raises(OffsetConflictError, match=r"have the groups 'another', 'g'.*offsets of 'g' alone"):
        find_batch_range(checkpoint, 5, group="g", seen_groups=["g", "", "another"])
    with pytest.raises(OffsetConflictError, match=r"the sink has group 'g', the query's sources of format ottla have 'another'"):
        find_batch_range(checkpoint, 5, group="g", seen_groups=["another"])


def test_a_used_rendezvous_means_that_nothing_moved(tmp_path: Path) -> None:
    leave_range("g", {A: 2}, {A: 9})
    mark_used("g", 5)
    assert find_batch_range(None, 5, group="g") == BatchRange({A: 2}, {A: 9})
    assert find_batch_range(None, 6, group="g") == BatchRange({A: 9}, {A: 9})
    mark_used("g", 6)
    assert find_batch_range(None, 7, group="g") == BatchRange({A: 9}, {A: 9})
    for batch_id in (5, 8):  # from another driver or another checkpoint
        with pytest.raises(OffsetConflictError, match=rf"range of batch {batch_id} cannot be found"):
            find_batch_range(None, batch_id, group="g")
    mark_used("another", 5)


def test_several_sources_of_a_group_need_the_offset_log(tmp_path: Path) -> None:
    for _ in range(2):
        leave_range("g", {A: 2}, {A: 9})
        leave_range("g", {B: 0}, {B: 3})
        with pytest.raises(OffsetConflictError, match=r"checkpointLocation: several sources .*group='g'.*s3a://"):
            find_batch_range("s3a://bucket/c", 0, group="g")
    leave_range("g", {B: 0}, {B: 3})
    assert find_batch_range(None, 0, group="g") == BatchRange({B: 0}, {B: 3})


def test_sources_of_one_topic_may_share_the_rendezvous_while_they_stand_at_the_same_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_process = os.getppid()
    leave_range("g", {A: 2}, {A: 9})
    leave_range("g", {A: 2}, {A: 8})  # after the checkpoint was lost, the same source plans another batch
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: other_process)
        leave_range("g", {A: 2}, {A: 8})
        assert find_batch_range("s3a://bucket/c", 5, group="g") == BatchRange({A: 2}, {A: 8})
    leave_range("g", {A: 2}, {A: 7})
    with pytest.raises(OffsetConflictError, match=r"several sources of the query"):
        find_batch_range("s3a://bucket/c", 5, group="g")


def test_a_damaged_rendezvous_is_none(tmp_path: Path) -> None:
    leave_range("g", {A: 2}, {A: 9})
    for text in ("", "{}", "[]", '{"start": 1, "end": 2, "used_by": null, "several": false}'):
        next(spool_root().glob("*.range")).write_text(text)
        with pytest.raises(OffsetConflictError, match=r"cannot be found"):
            find_batch_range(None, 5, group="g")


def test_the_query_id_stands_in_the_checkpoint(tmp_path: Path) -> None:
    assert find_query_id(str(tmp_path)) is None
    (tmp_path / "metadata").write_text('{"id":"8f8e-1"}')
    assert find_query_id(str(tmp_path)) == "8f8e-1"
    assert find_query_id("hdfs://name/checkpoint") is None


@pytest.mark.parametrize(
    ("checkpoint", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("s3a://bucket/a", None),
        ("hdfs:///a", None),
        ("", None),
        (None, None),
    ],
)
def test_the_path_of_a_checkpoint(checkpoint: str | None, path: str | None) -> None:
    assert local_path(checkpoint) == (None if path is None else Path(path))
