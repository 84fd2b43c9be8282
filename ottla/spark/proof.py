"""Compares a pipeline's commits with the records in its sink. Each input range must be committed once, and each batch's output must be
there completely and once.

`judge` is a pure function; it returns `Findings`. A fault with a transaction may be temporary, because markers reach partitions one after
another; the caller then reads further and judges again. A fault without a transaction is final.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.client import TopicPartition
from ottla.spark.commit_history import CommittedTransaction, GroupCommit
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.decision import is_replaced
from ottla.spark.output_digest import OutputDigest
from ottla.spark.sink_contents import SinkPartition

UNKNOWN_START = -1
"""The start of a partition that is new in this batch: it is read from its first record."""


class ProofFault(NamedTuple):
    """A violation of exactly-once. `kind` is for programs, `message` for people; `rows` is the number of missing rows."""

    kind: str
    message: str
    transaction: CommittedTransaction | None = None
    rows: int = 0


class InputRange(NamedTuple):
    """The offsets of one source partition that the remaining commits cover; only of the newest topic id."""

    start: int
    end: int
    batches: int
    topic_id: str = ""


class Findings(NamedTuple):
    batches: int
    rows: int
    ranges: dict[TopicPartition, InputRange]
    faults: list[ProofFault]
    notes: list[str]


def judge(
    commits: Sequence[GroupCommit],
    outputs: Mapping[CommittedTransaction, OutputDigest],
    *,
    producer_ids: Container[int] = (),
    older_producers: Container[int] = (),
    partitions: Mapping[TopicPartition, SinkPartition] = MappingProxyType({}),
    is_sink_compacted: bool = False,
    has_digests: bool = True,
) -> Findings:
    """Compares commits and outputs. `producer_ids` are further ids of the pipeline.

    `older_producers` are ids whose commits compaction has removed (`find_older_producers`). `partitions` are the sink's partitions; their
    oldest records may be removed. `is_sink_compacted`: any record may have been replaced. Without `has_digests` only rows are compared.
    """
    findings = Findings(0, 0, {}, [], [])
    left = left_behind(commits)
    judge_ranges(commits, findings)
    judge_batches(commits[len(left) :], findings)
    if left:
        what = f"{len(left)} commits of partitions that later batches do not read"
        findings.notes.append(f"not judged: {what}; compaction has removed the commits after them")
    ours = [commit for commit in commits[len(left) :] if commit.metadata is not None and commit.transaction is not None]
    known = {commit.transaction.producer_id for commit in ours if commit.transaction is not None}
    covered = {commit.transaction for commit in (*left, *ours)}
    faults = [_output_fault(commit, outputs, has_digests=has_digests and not is_sink_compacted) for commit in ours]
    if is_sink_compacted:
        faults = [fault for fault in faults if fault is not None and fault.kind != "missing"]
        if ours and not any(commit.metadata and commit.metadata.rows and commit.transaction in outputs for commit in ours):
            _judge_removed(ours, findings)
    else:
        faults = _without_trimmed(ours, faults, partitions, findings)
    findings.faults.extend(fault for fault in faults if fault is not None)
    rest = {one: digest for one, digest in outputs.items() if one not in covered and one.producer_id not in older_producers}
    mine = {one: digest for one, digest in rest.items() if one.producer_id in known or one.producer_id in producer_ids}
    _judge_uncommitted(ours, mine, findings)
    rows = sum(commit.metadata.rows for commit in ours if commit.metadata is not None)
    return findings._replace(batches=len(ours), rows=rows)


# The source


def judge_ranges(commits: Iterable[GroupCommit], findings: Findings) -> None:
    """Checks that each partition's commits join: every start is the previous end."""
    for commit in commits:
        for partition, (end, metadata) in commit.ranges.items():
            known = findings.ranges.get(partition)
            if end is None:
                findings.notes.append(f"the committed offset of {partition} was deleted (record {commit.position} of the group's log)")
            elif metadata is None or commit.transaction is None:
                _judge_other_commit(partition, known, end, commit, findings)
            else:
                _judge_range(partition, known, end, metadata, findings)


def _judge_other_commit(partition: TopicPartition, known: InputRange | None, end: int, commit: GroupCommit, findings: Findings) -> None:
    where = f"record {commit.position} of the group's log"
    if known is None:
        findings.notes.append(f"{partition}: another program had committed offset {end} before the first batch ({where})")
    elif end == known.end:
        findings.notes.append(f"{partition}: another program committed offset {end}, the pipeline's own position ({where})")
    else:
        message = f"{partition}: another program moved the committed offset from {known.end} to {end} ({where})"
        findings.faults.append(ProofFault("moved", message))
        findings.ranges[partition] = known._replace(end=end)


def _judge_range(partition: TopicPartition, known: InputRange | None, end: int, metadata: CommitMetadata, findings: Findings) -> None:
    if known is not None and is_replaced(known.topic_id, metadata.topic_id):
        findings.notes.append(
            f"{partition}: the topic was deleted and created again after offset {known.end}; only the new topic is judged "
            f"(id {metadata.topic_id})"
        )
        known = None
    start = metadata.start
    if start == UNKNOWN_START:
        start = 0 if known is None else known.end
    name = f"batch {metadata.batch_id} of query {metadata.query_id}"
    if known is None:
        known = InputRange(start, start, 0)
    if start < known.end:
        what = f"offsets {start} to {min(end, known.end) - 1} twice" if end > start else f"from {start}, before {known.end}"
        findings.faults.append(ProofFault("overlap", f"{partition}: {name} committed {what}"))
    elif start > known.end:
        findings.faults.append(ProofFault("gap", f"{partition}: offsets {known.end} to {start - 1} are in no batch before {name}"))
    if end < start:
        findings.faults.append(ProofFault("backwards", f"{partition}: {name} goes from {start} back to {end}"))
    findings.ranges[partition] = InputRange(known.start, max(end, start), known.batches + 1, metadata.topic_id)


def judge_batches(commits: Iterable[GroupCommit], findings: Findings) -> None:
    """Checks that the batch numbers of a query increase by one, and that all partitions of a commit name the same batch."""
    last: dict[str, int] = {}
    newest: CommitMetadata | None = None
    for commit in commits:
        metadata = commit.metadata
        if metadata is None:
            continue
        named = {found.metadata._replace(start=0, topic_id="") for found in commit.ranges.values() if found.metadata is not None}
        if len(named) > 1:
            message = f"record {commit.position} of the group's log begins a commit whose partitions name different batches"
            findings.faults.append(ProofFault("mixed", message))
        before = last.get(metadata.query_id)
        if before is not None and metadata.batch_id != before + 1:
            findings.faults.append(_order_fault(metadata, before))
        last[metadata.query_id] = metadata.batch_id
        if newest is not None and newest.query_id != metadata.query_id:
            findings.notes.append(
                f"query {metadata.query_id} took over after batch {newest.batch_id} of query {newest.query_id}: it began with a new "
                "checkpoint. If the earlier query kept state (windows, joins, totals), the output from that state was never written"
            )
        newest = metadata


def _order_fault(metadata: CommitMetadata, before: int) -> ProofFault:
    name = f"batch {metadata.batch_id} of query {metadata.query_id}"
    if metadata.batch_id == before:
        return ProofFault("repeated", f"{name} is committed twice")
    if metadata.batch_id < before:
        return ProofFault("repeated", f"{name} is committed after batch {before}")
    return ProofFault("skipped", f"{name} is committed after batch {before}; the batches between them are not")


# The sink


def _without_trimmed(
    commits: Sequence[GroupCommit],
    faults: Sequence[ProofFault | None],
    partitions: Mapping[TopicPartition, SinkPartition],
    findings: Findings,
) -> list[ProofFault | None]:
    """Drops faults about missing rows if retention or DeleteRecords may have removed the rows. Adds a fault if every output has lost rows.

    In each partition the output is in commit order. If the oldest records of a partition are removed, rows may be missing up to the first
    commit with remaining rows there, and at most as many rows as offsets were removed.
    """
    trimmed = [one for one in partitions.values() if one.start > 0]
    order = {commit.transaction: number for number, commit in enumerate(commits)}
    firsts = [min((order[one] for one in partition.spans if one in order), default=len(commits)) for partition in trimmed]
    last = max(firsts, default=-1)
    excused = {number: fault.rows for number, fault in enumerate(faults) if fault and fault.kind == "missing" and number <= last}
    if not excused or sum(excused.values()) > sum(one.start for one in trimmed):
        return list(faults)
    findings.notes.append(f"the oldest output (batches: {len(excused)}) is no longer complete in the sink: retention has removed records")
    if all(number in excused for number, commit in enumerate(commits) if commit.metadata is not None and commit.metadata.rows):
        _judge_removed(commits, findings)
    return [None if number in excused else fault for number, fault in enumerate(faults)]


def _judge_removed(commits: Sequence[GroupCommit], findings: Findings) -> None:
    """Adds a fault if any of these batches wrote rows. The caller has found that the sink has lost rows of each batch."""
    written = sum(1 for commit in commits if commit.metadata is not None and commit.metadata.rows)
    if written:
        message = f"the sink has the complete output of none of the {written} batches that wrote any: its records are removed"
        findings.faults.append(ProofFault("removed", f"{message}, so nothing can be proved"))


def _output_fault(commit: GroupCommit, outputs: Mapping[CommittedTransaction, OutputDigest], *, has_digests: bool) -> ProofFault | None:
    transaction, metadata = commit.transaction, commit.metadata
    assert transaction is not None and metadata is not None
    found = outputs.get(transaction, OutputDigest())
    name = f"batch {metadata.batch_id} of query {metadata.query_id}"
    where = f"producer {transaction.producer_id}, epoch {transaction.epoch}"
    if found.rows < metadata.rows:
        message = f"{name} ({where}) wrote {metadata.rows} rows, and the sink has {found.rows} of them; are all of its topics named?"
        return ProofFault("missing", message, transaction, metadata.rows - found.rows)
    if found.rows > metadata.rows:
        return ProofFault("surplus", f"{name} ({where}) wrote {metadata.rows} rows, and the sink has {found.rows}", transaction)
    if has_digests and found.text() != metadata.digest:
        digests = f"digest {found.text()}, not {metadata.digest}"
        message = f"{name} ({where}): the sink's {found.rows} rows are not those that were written ({digests})"
        return ProofFault("altered", message, transaction)
    return None


def _judge_uncommitted(commits: Sequence[GroupCommit], outputs: Mapping[CommittedTransaction, OutputDigest], findings: Findings) -> None:
    """Adds faults for outputs of the pipeline's producer without a commit, unless they are older than the oldest remaining commit."""
    first = commits[0].transaction if commits else None
    older = [one for one in outputs if first is not None and one.producer_id == first.producer_id and one.epoch < first.epoch]
    if older:
        findings.notes.append(f"not judged: transactions in the sink that are older than the first commit that is left ({len(older)})")
    for one in sorted(set(outputs) - set(older)):
        message = f"{outputs[one].rows} rows of producer {one.producer_id}, epoch {one.epoch} are in the sink without a commit of offsets"
        findings.faults.append(ProofFault("uncommitted", message, one))


def left_behind(commits: Sequence[GroupCommit]) -> Sequence[GroupCommit]:
    """Returns the oldest commits if compaction has removed the commits after them.

    Each commit has all partitions of the query, and compaction keeps the last one of each partition. The last commit of a partition that
    the query no longer reads is therefore kept, without its other partitions and without the following commits.
    """
    later: set[TopicPartition] = set()
    for number in range(len(commits) - 1, 0, -1):
        later.update(commits[number].ranges)
        before, after = commits[number - 1].metadata, commits[number].metadata
        if before is None or after is None:
            continue
        following = before.batch_id + 1 if before.query_id == after.query_id else 0
        if after.batch_id > following and all(later.isdisjoint(one.ranges) for one in commits[:number]):
            return commits[:number]
    return []


def find_older_producers(commits: Sequence[GroupCommit], partitions: Mapping[TopicPartition, SinkPartition]) -> set[int]:
    """Returns the ids of producers whose transactions are all older than the first remaining commit, if there were earlier commits.

    A producer id is used for at least 16,384 batches; then the pipeline gets another one. When compaction has removed the commits of the
    old id, the logs no longer show that its output belongs to the pipeline.
    """
    ours = [commit for commit in commits[len(left_behind(commits)) :] if commit.metadata is not None]
    first = ours[0].metadata if ours else None
    if first is None or (first.batch_id == 0 and all(one.metadata is None or one.metadata.start <= 0 for one in ours[0].ranges.values())):
        return set()
    known = {commit.transaction for commit in ours}
    older, newer = set[int](), set[int]()
    for contents in partitions.values():
        boundaries = [first for one, (first, _) in contents.spans.items() if one in known]
        for one, (_, last) in contents.spans.items():
            if boundaries:
                (older if last < min(boundaries) else newer).add(one.producer_id)
    return older - newer


def judge_other_writers(partitions: Mapping[TopicPartition, SinkPartition], ours: Container[int]) -> list[str]:
    """Returns a sentence for each sink partition with records of other producers."""
    found = []
    for partition, contents in sorted(partitions.items()):
        others = {one: rows for one, rows in contents.rows.items() if one is None or one.producer_id not in ours}
        if others:
            names = sorted({f"producer {one.producer_id}" if one is not None else "writers outside of transactions" for one in others})
            found.append(f"{partition} holds records of {', '.join(names)} ({sum(others.values())})")
    return found
