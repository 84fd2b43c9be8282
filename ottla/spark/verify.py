"""Proves from the log that a pipeline ran exactly once: reads its group's commits and its sink topics, and compares them.

It proves that each offset of the source is in exactly one committed batch, that the sink has the output of each batch completely and once,
and that the sink has no output of this pipeline without a commit. It needs no Spark, and may run while the pipeline runs: a batch whose
commit is not finished is skipped. Offset commits that compaction has removed cannot be judged; the proof begins with the first remaining
one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client import EARLIEST, LATEST, Client, KafkaError, TopicPartition, UnknownTopicError
from ottla.spark.commit_history import CommitHistory, CommittedTransaction, GroupCommit
from ottla.spark.decision import is_replaced
from ottla.spark.proof import Findings, ProofFault, find_older_producers, judge, judge_other_writers
from ottla.spark.relay import STREAM_ID_PREFIX
from ottla.spark.sink_contents import SinkContents
from ottla.spark.topics import read_ids
from ottla.wire.records import iter_records

SETTLE_SECONDS_MAX = 10.0
"""Seconds to wait for a batch that is being committed before its incomplete output counts as a fault."""
SETTLE_PAUSE_SECONDS = 0.2


class SourceProof(NamedTuple):
    """The offsets of one source partition that the remaining commits cover. `rows` is the number of their records in the log now, `lag` the
    number of offsets after `end`."""

    topic: str
    partition: int
    start: int
    end: int
    batches: int
    rows: int
    lag: int


class SinkProof(NamedTuple):
    """The committed rows of one sink partition; `other_rows` are from other producers."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    other_rows: int


class Verification(NamedTuple):
    """The result for a pipeline. `first_batch` and `last_batch` are (query id, batch id)."""

    group: str
    batches: int
    rows: int
    first_batch: tuple[str, int] | None
    last_batch: tuple[str, int] | None
    source: tuple[SourceProof, ...]
    sink: tuple[SinkProof, ...]
    faults: tuple[ProofFault, ...]
    notes: tuple[str, ...]

    @property
    def is_proved(self) -> bool:
        """Whether there was a commit to judge, and no fault."""
        return self.batches > 0 and not self.faults


def verify(
    client: Client, group: str, sinks: Sequence[str], *, may_share_sink: bool = False, settle_s: float = SETTLE_SECONDS_MAX
) -> Verification:
    """Compares the commits of a pipeline's group with its sink topics. With `may_share_sink`, records of other producers in the sink are a
    note and not a fault. `settle_s` limits the wait for a batch that is being committed. Raises `UnknownTopicError` for a sink that does
    not exist.
    """
    sink = SinkContents(client, sinks)
    try:
        history = CommitHistory(client, group)
    except UnknownTopicError:
        return _nothing(group)
    sink.extend()
    history.extend()
    known = _producer_ids(client, group)
    findings = _settled(history, sink, known, settle_s)
    ours = known | {commit.transaction.producer_id for commit in history.commits if commit.transaction and commit.metadata}
    older = find_older_producers(history.commits, sink.partitions) - ours
    others = judge_other_writers(sink.partitions, ours | older)
    source, lost = source_proofs(client, findings, sinks)
    faults = [*findings.faults, *lost, *(ProofFault("foreign", message) for message in others if not may_share_sink)]
    notes = [*_history_notes(history), *_older_notes(sink, older), *findings.notes]
    notes += [*(message for message in others if may_share_sink), *_sink_notes(sink)]
    commits = [commit for commit in history.commits if commit.metadata is not None]
    if not commits:
        return _nothing(group)._replace(sink=_sink_proofs(sink, ours), faults=(*_nothing(group).faults, *faults), notes=tuple(notes))
    return Verification(
        group, findings.batches, findings.rows, _name(commits[0]), _name(commits[-1]), source, _sink_proofs(sink, ours), tuple(faults),
        tuple(notes),
    )  # fmt: skip


def _nothing(group: str) -> Verification:
    fault = ProofFault("absent", f"group {group!r} has no offsets that a pipeline committed; there is nothing to prove")
    return Verification(group, 0, 0, None, None, (), (), (fault,), ())


def _name(commit: GroupCommit) -> tuple[str, int]:
    assert commit.metadata is not None
    return commit.metadata.query_id, commit.metadata.batch_id


def _producer_ids(client: Client, group: str) -> set[int]:
    """Returns the pipeline's current producer id, if the broker reports it."""
    try:
        return {client.describe_transaction(f"{STREAM_ID_PREFIX}{group}").producer_id}
    except KafkaError:
        return set()


def _settled(history: CommitHistory, sink: SinkContents, known: set[int], settle_s: float) -> Findings:
    """Judges, and reads further while a fault may belong to a batch that is being committed: such a fault disappears, a real one remains.
    """
    deadline = time.monotonic() + settle_s
    findings = _judged(history, sink, known)
    suspects = _suspects(findings)
    while suspects and time.monotonic() < deadline:
        time.sleep(SETTLE_PAUSE_SECONDS)
        is_moving = any([history.extend(), sink.extend()])
        findings = _judged(history, sink, known)
        suspects &= _suspects(findings)
        if not is_moving:
            break
    in_flight = _suspects(findings) - suspects
    faults = [fault for fault in findings.faults if fault.transaction not in in_flight]
    notes = [f"{len(in_flight)} batches were being committed and were not judged"] if in_flight else []
    return findings._replace(faults=faults, notes=[*findings.notes, *notes])


def _suspects(findings: Findings) -> set[CommittedTransaction]:
    return {fault.transaction for fault in findings.faults if fault.transaction is not None}


def _judged(history: CommitHistory, sink: SinkContents, known: set[int]) -> Findings:
    return judge(
        history.commits,
        sink.outputs,
        producer_ids=known,
        older_producers=find_older_producers(history.commits, sink.partitions),
        partitions=sink.partitions,
        is_sink_compacted=sink.is_compacted,
        has_digests=not sink.is_recompressed,
    )


def source_proofs(client: Client, findings: Findings, sinks: Sequence[str]) -> tuple[tuple[SourceProof, ...], list[ProofFault]]:
    """Compares the ranges with the current source; adds a fault for each partition that belongs to another topic or ends before its range.

    Ranges of the sink's topics are skipped, because a query without a source of ours counts its batches there.
    """
    partitions = sorted(partition for partition in findings.ranges if partition.topic not in sinks)
    topic_ids = read_ids(client, sorted({partition.topic for partition in partitions})) if partitions else {}
    starts = client.list_offsets(dict.fromkeys(partitions, EARLIEST)) if partitions else {}
    ends = client.list_offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
    proofs, faults = [], []
    for partition in partitions:
        start, end, batches, topic_id = findings.ranges[partition]
        log_end = ends[partition].offset
        if is_replaced(topic_id, topic_ids.get(partition.topic, "")):
            message = f"{partition} is of another topic than the one that was read (id {topic_id}, now {topic_ids[partition.topic]})"
            faults.append(ProofFault("beyond", message))
            proofs.append(SourceProof(*partition, start, end, batches, 0, 0))
            continue
        if end > log_end:
            message = f"{partition} ends at {log_end}, and offsets up to {end} are committed: it is not the topic that was read"
            faults.append(ProofFault("beyond", message))
        rows = _count_rows(client, partition, max(start, starts[partition].offset), min(end, log_end))
        proofs.append(SourceProof(*partition, start, end, batches, rows, max(0, log_end - end)))
    return tuple(proofs), faults


def _count_rows(client: Client, partition: TopicPartition, start: int, end: int) -> int:
    """Counts the records of a range. A batch that is partly outside of it is decoded, others are counted by their header."""
    rows = 0
    for fetched in client.read(partition, start, end):
        for header, batch in fetched.batches:
            if header.base_offset >= end:
                break
            if header.base_offset >= start and header.next_offset <= end:
                rows += header.record_count
            else:
                rows += sum(1 for record in iter_records(batch) if start <= record.offset < end)
    return rows


def _sink_proofs(sink: SinkContents, ours: set[int]) -> tuple[SinkProof, ...]:
    proofs = []
    for partition, found in sorted(sink.partitions.items()):
        rows = sum(count for one, count in found.rows.items() if one is not None and one.producer_id in ours)
        proofs.append(SinkProof(*partition, found.start, found.end, rows, sum(found.rows.values()) - rows))
    return tuple(proofs)


def _history_notes(history: CommitHistory) -> list[str]:
    first = next((commit.metadata for commit in history.commits if commit.metadata is not None), None)
    if first is None or first.batch_id == 0:
        return []
    name = f"batch {first.batch_id} of query {first.query_id}"
    return [f"the proof begins with {name}: the commits before it are no longer in the group's log"]


def _older_notes(sink: SinkContents, older: set[int]) -> list[str]:
    rows = sum(found for one in sink.partitions.values() for by, found in one.rows.items() if by is not None and by.producer_id in older)
    names = ", ".join(map(str, sorted(older)))
    return [f"not judged: {rows} rows of producers ({names}) that wrote before the first commit that is left"] if rows else []


def _sink_notes(sink: SinkContents) -> list[str]:
    notes = []
    if sink.is_compacted:
        notes.append("a sink topic is compacted: replaced rows are removed, so outputs were not compared")
    elif sink.is_recompressed:
        notes.append("a sink topic has a compression.type of its own: rows were counted, their bytes not compared")
    return notes
