"""Handles damage in the open logs of a broker: determines its extent, hands leadership over, repairs the segment.

A segment is checked when a read found bytes that are no batch, or a follower was sent a damaged batch. The scrub checks all segments. Only
a check decides that a segment is damaged: reads of the damaged offsets are refused from then on, and all other records are served
(`replication/damage.py`). The active segment is sealed before its repair, so that only sealed segments are repaired.

A leader with other live replicas in sync reports itself as failed, once for all damage of its log. Then the controller removes this replica
from the in-sync set, elects another leader, and makes this replica a follower. A follower, or a leader without such replicas, fetches the
segment from the leader or another replica of the partition. If there are no other replicas, or after `FAILURES_TO_SAY` failed attempts, one
log line names the lost offsets and the possible remedies. Damage below the log start offset is ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.base.errors import StorageError
from ottla.base.ports import Clock, Disk, Peers, Threads, TimerHandle, Timers
from ottla.cluster.metadata_cache import MetadataCache
from ottla.replication.damage import Damage
from ottla.replication.partition import Partition
from ottla.server.partition_table import PartitionTable
from ottla.server.repair.segment_checks import SegmentChecks
from ottla.server.replica_changes import ReplicaChanges
from ottla.storage import known_damage
from ottla.storage.segment import LOG_SUFFIX, Segment
from ottla.storage.segment_check import DamagedRange, SegmentCheck

if TYPE_CHECKING:
    from ottla.server.repair.segment_fetch import SegmentFetch

log = logging.getLogger("ottla.repair")

REVIEW_MS = 200
"""Interval, in milliseconds, at which the damaged logs are examined: whether damage is left, and whether a repair can begin."""
HANDOVER_MS = 5_000
"""A leader that has reported itself as failed repairs the segment itself if it still leads after this many milliseconds."""
RETRY_MS_MIN, RETRY_MS_MAX = 200, 30_000
FAILURES_TO_SAY = 3
"""Number of failed attempts after which a log line says which offsets are lost. Attempts continue."""


class Case:
    """The damage of one log."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.has_handed_over = False
        self.not_before_ms = 0
        self.attempts = 0
        self.fetch: SegmentFetch | None = None
        self.is_final = False
        """Whether no other replica seems to be able to repair it."""

    @property
    def ranges(self) -> tuple[DamagedRange, ...]:
        return self.partition.state.damage.ranges if self.partition.state.damage is not None else ()

    def note(self, ranges: Iterable[DamagedRange]) -> None:
        self.partition.state.damage = Damage(ranges, is_final=self.is_final)

    def give_up(self) -> None:
        """Logs once that no other replica can repair the damage."""
        if not self.is_final:
            self.is_final = True
            self.note(self.ranges)
            log.error("%s", _loss(self))


class Repairs:
    """The cases of one broker. The segments of a log are repaired one after another."""

    def __init__(
        self, *, broker_id: int, clock: Clock, timers: Timers, disk: Disk, threads: Threads, peers: Peers, metadata: MetadataCache,
        partitions: PartitionTable, replicas: ReplicaChanges, checks: SegmentChecks,
        remove_later: Callable[[list[str], int], None], is_compacting: Callable[[Partition], bool],
    ) -> None:  # fmt: skip
        self._broker_id = broker_id
        self._clock = clock
        self._timers = timers
        self._disk = disk
        self._threads = threads
        self._peers = peers
        self._metadata = metadata
        self._partitions = partitions
        self._replicas = replicas
        self._checks = checks
        self._remove_later = remove_later
        self._is_compacting = is_compacting
        self._cases: dict[Partition, Case] = {}
        self._doubted: dict[Segment, None] = {}
        self._fetching: set[str] = set()
        """Directories of logs that are being repaired. A log that was opened again waits until the repair that began before has ended,
        because both would write the same files."""
        self._timer: TimerHandle | None = None
        self._is_stopped = False
        self.found = 0
        """Damaged ranges found so far, by the growth of their number at each check."""
        self.repaired = 0
        """Damaged ranges repaired so far."""

    @property
    def unrepaired(self) -> int:
        """Returns the number of damaged ranges in open logs."""
        return sum(len(case.ranges) for case in self._cases.values())

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # Finding

    def doubt(self, partition: Partition, path: str) -> None:
        """Checks a segment that may be damaged, unless it is already being checked."""
        segment = next((found for found in partition.log.segments if found.path(LOG_SUFFIX) == path), None)
        if segment is None or segment in self._doubted or self._is_stopped:
            return
        self._doubted[segment] = None

        def checked(check: SegmentCheck | None) -> None:
            del self._doubted[segment]
            if check is not None:
                self.take(partition, segment, check)

        self._checks.run(partition, segment, checked)

    def take(self, partition: Partition, segment: Segment, check: SegmentCheck) -> None:
        """Processes the result of a check: notes the damage, and plans the repair. A damaged active segment is sealed and checked again."""
        if not check.damaged or segment.is_sealed:
            self._remember(partition, segment.base_offset, is_damaged=bool(check.damaged))
        case = self._cases.get(partition)
        known = [] if case is None else [found for found in case.ranges if found.base_offset != segment.base_offset]
        if check.damaged and not segment.is_sealed:
            self._seal(partition, segment)
            return
        before = len(case.ranges) if case is not None else 0
        if check.damaged and case is None:
            case = self._cases[partition] = Case(partition)
        if case is None:
            return
        case.note([*known, *check.damaged])
        if len(case.ranges) > before:
            self.found += len(case.ranges) - before
            _report(partition, check.damaged)
        self._review_soon()

    def _remember(self, partition: Partition, base_offset: int, *, is_damaged: bool) -> None:
        """Notes on the disk whether this segment is damaged."""
        found, own = partition.log, frozenset((base_offset,))
        bases = found.known_damage | own if is_damaged else found.known_damage - own
        if bases == found.known_damage:
            return
        try:
            known_damage.write(self._disk, found.directory, bases)
        except StorageError as error:
            log.warning("%s", error)
        found.known_damage = bases

    def _seal(self, partition: Partition, segment: Segment) -> None:
        """Rolls the log, so that the damaged active segment can be replaced. Then checks this segment again, because it no longer changes.
        """
        try:
            partition.log.roll()
        except StorageError as error:
            partition.fail(error)
            return
        self.doubt(partition, segment.path(LOG_SUFFIX))

    # Deciding

    def _review_soon(self) -> None:
        if self._timer is None and not self._is_stopped:
            self._timer = self._timers.call_later(0, self._review)

    def _review(self) -> None:
        self._timer = None
        for case in list(self._cases.values()):
            if self._is_over(case):
                del self._cases[case.partition]
            elif case.fetch is None:
                self._decide(case)
        if self._cases and not self._is_stopped:
            self._timer = self._timers.call_later(REVIEW_MS, self._review)

    def _is_over(self, case: Case) -> bool:
        """Whether no damage is left, or the replica is no longer on this broker. Notes the remaining damage."""
        partition = case.partition
        if self._partitions.get(*partition.topic_partition) is not partition:
            return True
        bases = {segment.base_offset: segment.end_offset for segment in partition.log.segments if segment.is_sealed}
        start = partition.log.log_start_offset
        left = [found for found in case.ranges if bases.get(found.base_offset, 0) >= found.end_offset > start]
        for base_offset in {found.base_offset for found in case.ranges} - {found.base_offset for found in left}:
            self._remember(partition, base_offset, is_damaged=False)
        if not left:
            partition.state.damage = None
            self._show_online(partition)
            return True
        if len(left) < len(case.ranges):
            case.note(left)
        return False

    def _decide(self, case: Case) -> None:
        partition, now_ms = case.partition, self._clock.monotonic_ms()
        if partition.log.directory in self._fetching:
            return
        if not partition.is_online or self._partitions.is_moving(partition) or self._is_compacting(partition):
            return
        if partition.leader is not None and not case.has_handed_over and self._others(partition, partition.isr):
            case.has_handed_over = True
            case.not_before_ms = now_ms + HANDOVER_MS
            log.warning("%s is damaged here; another replica takes over, then this one is repaired", partition.topic_partition)
            self._replicas.mark_offline([partition.topic_partition])
            return
        is_relieved = case.has_handed_over and partition.leader is None and not case.attempts
        if now_ms < case.not_before_ms and not is_relieved:
            return
        sources = self._others(partition, [partition.leader_id, *partition.state.replicas])
        if sources:
            self._repair(case, sources[case.attempts % len(sources)])
        elif not self._others(partition, partition.state.replicas, must_live=False):
            case.give_up()

    def _others(self, partition: Partition, replicas: list[int] | tuple[int, ...], *, must_live: bool = True) -> list[int]:
        """Returns the brokers in `replicas` other than this one; only live ones if `must_live`."""
        brokers = self._metadata.brokers
        return [each for each in dict.fromkeys(replicas) if each not in (self._broker_id, -1) and (each in brokers or not must_live)]

    # Repairing

    def _repair(self, case: Case, source: int) -> None:
        from ottla.server.repair.segment_fetch import SegmentFetch  # on use: it imports the rewriting of segments

        partition = case.partition
        base_offset = case.ranges[0].base_offset
        segment = next(found for found in partition.log.segments if found.base_offset == base_offset)
        case.attempts += 1
        directory = partition.log.directory
        self._fetching.add(directory)
        case.fetch = SegmentFetch(
            partition, segment, source, disk=self._disk, threads=self._threads, peers=self._peers, now_ms=self._clock.wall_ms(),
            done=lambda reason, retired: self._ended(case, directory, base_offset, reason, retired),
        )  # fmt: skip
        case.fetch.begin()

    def _ended(self, case: Case, directory: str, base_offset: int, reason: str, retired: list[str]) -> None:
        fetch, case.fetch = case.fetch, None
        self._fetching.discard(directory)
        partition = case.partition
        assert fetch is not None
        if self._is_stopped:
            return
        if reason:
            case.not_before_ms = self._clock.monotonic_ms() + min(RETRY_MS_MIN << min(case.attempts, 16), RETRY_MS_MAX)
            log.warning("%s was not repaired: %s", partition.topic_partition, reason)
            if case.attempts >= FAILURES_TO_SAY:
                case.give_up()
            return
        self._remove_later(retired, partition.log.config.file_delete_delay_ms)
        mended = [found for found in case.ranges if found.base_offset == base_offset]
        case.note(found for found in case.ranges if found.base_offset != base_offset)
        self._remember(partition, base_offset, is_damaged=False)
        self.repaired += len(mended)
        case.attempts, case.not_before_ms, case.is_final = 0, 0, False
        text = "%s: repaired %s with %d batches from broker %d"
        log.warning(text, partition.topic_partition, _offsets(mended), fetch.batches, fetch.source)
        self._review_soon()

    def _show_online(self, partition: Partition) -> None:
        """Ends the report as failed, because this broker serves the whole log again."""
        if partition.is_online and self._metadata.is_offline_here(partition.topic_partition):
            self._replicas.works_again(partition.topic_partition)


def _offsets(ranges: list[DamagedRange] | tuple[DamagedRange, ...]) -> str:
    """Describes the offsets of the first few ranges."""
    texts = [f"{found.first_offset} to {found.end_offset - 1}" for found in ranges[:5]]
    more = f" and {len(ranges) - 5} more places" if len(ranges) > 5 else ""
    return f"offsets {', '.join(texts)}{more}"


def _report(partition: Partition, ranges: list[DamagedRange]) -> None:
    log.error("%s is damaged at %s: %s", partition.topic_partition, _offsets(ranges), ranges[0].reason)


def _loss(case: Case) -> str:
    """Returns a line that says which offsets are lost and what can be done."""
    key, end = case.partition.topic_partition, case.ranges[-1].end_offset
    return (
        f"{key}: no other replica can repair {_offsets(case.ranges)}; the other records are served. Read on from offset {end}, or run "
        f"ottla topic trim {key.topic} --partition {key.partition} --before {end}, or restore the files of segment "
        f"{case.ranges[0].base_offset} from a copy"
    )
