"""One clone from its start, or from where an earlier one ended, to the finished data directory.

`DIR.partial` has the plan, and in `data` the logs. A clone that finds a plan of the same request continues: `Log.open` checks what was
copied and cuts a torn end, and the rest is copied from there. `data` becomes `DIR` with one rename, after everything in it is synced. After
a kill before the rename there is no `DIR`, and after a later kill it is complete.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla.adapters.disk import OsDisk
from ottla.adapters.lock import DirectoryLock
from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError, DirectoryRefused
from ottla.client.blocking.client import Client
from ottla.client.errors import UnknownTopicError
from ottla.cloning.bounds import Range
from ottla.cloning.directory import ClonedLog, closed, finish_directory
from ottla.cloning.open_transactions import end_transactions
from ottla.cloning.partition_copy import Moved, PartitionCopy
from ottla.cloning.plan import CloneError, ClonePlan, read_plan, write_plan
from ottla.cloning.record_change import RecordChange
from ottla.cloning.source import plan_clone, replaced_topic

PARTIAL_SUFFIX = ".partial"
DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest:
    """The options of a clone. `groups` None: all groups that commit offsets for the topics. `settings` replace the source's.
    `description` differs if another request would store other records."""

    target: Path
    topics: Sequence[str]
    groups: Sequence[str] | None
    range: Range
    settings: dict[str, str]
    change: RecordChange | None
    description: str


@dataclass(slots=True)
class Cloned:
    """The result. `logs` are the topics' logs."""

    plan: ClonePlan
    logs: list[ClonedLog]
    bytes: int
    is_continued: bool
    notes: list[str] = field(default_factory=list)


def check_target(target: Path) -> None:
    """Raises `CloneError` if the target has something in it."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CloneError(f"{target} is not empty; a clone gets a new directory: name another by --data-dir, or run `ottla reset` before")


def make_clone(client: Client, request: CloneRequest, planned: Callable[[int], Moved]) -> Cloned:
    """Makes the clone, or continues an unfinished one. `planned` is called with the number of offsets to copy and returns a function for
    progress. Raises `CloneError`, `ClientError` and `StorageError`."""
    check_target(request.target)
    partial = request.target.with_name(request.target.name + PARTIAL_SUFFIX)
    partial.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = DirectoryLock(str(partial))
    except DirectoryRefused:
        raise CloneError(f"another clone to {request.target} is running") from None
    try:
        return _Clone(client, request, partial).run(planned)
    finally:
        lock.release()


class _Clone:
    """A clone with the lock on its partial directory."""

    def __init__(self, client: Client, request: CloneRequest, partial: Path) -> None:
        self._client = client
        self._request = request
        self._partial = partial
        self._data = partial / DATA
        self._config = BrokerConfig()

    def run(self, planned: Callable[[int], Moved]) -> Cloned:
        plan, is_continued = self._plan()
        ends_known_s = time.monotonic()
        moved = planned(sum(bounds.end - bounds.start for _, _, bounds in plan.partitions()))
        notes = [*plan.notes]
        logs, waiting = self._copy(plan, moved, notes)
        try:
            notes += end_transactions(self._client, waiting, ends_known_s)
            replaced = replaced_topic(self._client, plan)
        except UnknownTopicError as error:
            raise CloneError(f"{error.message}: the topic was deleted while it was cloned") from None
        if replaced is not None:
            raise CloneError(f"topic {replaced!r} was deleted and created again at the source; run the command again to start over")
        logs += [self._closed(copy) for copy in waiting]
        logs.sort()
        finish_directory(str(self._data), plan, logs, _now_ms())
        size = sum(path.stat().st_size for path in self._data.rglob("*") if path.is_file())
        self._install()
        return Cloned(plan, logs, size, is_continued, notes)

    def _plan(self) -> tuple[ClonePlan, bool]:
        """Returns the stored plan and True if this request was begun before, else a new plan after the removal of older files."""
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

    def _copy(self, plan: ClonePlan, moved: Moved, notes: list[str]) -> tuple[list[ClonedLog], list[PartitionCopy]]:
        """Copies all partitions. Returns the closed logs, and the copies with an open transaction, which are still open."""
        logs, waiting = [], []
        for topic, partition, bounds in plan.partitions():
            try:
                config = self._config.log_config(topic.settings)
            except ApiError as error:
                raise CloneError(f"settings of {topic.name!r}: {error.message}") from None
            copy = PartitionCopy(
                OsDisk(), str(self._data), partition, bytes.fromhex(topic.topic_id), config, bounds,
                now_ms=_now_ms(), has_fixed_end=plan.has_fixed_end, change=self._request.change,
            )  # fmt: skip
            copy.copy(self._client, moved)
            notes += copy.notes
            if copy.open_producers:
                waiting.append(copy)
            else:
                logs.append(self._closed(copy))
        return logs, waiting

    def _closed(self, copy: PartitionCopy) -> ClonedLog:
        return closed(copy.log, copy.topic_id, copy.leader_epoch)

    def _install(self) -> None:
        target = self._request.target
        if target.exists():
            target.rmdir()
        os.sync()
        self._data.rename(target)
        OsDisk().sync_directory(str(target.parent))
        shutil.rmtree(self._partial)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
