"""Maintains the state of a running pipeline, from Spark's reports about its batches and from the group's commits in `__consumer_offsets`.

The recorder has its own client with a short timeout, so that an unreachable broker does not delay the pipeline. After a failed request the
log is read again at a later observation, with growing pauses.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ottla.client
from ottla.analysis.lag import ages_s
from ottla.client import LATEST, Client, ClientError, TopicPartition, UnknownTopicError
from ottla.spark.commit_history import CommitHistory, GroupCommit
from ottla.spark.offset_json import read_offsets
from ottla.spark.state_file import KILLED, RUNNING, PipelineState, SourcePosition, is_killed, load_state, save_state

REQUEST_SECONDS_MAX = 2.0
LOG_PAUSE_SECONDS = 1.0
"""Minimum seconds between two reads of the log. Readers of a state file do not need newer data."""
LOG_PAUSE_SECONDS_MAX = 30.0
"""Maximum pause while the log cannot be read, for example without permission to read `__consumer_offsets`; the pause doubles up to this."""


class ProgressRecorder:
    """Observes one query and stores its state. Not thread-safe."""

    def __init__(
        self, path: Path, group: str, *, bootstrap: str, connection: Mapping[str, str] | None = None, reads: int = 1
    ) -> None:
        """`reads` is how often the query reads each row of its source: Spark counts all of these as input."""
        self._reads = reads
        self._path = path
        self._bootstrap = bootstrap
        self._connection = dict(connection or {})
        self._client: Client | None = None
        self._history: CommitHistory | None = None
        self._asked_at = 0.0
        self._pause_s = LOG_PAUSE_SECONDS
        self.batch_seen = -1
        self.state = load_state(path) or PipelineState(group=group)
        if self.state.group != group:
            self.state = PipelineState(group=group)

    def begin(self, *, query_id: str, sources: Sequence[str], sinks: Sequence[str]) -> None:
        state = self.state
        state.state, state.error, state.host, state.process_id = RUNNING, "", socket.gethostname(), os.getpid()
        state.query_id, state.sources, state.sinks = query_id, list(sources), list(sinks)
        state.starts += 1
        state.started_ms = _now_ms()
        self._save()

    def observe(self, progresses: Iterable[Mapping[str, Any]], *, is_last: bool = False) -> bool:
        """Processes Spark's progress reports, oldest first, and new commits in the log; returns whether the state has changed."""
        has_new = False
        for progress in progresses:
            has_new = self._take(progress) or has_new
        if is_last or time.monotonic() - self._asked_at >= self._pause_s:
            has_new = self._ask_log() or has_new
            self._asked_at = time.monotonic()
        if has_new:
            self._save()
        return has_new

    def end(self, state: str, error: str = "") -> None:
        """Records the end of the query, and closes the client."""
        self.state.state, self.state.error = state, error
        self._save()
        self._disconnect()

    def _take(self, progress: Mapping[str, Any]) -> bool:
        batch_id = int(progress["batchId"])
        if batch_id <= self.batch_seen or "addBatch" not in progress.get("durationMs", {}):
            return False  # a report that is known already, or a trigger without data
        self.batch_seen = batch_id
        self.state.batches += 1
        self.state.rows_in += int(progress.get("numInputRows", 0)) // self._reads
        self.state.batch_ms = int(progress["durationMs"].get("triggerExecution", 0))
        return True

    def _ask_log(self) -> bool:
        try:
            if self._client is None:
                self._client = ottla.client.connect(self._bootstrap, self._connection, timeout_s=REQUEST_SECONDS_MAX)
            if self._history is None:
                self._history = CommitHistory(self._client, self.state.group, position=self.state.log_position)
            has_commits = take_commits(self.state, self._history)
            has_moved = take_ends(self.state, self._client)
        except ClientError:
            self._disconnect()
            self._pause_s = min(2 * self._pause_s, LOG_PAUSE_SECONDS_MAX)
            return False
        self._pause_s = LOG_PAUSE_SECONDS
        return has_moved or has_commits

    def _disconnect(self) -> None:
        client, self._client, self._history = self._client, None, None
        if client is not None:
            client.close()

    def _save(self) -> None:
        self.state.updated_ms = _now_ms()
        save_state(self._path, self.state)


def progress_after(query: Any, batch_id: int) -> list[dict[str, Any]]:
    """Returns Spark's reports of the batches after `batch_id`, oldest first.

    `query.recentProgress` converts all 100 reports that Spark keeps to JSON and back, which takes 0.1 s of CPU time. So each report is
    requested by itself, the last one first; Spark Connect has only `recentProgress`.
    """
    if not hasattr(query, "_jsq"):
        return [dict(one) for one in query.recentProgress]
    reports = query._jsq.recentProgress()
    found: list[dict[str, Any]] = []
    for number in reversed(range(len(reports))):
        if reports[number].batchId() <= batch_id:
            break
        found.insert(0, json.loads(reports[number].json()))
    return found


def readable_progress(progress: Mapping[str, Any], client: Client | None = None) -> dict[str, Any]:
    """Returns Spark's report of a batch (`query.lastProgress`) with a description and metrics of `ottla` sources.

    Spark 4.3 supports neither for a Python source: it shows the address of a Java object, and no metrics. The metrics have the names of
    Spark's Kafka source: how many offsets the partitions are behind their ends. With a `client` there is also `maxSecondsBehindLatest`, the
    age of the oldest record that follows the batch; it is missing if the record cannot be read. Raises `ClientError`.
    """
    return {**progress, "sources": [_readable_source(source, client) for source in progress.get("sources", ())]}


def _readable_source(source: Mapping[str, Any], client: Client | None) -> dict[str, Any]:
    end, latest = (read_offsets(source.get(name) or "null") for name in ("endOffset", "latestOffset"))
    if end is None:
        return dict(source)
    topics = ", ".join(sorted({partition.topic for partition in end.offsets})) or "no topic yet"
    description = f"ottla[{topics}]" + (f", group {end.group}" if end.group else "")
    if latest is None:
        return {**source, "description": description}
    behind = {partition: max(0, offset - end.offsets.get(partition, 0)) for partition, offset in latest.offsets.items()}
    numbers = list(behind.values()) or [0]
    metrics = {"min": min(numbers), "max": max(numbers), "avg": sum(numbers) / len(numbers)}
    named = {f"{name}OffsetsBehindLatest": str(found) for name, found in metrics.items()}
    if client is not None:
        late = {partition: end.offsets.get(partition, 0) for partition, count in behind.items() if count}
        ages = ages_s(client.cluster, late)
        if set(ages) == set(late):
            named["maxSecondsBehindLatest"] = f"{max(ages.values(), default=0.0):.3f}"
    return {**source, "description": description, "metrics": named}


def read_state(client: Client, group: str, path: Path | None = None) -> PipelineState | None:
    """Returns the current state of a pipeline: the contents of its local file, if there is one, with later commits from the log.

    Returns None if neither has data of a pipeline.
    """
    state = (load_state(path) if path is not None else None) or PipelineState(group=group, state="")
    if is_killed(state):
        state.state = KILLED
    try:
        take_commits(state, CommitHistory(client, group, position=state.log_position))
    except UnknownTopicError:
        pass
    take_ends(state, client)
    return state if state.starts or state.commits else None


def take_commits(state: PipelineState, history: CommitHistory) -> bool:
    """Reads the group's new commits into its state; returns whether there were any."""
    history.extend()
    commits, history.commits = history.commits, []
    state.log_position = history.position
    for commit in commits:
        take_commit(state, commit)
    return bool(commits)


def take_ends(state: PipelineState, client: Client) -> bool:
    """Updates the ends of the source's partitions, and how old the first record is that is not committed. Returns whether an end or the lag
    in whole seconds has changed."""
    lag_seconds = int(state.lag_seconds)
    positions = {TopicPartition(one.topic, one.partition): one for one in state.positions}
    ends = client.list_offsets(dict.fromkeys(positions, LATEST)) if positions else {}
    has_moved = False
    for partition, found in ends.items():
        has_moved = has_moved or positions[partition].end != found.offset
        positions[partition].end = found.offset
    try:
        ages = ages_s(client.cluster, {partition: one.committed for partition, one in positions.items() if one.lag})
    except ClientError:
        ages = {}  # such as without permission to read the topic, which the ends do not need
    for partition, one in positions.items():
        one.lag_seconds = ages.get(partition, one.lag_seconds if one.lag else 0.0)
    return has_moved or int(state.lag_seconds) != lag_seconds


def take_commit(state: PipelineState, commit: GroupCommit) -> None:
    """Adds one commit of the group to its state. A commit of another program changes only the positions in the state."""
    if commit.metadata is not None:
        state.query_id, state.batch_id = commit.metadata.query_id, commit.metadata.batch_id
        state.commits += 1
        if commit.metadata.run:
            state.log_restarts = max(state.log_restarts, commit.metadata.restarts)
        state.rows_out += commit.metadata.rows
        state.last_commit_ms = commit.timestamp_ms
    known = {(one.topic, one.partition): one for one in state.positions}
    for partition, found in commit.ranges.items():
        if found.end is None:
            continue
        position = known.get(partition)
        if position is None:
            position = known[partition] = SourcePosition(topic=partition.topic, partition=partition.partition, committed=0, end=0)
        position.committed = found.end
        position.end = max(position.end, found.end)
    state.positions = [known[key] for key in sorted(known)]  # a new list, because the metrics thread may be iterating over the old one


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
