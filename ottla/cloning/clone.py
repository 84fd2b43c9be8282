"""Makes a clone: copies topics from a source cluster to a new data directory `DIR`, or continues an unfinished clone. While the clone runs,
the plan is in `DIR.partial` and the logs are in `DIR.partial/data`. A clone that finds a plan of the same request continues: `Log.open`
checks the copied records and cuts a torn end, and then the remaining records are copied. `data` becomes `DIR` with one rename, after
everything in it is synced. If the process is killed before the rename, `DIR` does not exist or is still empty. If it is killed later, `DIR`
is complete.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ottla.adapters.disk import OsDisk
from ottla.adapters.lock import DirectoryLock
from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError, DirectoryRefused
from ottla.client.blocking.client import Client
from ottla.client.errors import UnknownTopicError
from ottla.cloning.bounds import Range
from ottla.cloning.directory import ClonedLog, closed, finish_directory
from ottla.cloning.following import Following, State
from ottla.cloning.partition_copy import Moved, PartitionCopy
from ottla.cloning.plan import CloneError, ClonePlan, read_plan, write_plan
from ottla.cloning.record_change import RecordChange
from ottla.cloning.source import notes_of_groups, plan_clone, renew_plan, replaced_topic
from ottla.cloning.transaction_ends import end_transactions
from ottla.storage.offset_checkpoints import read_entries

PARTIAL_SUFFIX = ".partial"
DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest:
    """The options of a clone. `groups` None: all groups that commit offsets for the topics. `settings` replace the source's. `description`
    is a text of all options that change the copied records: an unfinished clone continues only if its plan has the same text.
    """

    target: Path
    topics: Sequence[str]
    groups: Sequence[str] | None
    range: Range
    settings: dict[str, str]
    change: RecordChange | None
    description: str


class Follow(NamedTuple):
    """How to follow the source: until `is_over()` is true; `report` is called every second."""

    is_over: Callable[[], bool]
    report: Callable[[State], object]


@dataclass(slots=True)
class Cloned:
    """The result of a clone. `logs` are the topics' logs, `bytes` is the size of all files."""

    plan: ClonePlan
    logs: list[ClonedLog]
    bytes: int
    is_continued: bool
    notes: list[str] = field(default_factory=list)


def check_target(target: Path) -> None:
    """Raises `CloneError` unless the target is missing or an empty directory, `OSError` if it cannot be read."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CloneError(f"{target} is not empty; a clone gets a new directory: name another by --data-dir, or run `ottla reset` before")


def make_clone(client: Client, request: CloneRequest, planned: Callable[[int], Moved], follow: Follow | None = None) -> Cloned:
    """Makes the clone, or continues an unfinished one. `planned` is called with the number of offsets to copy and returns a function for
    progress. With `follow` the clone follows the source until `follow.is_over`. Raises `CloneError`, `ClientError` and `StorageError`."""
    partial = request.target.with_name(request.target.name + PARTIAL_SUFFIX)
    try:
        check_target(request.target)
        partial.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = DirectoryLock(str(partial))
        try:
            return _Clone(client, request, partial).run(planned, follow)
        finally:
            lock.release()
    except DirectoryRefused:
        raise CloneError(f"another clone to {request.target} is running") from None
    except OSError as error:
        raise CloneError(f"cannot write {error.filename or partial}: {(error.strerror or str(error)).lower()}") from None


class _Clone:
    """A clone with the lock on its partial directory."""

    def __init__(self, client: Client, request: CloneRequest, partial: Path) -> None:
        self._client = client
        self._request = request
        self._partial = partial
        self._data = partial / DATA
        self._config = BrokerConfig()

    def run(self, planned: Callable[[int], Moved], follow: Follow | None) -> Cloned:
        plan, is_continued = self._plan()
        try:
            copies = self._open(plan)
            moved = planned(sum(max(0, copy.end - copy.position) for copy in copies))
            if follow is not None:
                self._copy(copies, moved)
                following = Following(self._client, self._data, copies, check=lambda: self._check(plan), report=follow.report)
                following.run(follow.is_over)
            if (is_continued or follow is not None) and not plan.has_fixed_end:
                renew_plan(self._client, plan, self._request.groups, self._request.settings)
            ends_known_s = time.monotonic()
            self._copy(copies, moved)
            self._note_ends(plan, copies)
            notes = [*plan.notes, *notes_of_groups(plan), *(note for copy in copies for note in copy.notes)]
            notes += end_transactions(self._client, [copy for copy in copies if copy.open_producers], ends_known_s)
            self._check(plan)
        except UnknownTopicError as error:
            raise _deleted(error) from None
        logs = sorted(closed(copy.log, copy.topic_id, copy.leader_epoch) for copy in copies)
        finish_directory(str(self._data), plan, logs, _now_ms())
        size = sum(path.stat().st_size for path in self._data.rglob("*") if path.is_file())
        self._install()
        return Cloned(plan, logs, size, is_continued, notes)

    def _check(self, plan: ClonePlan) -> None:
        try:
            replaced = replaced_topic(self._client, plan)
        except UnknownTopicError as error:
            raise _deleted(error) from None
        if replaced is not None:
            raise CloneError(f"topic {replaced!r} was deleted and created again at the source; run the command again to start over")

    def _plan(self) -> tuple[ClonePlan, bool]:
        """Returns the stored plan and True if there is an unfinished clone of this request. Otherwise removes older files, and returns a
        new plan and False.
        """
        found = read_plan(self._partial)
        if found is not None and self._is_of_this_request(found):
            self._data.mkdir(mode=0o700, exist_ok=True)
            return found, True
        shutil.rmtree(self._data, ignore_errors=True)
        request = self._request
        self._config.check_topic(request.settings)
        plan = plan_clone(
            self._client, request.topics, request.groups, request.range, request.settings, request.description,
            os.urandom(16 * len(request.topics)),
        )  # fmt: skip
        self._data.mkdir(mode=0o700)
        write_plan(self._partial, plan)
        return plan, False

    def _is_of_this_request(self, plan: ClonePlan) -> bool:
        is_same = plan.request == self._request.description and plan.cluster_id == (self._client.cluster_id or "")
        return is_same and replaced_topic(self._client, plan) is None

    def _open(self, plan: ClonePlan) -> list[PartitionCopy]:
        """Opens the logs of all partitions. If an earlier run was killed at the end, it removes the transaction markers that this run has
        appended (`transaction_ends.py`).
        """
        copies, noted = [], read_entries(OsDisk(), str(self._data), plan.notes.append)
        for topic, partition, bounds in plan.partitions():
            try:
                config = self._config.log_config(topic.settings)
            except ApiError as error:
                raise CloneError(f"settings of {topic.name!r}: {error.message}") from None
            copy = PartitionCopy(
                OsDisk(), str(self._data), partition, bytes.fromhex(topic.topic_id), replace(config, retention_ms=-1, retention_bytes=-1),
                bounds, now_ms=_now_ms(), has_fixed_end=plan.has_fixed_end, change=self._request.change, noted=noted.get(partition),
            )  # fmt: skip
            if plan.is_ending:
                copy.cut_own(bounds.end)
            copies.append(copy)
        if plan.is_ending:
            plan.is_ending = False
            write_plan(self._partial, plan)
        return copies

    def _copy(self, copies: Sequence[PartitionCopy], moved: Moved) -> None:
        for copy in copies:
            copy.copy(self._client, moved)

    def _note_ends(self, plan: ClonePlan, copies: Sequence[PartitionCopy]) -> None:
        """Stores the ends of the copies, before the clone appends its own transaction markers."""
        for (_, _, bounds), copy in zip(plan.partitions(), copies, strict=True):
            bounds.end = copy.log.log_end_offset
        plan.is_ending = True
        write_plan(self._partial, plan)

    def _install(self) -> None:
        target = self._request.target
        if target.exists():
            target.rmdir()
        os.sync()
        self._data.rename(target)
        OsDisk().sync_directory(str(target.parent))
        shutil.rmtree(self._partial)


def _deleted(error: UnknownTopicError) -> CloneError:
    return CloneError(f"{error.message}: the topic was deleted while it was cloned")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
