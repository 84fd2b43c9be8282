"""Proves from a table's log that a pipeline wrote it exactly once: each offset of the source is in one commit, and the rows of each commit
are there.

It reads the table's log, the footers of its data files, and the source. It may run while the pipeline runs, because a commit is atomic.
Commits that have expired from the log cannot be judged; the proof begins with the first remaining commit.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.client import Client
from ottla.spark.commit_history import CommittedRange, CommittedTransaction, GroupCommit
from ottla.spark.commit_metadata import parse_metadata
from ottla.spark.proof import Findings, ProofFault, judge_batches, judge_ranges
from ottla.spark.tables.formats import open_log
from ottla.spark.tables.position import TableCommit
from ottla.spark.tables.storage import TableFiles, explained
from ottla.spark.tables.table import Table
from ottla.spark.tables.table_log import LiveFile, LoggedCommit
from ottla.spark.verify import SinkProof, Verification, source_proofs

FAULTY_FILES_MAX = 10
"""Data files whose faults are listed; the rest is counted."""


def verify_table(client: Client, group: str, table: Table, *, may_share_sink: bool = False) -> Verification:
    """Judges the commits of a group's pipeline in a table's log. With `may_share_sink`, commits of other writers are a note, not a fault.

    Raises `MissingTableError` if there is no table.
    """
    log = open_log(table)
    log.refresh()
    history, is_whole = log.history()
    live = log.live_files()
    mine = [one for one in history if one.commit is not None and one.commit.group == group]
    others = [one for one in history if one not in mine]
    commits = [one.commit for one in mine if one.commit is not None]
    findings = Findings(len(mine), sum(one.rows for one in commits), {}, [], [])
    judge_ranges([_as_group_commit(one) for one in mine], findings)
    judge_batches([_as_group_commit(one) for one in mine], findings)
    _judge_commits(mine, findings)
    _judge_files(table, live, findings)
    others_text = _others(others)
    if others_text and may_share_sink:
        findings.notes.append(others_text)
    elif others_text:
        findings.faults.append(ProofFault("foreign", others_text))
    if is_whole:
        _judge_total(history, live, findings)
    if not mine:
        findings.faults.insert(0, ProofFault("absent", f"the log of table {table.uri} has no commit of group {group!r}; nothing to prove"))
    source, lost = source_proofs(client, findings, [])
    _compare_group(client, group, commits, findings)
    rows = sum(one.added for one in mine)
    live_rows = sum(one.rows for one in live)
    sink = SinkProof(table.uri, 0, history[0].version if history else 0, history[-1].version + 1 if history else 0, rows, live_rows - rows)
    names = [(one.query_id, one.batch_id) for one in commits]
    first, last = (names[0], names[-1]) if names else (None, None)
    return Verification(
        group, findings.batches, findings.rows, first, last, source, (sink,), (*findings.faults, *lost), tuple(findings.notes)
    )  # fmt: skip


def _as_group_commit(logged: LoggedCommit) -> GroupCommit:
    """Returns a commit of the table in the form of a group's commit, which `proof.py` judges."""
    assert logged.commit is not None
    ranges = {
        partition: CommittedRange(found.offset, parse_metadata(found.metadata)) for partition, found in logged.commit.committed().items()
    }
    return GroupCommit(CommittedTransaction(0, logged.commit.sequence), logged.version, logged.timestamp_ms, ranges)


def _judge_commits(mine: Sequence[LoggedCommit], findings: Findings) -> None:
    """Checks that sequence numbers have no gap, that no execution is committed twice, and that each commit added the rows that it names."""
    before: TableCommit | None = None
    tokens = set[str]()
    for logged in mine:
        commit = logged.commit
        assert commit is not None
        name = f"batch {commit.batch_id} of query {commit.query_id} (version {logged.version})"
        if before is None and commit.sequence > 1:
            findings.notes.append(f"the proof begins with {name}: the commits before it have expired from the table's log")
        if before is not None and commit.sequence != before.sequence + 1:
            message = f"{name} is commit {commit.sequence} of the pipeline, after commit {before.sequence}"
            findings.faults.append(ProofFault("sequence", message))
        if commit.token in tokens:
            findings.faults.append(ProofFault("repeated", f"{name}: the same execution is committed twice"))
        if logged.added != commit.rows:
            kind = "missing" if logged.added < commit.rows else "surplus"
            findings.faults.append(ProofFault(kind, f"{name} names {commit.rows} rows, and its files have {logged.added}"))
        if logged.removed:
            findings.faults.append(ProofFault("removed", f"{name} removed {logged.removed} rows"))
        tokens.add(commit.token)
        before = commit


def _judge_files(table: Table, live: Sequence[LiveFile], findings: Findings) -> None:
    """Checks that the data files exist, and that each footer has the rows of the log."""
    files = TableFiles(table)
    faults = []
    with explained(table):
        for one in live:
            try:
                with files.open(one.path) as file:
                    found = pq.read_metadata(file).num_rows
            except FileNotFoundError:
                faults.append(f"data file {one.path} is missing, with {one.rows} rows")
                continue
            except pa.ArrowInvalid as error:
                faults.append(f"data file {one.path} is damaged: {error}")
                continue
            if found != one.rows:
                faults.append(f"data file {one.path} has {found} rows, and the log says {one.rows}")
    if len(faults) > FAULTY_FILES_MAX:
        faults[FAULTY_FILES_MAX:] = [f"{len(faults) - FAULTY_FILES_MAX} more data files are missing, damaged, or have other rows"]
    findings.faults.extend(ProofFault("file", message) for message in faults)


def _judge_total(history: Sequence[LoggedCommit], live: Sequence[LiveFile], findings: Findings) -> None:
    """Compares the rows of all commits with the rows of the files. Compaction may have rewritten the files."""
    wanted, found = sum(one.added - one.removed for one in history), sum(one.rows for one in live)
    if wanted != found:
        findings.faults.append(ProofFault("total", f"the commits have {wanted} rows together, and the table's files have {found}"))


def _others(others: Sequence[LoggedCommit]) -> str:
    if not others:
        return ""
    added, removed = sum(one.added for one in others), sum(one.removed for one in others)
    versions = ", ".join(str(one.version) for one in others[:5]) + (" and more" if len(others) > 5 else "")
    return f"other writers added {added} rows and removed {removed} (versions {versions})"


def _compare_group(client: Client, group: str, commits: Sequence[TableCommit], findings: Findings) -> None:
    known = client.committed(group)
    wanted = commits[-1].committed() if commits else {}
    if any(one not in known or known[one].offset != found.offset for one, found in wanted.items()):
        findings.notes.append(
            f"the offsets of group {group!r} are not those of the table: a commit is just being made, or the pipeline was killed between "
            "the two commits; its next start sets them"
        )
