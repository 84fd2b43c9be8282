"""Copies new records of the source after everything else was copied, until the caller ends it (`ottla clone --follow`). One Fetch asks for
all partitions of a broker and waits for records. Every second the state is written to `state.json` beside the plan, and passed to the
caller. It has the end of the source, the end of the copy and the lag of each partition. If the source is unreachable or has no leader for a
partition, the state has the error, and requests are repeated until they succeed. Once a minute the topics are checked, records that the
source has deleted are deleted in all copies, the copies are flushed, and their recovery points are stored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ottla.adapters.disk import OsDisk
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.admin import EARLIEST, LATEST
from ottla.client.errors import KafkaError, OffsetOutOfRangeError, TransportError, UnknownTopicError
from ottla.cloning.partition_copy import FETCH_BYTES, PartitionCopy
from ottla.storage.offset_checkpoints import write_entries
from ottla.storage.small_files import write_atomically

STATE_FILE = "state.json"
STATE_SECONDS = 1.0
CHECKPOINT_SECONDS = 60.0
RETRY_SECONDS = 1.0
UNKNOWN_SECONDS_MAX = 5.0

State = dict[str, Any]
"""`time` in milliseconds since 1970, `lag` in offsets, `error` (None while the source answers), and `partitions`."""


class Following:
    """The copies of all partitions, and their state. `check` raises `CloneError` if a topic was deleted or replaced at the source."""

    def __init__(
        self,
        client: Client,
        directory: Path,
        copies: Sequence[PartitionCopy],
        *,
        check: Callable[[], object],
        report: Callable[[State], object],
    ) -> None:
        self._client = client
        self._directory = directory
        self._copies = {copy.partition: copy for copy in copies}
        self._check = check
        self._report = report
        self._error: str | None = None
        self._ends: dict[TopicPartition, int] = {}

    def run(self, is_over: Callable[[], bool]) -> None:
        """Follows until `is_over()` is true. Raises `CloneError`, `StorageError`, and `KafkaError` if the source refuses a request.

        A broker that has just started may not know a topic yet. So `check` is called only if a topic stays unknown for
        `UNKNOWN_SECONDS_MAX`.
        """
        unknown_since_s: float | None = None
        next_state_s, next_checkpoint_s = 0.0, time.monotonic() + CHECKPOINT_SECONDS
        while not is_over():
            try:
                self._fetch()
                if time.monotonic() >= next_state_s:
                    self._ends = self._offsets(LATEST)
                if time.monotonic() >= next_checkpoint_s:
                    self._checkpoint()
                    next_checkpoint_s = time.monotonic() + CHECKPOINT_SECONDS
                self._error = unknown_since_s = None
            except (TransportError, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.is_retriable:
                    raise
                if not isinstance(error, UnknownTopicError):
                    unknown_since_s = None
                elif unknown_since_s is None:
                    unknown_since_s = time.monotonic()
                elif time.monotonic() >= unknown_since_s + UNKNOWN_SECONDS_MAX:
                    self._check()
                self._error = str(error)
                time.sleep(RETRY_SECONDS)
            if time.monotonic() >= next_state_s:
                next_state_s = time.monotonic() + STATE_SECONDS
                self._show()
        self._show()

    def _fetch(self) -> None:
        positions = {partition: copy.position for partition, copy in self._copies.items()}
        try:
            found = self._client.fetch(positions, isolation="read_uncommitted", partition_max_bytes=FETCH_BYTES)
        except OffsetOutOfRangeError:
            self._check()
            self._adopt_starts()
            for partition, end in self._offsets(LATEST).items():
                self._copies[partition].check_end(end)
            return
        for fetched in found:
            self._copies[fetched.partition].take(fetched, _now_ms())

    def _adopt_starts(self) -> None:
        for partition, start in self._offsets(EARLIEST).items():
            self._copies[partition].find_start(self._client, start, _now_ms())

    def _offsets(self, moment: int) -> dict[TopicPartition, int]:
        found = self._client.list_offsets(dict.fromkeys(self._copies, moment), isolation="read_uncommitted")
        return {partition: at.offset for partition, at in found.items()}

    def _show(self) -> None:
        partitions = [
            {
                "topic": one.topic, "partition": one.partition, "source_end": end, "end": self._copies[one].position,
                "lag": max(0, end - self._copies[one].position),
            }
            for one, end in sorted(self._ends.items())
        ]  # fmt: skip
        state: State = {
            "time": _now_ms(), "lag": sum(one["lag"] for one in partitions), "error": self._error, "partitions": partitions,
        }  # fmt: skip
        write_atomically(OsDisk(), str(self._directory.parent / STATE_FILE), json.dumps(state, indent=1).encode(), is_durable=False)
        self._report(state)

    def _checkpoint(self) -> None:
        self._check()
        self._adopt_starts()
        for copy in self._copies.values():
            copy.log.flush()
        write_entries(OsDisk(), str(self._directory), {partition: copy.offsets for partition, copy in self._copies.items()})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
