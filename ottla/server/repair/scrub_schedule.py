"""Checks all segments in the background at a limited rate, and passes damage to the repairs.

A round checks all logs once. It begins with a random log, so that a broker that is often restarted does not check the same ones each time.
A round begins `ottla.scrub.interval.ms` after the last round began, or when the last one ends if that is later. The first one begins ten
minutes after the start, or earlier if the interval is shorter. One segment is read at a time, `ottla.scrub.io.max.bytes.per.second` at
most. A changed rate applies from the next segment, a changed interval immediately. Pages in the kernel's page cache are not read from the
disk, so damage of the disk behind them is found later.

An active segment is read up to its end at the start of its check. If it is sealed or cut meanwhile, the next round checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.base.config import BrokerConfig
from ottla.base.ports import Clock, Random, TimerHandle, Timers
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.server.partition_table import PartitionTable
from ottla.server.repair.segment_checks import PIECE_BYTES, SegmentChecks
from ottla.storage.segment import Segment
from ottla.storage.segment_check import SegmentCheck

FIRST_ROUND_MS_MAX = 600_000
LOGS_PER_TURN = 200

Take = Callable[[Partition, Segment, SegmentCheck], object]


class ScrubSchedule:
    """The scrub of one broker."""

    def __init__(
        self, *, config: BrokerConfig, clock: Clock, timers: Timers, random: Random, partitions: PartitionTable, checks: SegmentChecks,
        take: Take,
    ) -> None:  # fmt: skip
        self._config = config
        self._clock = clock
        self._timers = timers
        self._random = random
        self._partitions = partitions
        self._checks = checks
        self._take = take
        self._due: Iterator[tuple[Partition, Segment] | None] | None = None
        self._began_ms: int | None = None
        self._handle: TimerHandle | None = None
        self._is_stopped = False
        self.rounds = 0
        """Complete rounds."""

    def start(self) -> None:
        self._began_ms = self._clock.monotonic_ms()
        self._config.on_change(lambda _names: self._wait())
        self._wait()

    def stop(self) -> None:
        self._is_stopped = True
        self._cancel()

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self) -> None:
        """Sets the timer of the next round, unless a round is in progress."""
        interval_ms = self._config.ottla_scrub_interval_ms
        self._cancel()
        if self._is_stopped or self._due is not None or not interval_ms or self._began_ms is None:
            return
        pause_ms = interval_ms if self.rounds else min(interval_ms, FIRST_ROUND_MS_MAX)
        self._handle = self._timers.call_later(max(self._began_ms + pause_ms - self._clock.monotonic_ms(), 0), self._begin)

    def _begin(self) -> None:
        self._handle = None
        self._began_ms = self._clock.monotonic_ms()
        keys = [partition.topic_partition for partition in self._partitions.all()]
        first = self._random.uniform(0, len(keys)) if keys else 0
        self._due = self._segments([*keys[int(first) :], *keys[: int(first)]])
        self._next()

    def _segments(self, keys: list[TopicPartition]) -> Iterator[tuple[Partition, Segment] | None]:
        """Yields the segments of these logs, and None where the event loop should serve others."""
        for number, key in enumerate(keys, 1):
            partition = self._partitions.get(*key)
            if partition is not None and partition.is_online:
                yield from [(partition, segment) for segment in partition.log.segments if segment.size or segment.is_sealed]
            if not number % LOGS_PER_TURN:
                yield None

    def _next(self) -> None:
        if self._is_stopped or self._due is None:
            return
        if not self._config.ottla_scrub_interval_ms:
            self._due = None
            return
        try:
            found = next(self._due)
        except StopIteration:
            self._due = None
            self.rounds += 1
            self._wait()
            return
        if found is None or found[1] not in found[0].log.segments:
            self._timers.call_soon(self._next)
            return
        partition, segment = found
        rate = self._config.ottla_scrub_io_max_bytes_per_second
        self._checks.run(partition, segment, lambda check: self._checked(partition, segment, check), bytes_per_second=rate)

    def _checked(self, partition: Partition, segment: Segment, check: SegmentCheck | None) -> None:
        if check is not None:
            self._take(partition, segment, check)
        # The check pauses after each complete piece, but not after the last piece.
        last_bytes = 0 if check is None else check.bytes % PIECE_BYTES
        self._timers.call_later(max(last_bytes * 1000 // self._config.ottla_scrub_io_max_bytes_per_second, 1), self._next)
