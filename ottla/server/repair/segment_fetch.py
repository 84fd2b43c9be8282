"""Repairs one damaged segment of an open log with the records of another replica.

The broker sends the Fetch requests of a consumer. Any replica, leader or follower, answers them with records below its high watermark, so
uncommitted records are never used. The records of each answer are checked and written in a thread (`storage/segment_repair.py`). At the end
the new files are put in place on the loop. A failure before that ends the attempt with a reason and changes nothing in the log. If the disk
fails then, the replica is taken offline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ErrorCode, StorageError, error_code
from ottla.base.ports import Disk, Peers, Threads
from ottla.replication.partition import Partition
from ottla.storage import segment_repair
from ottla.storage.file_slice import DirectorySync
from ottla.storage.segment import Segment
from ottla.storage.segment_repair import RefusedBatch, Replacement
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

REPAIR_LANE = "repair"
FETCH_BYTES = 4 << 20

Done = Callable[[str, list[str]], object]
"""Called with the reason of a failure, empty after a success, and with the old files, to be removed later."""


class SegmentFetch:
    """One attempt with one replica."""

    def __init__(
        self, partition: Partition, segment: Segment, source: int, *, disk: Disk, threads: Threads, peers: Peers, now_ms: int, done: Done
    ) -> None:
        self.source = source
        self.batches = 0
        """Written so far."""
        self._partition = partition
        self._disk = disk
        self._threads = threads
        self._peers = peers
        self._done = done
        self._plan, self._old = segment_repair.plan(partition.log, segment, now_ms=now_ms)
        self._replacement: Replacement | None = None

    def begin(self) -> None:
        self._in_thread(lambda: Replacement(self._disk, self._plan), self._begun)

    def _begun(self, replacement: Replacement) -> None:
        self._replacement = replacement
        self._ask()

    def _ask(self) -> None:
        assert self._replacement is not None
        if not self._partition.is_online:
            self._fail("the log went offline")
            return
        asked = FetchPartition(
            partition=self._partition.topic_partition.partition,
            current_leader_epoch=self._partition.leader_epoch,
            fetch_offset=self._replacement.next_offset,
            partition_max_bytes=FETCH_BYTES,
        )
        topic = FetchTopic(topic_id=self._partition.topic_id, partitions=[asked])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, topics=[topic])
        self._peers.send(self.source, request, self._answered, lane=REPAIR_LANE)

    def _answered(self, response: FetchResponse | None, code: int) -> None:
        answers = [] if response is None else [data for topic in response.responses for data in topic.partitions]
        if response is not None:
            code = response.error_code or (answers[0].error_code if answers else ErrorCode.UNKNOWN_SERVER_ERROR)
        if code:
            self._fail(f"broker {self.source} answers {error_code(code).name}")
            return
        records = bytes(answers[0].records or b"")  # a copy, because the receiver's buffer is reused
        replacement = self._replacement
        assert replacement is not None

        def add() -> bool:
            replacement.add(records)
            self.batches = replacement.batches
            return replacement.is_complete

        self._in_thread(add, self._added)

    def _added(self, is_complete: bool) -> None:
        if not is_complete:
            self._ask()
            return
        assert self._replacement is not None
        self._in_thread(self._replacement.finish, self._install)

    def _install(self, bases: tuple[int, ...]) -> None:
        log = self._partition.log
        try:
            retired = segment_repair.install(log, self._plan, self._old, bases) if self._partition.is_online else None
        except StorageError as error:
            self._partition.fail(error)
            self._done(str(error), [])
            return
        if retired is None:
            self._fail("the log has changed meanwhile")
            return
        sync = DirectorySync(self._disk, log.directory)
        self._threads.run(lambda: _attempt(sync.sync), lambda _: self._done("", retired))

    def _fail(self, reason: str) -> None:
        replacement = self._replacement

        def discard() -> None:
            if replacement is not None:
                replacement.discard()

        self._threads.run(lambda: _attempt(discard), lambda _: self._done(reason, []))

    def _in_thread(self, work: Callable[[], Any], then: Callable[[Any], object]) -> None:
        """Runs `work` in a thread, then calls `then` on the loop with its result, unless it failed."""

        def after(outcome: tuple[Any, Exception | None]) -> None:
            result, error = outcome
            if isinstance(error, RefusedBatch):
                self._fail(f"broker {self.source} sent {error}")
            elif error is not None:
                self._fail(str(error) or type(error).__name__)
            else:
                then(result)

        self._threads.run(lambda: _attempt(work), after)


def _attempt(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Returns the result of the work, and the error if it failed."""
    try:
        return work(), None
    except (RefusedBatch, StorageError, FileNotFoundError) as error:
        return None, error
