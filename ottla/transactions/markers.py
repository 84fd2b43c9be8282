"""Writes the markers of a transaction to its partitions, on this broker and on others, and repeats failed writes.

`LocalMarkers` writes a marker to a partition that this broker leads, and reports it when the high watermark has passed it. It forwards a
marker in `__consumer_offsets` to the group coordinator of the partition, so that the offsets of the transaction take effect. It serves this
broker's own transactions and WriteTxnMarkers of other brokers. `MarkerDelivery` is the coordinator's `MarkerSender`: it writes to local
partitions itself, sends the other markers to the partitions' leaders (`PeerMarkers`), and repeats after a pause until each has its marker.

Markers are idempotent: a partition that already has the marker reports success (KAFKA-19999). INVALID_PRODUCER_EPOCH means that the
partition has a later transaction of this producer. The later transaction could not begin before this transaction was complete, so the
partition has the marker. A deleted partition needs no marker. But a partition that is missing in this broker's metadata may be newer than
the metadata, so it is looked up (`IsDeleted`). TRANSACTION_COORDINATOR_FENCED means that another coordinator completes the transaction:
delivery stops without a message, because this machine is about to be dropped. Nothing is repeated once the machine was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.ports import Clock, Timers
from ottla.base.types import GROUP_METADATA_TOPIC, TopicPartition
from ottla.transactions.metadata import Marker
from ottla.transactions.remote import NO_LEADER, DoneCodes, Leaders

RETRY_MS = 100
PARTITIONS_PER_TURN = 20
"""Markers that one delivery writes in one iteration of the event loop. A transaction may have thousands of partitions, and a marker may
take half a millisecond, because the first batch of a log creates its index files."""
ALL_IN_SYNC = -1
MARKER_IS_THERE = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH})


class HasLogEnd(Protocol):
    @property
    def log_end_offset(self) -> int: ...


class MarkerLog(Protocol):
    """The methods of a partition's leader that markers need, for one term of leadership (`replication/leader.py`)."""

    @property
    def log(self) -> HasLogEnd: ...

    def write_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool, now_ms: int, transaction_version: int
    ) -> int | None:
        """Returns the marker's offset; None if the log already has the marker. Raises `ApiError`."""

    def acknowledgement(self, last_offset: int, acks: int) -> ErrorCode | None:
        """Returns None while replicas lack `last_offset`, NONE when it is replicated, or an error if this term of leadership is over."""

    def call_when_acknowledged(self, last_offset: int, acks: int, function: Callable[[], None]) -> None:
        """Calls `function` once, when `last_offset` is replicated or this term of leadership is over."""


class MarkerPartition(Protocol):
    """A replica on this broker (`replication/partition.py`)."""

    def require_leading(self) -> MarkerLog:
        """Returns the current term of leadership. Raises `ApiError` if there is none."""


Find = Callable[[str, int], MarkerPartition | None]
"""Returns the replica on this broker; None if there is none."""
GroupMarker = Callable[[int, int, int, int, bool], None]
"""(partition of __consumer_offsets, offset, producer id, producer epoch, is commit)."""
Written = Callable[[ErrorCode], None]
IsDeleted = Callable[[TopicPartition, Callable[[bool], None]], object]
"""Calls the callback, now or later, with whether a partition certainly does not exist any more."""


def always_deleted(_partition: TopicPartition, done: Callable[[bool], None]) -> None:
    """`IsDeleted` of a single broker, whose metadata are complete."""
    done(True)


class LocalMarkers:
    """Writes markers to the partitions that this broker leads."""

    def __init__(self, find: Find, group_marker: GroupMarker, clock: Clock) -> None:
        self._find = find
        self._group_marker = group_marker
        self._clock = clock

    def write(self, topic_partition: TopicPartition, marker: Marker, done: Written) -> None:
        """Writes a marker; calls `done` when it is committed, or with the error."""
        topic, number = topic_partition
        partition = self._find(topic, number)
        if partition is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        try:
            leader = partition.require_leading()
            offset = leader.write_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.is_commit,
                self._clock.wall_ms(),
                marker.transaction_version,
            )
        except ApiError as refusal:
            done(refusal.code)
            return
        if offset is not None and topic == GROUP_METADATA_TOPIC:
            self._group_marker(number, offset, marker.producer_id, marker.producer_epoch, marker.is_commit)
        # A marker of an earlier try may not be committed yet. Its offset is unknown, so wait for the present end of the log.
        _Wait(leader, offset if offset is not None else leader.log.log_end_offset - 1, done).look()


class _Wait:
    """Waits until one marker is committed. A class, because a closure that refers to itself would be a reference cycle."""

    __slots__ = ("_done", "_last_offset", "_leader")

    def __init__(self, leader: MarkerLog, last_offset: int, done: Written) -> None:
        self._leader = leader
        self._last_offset = last_offset
        self._done = done

    def look(self) -> None:
        code = self._leader.acknowledgement(self._last_offset, ALL_IN_SYNC)
        if code is None:
            self._leader.call_when_acknowledged(self._last_offset, ALL_IN_SYNC, self.look)
        else:
            self._done(code)


class PeerMarkers(Protocol):
    """Sends markers to other brokers, for the partitions that they lead (`cluster/peer_transactions.py`)."""

    def write_markers(self, broker_id: int, marker: Marker, partitions: Sequence[TopicPartition], done: DoneCodes) -> None:
        """Sends a marker to a broker for these partitions. If the request fails, each partition gets the error code."""


class MarkerDelivery:
    """The coordinator's `MarkerSender`."""

    def __init__(
        self,
        broker_id: int,
        local: LocalMarkers,
        leaders: Leaders,
        peers: PeerMarkers,
        timers: Timers,
        is_deleted: IsDeleted = always_deleted,
    ) -> None:
        """`is_deleted` is called for partitions that `leaders` does not know."""
        self.is_deleted = is_deleted
        self.broker_id = broker_id
        self.local = local
        self.leaders = leaders
        self.peers = peers
        self.timers = timers

    def send(
        self, marker: Marker, partitions: Sequence[TopicPartition], is_wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        _Delivery(self, marker, partitions, is_wanted, done).start()


class _Delivery:
    """Delivers the markers of one transaction. `_owed`: partitions without a marker. `_failed`: partitions to try again."""

    __slots__ = ("_delivery", "_done", "_failed", "_is_stopped", "_is_wanted", "_marker", "_owed")

    def __init__(
        self,
        delivery: MarkerDelivery,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        is_wanted: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self._delivery = delivery
        self._marker = marker
        self._owed = dict.fromkeys(partitions)
        self._failed: list[TopicPartition] = []
        self._is_wanted = is_wanted
        self._done = done
        self._is_stopped = False

    def start(self) -> None:
        if self._owed:
            self._send(list(self._owed))
        else:
            self._finish()

    def _send(self, partitions: Sequence[TopicPartition], start: int = 0) -> None:
        """Sends to a slice of the partitions from `start` on, and to the rest in later iterations of the event loop."""
        delivery, remote = self._delivery, dict[int, list[TopicPartition]]()
        end = start + PARTITIONS_PER_TURN
        for partition in partitions[start:end]:
            leader = delivery.leaders.leader_of(*partition)
            if leader is None:
                self._look_up(partition)
            elif leader == delivery.broker_id:
                self._write_here(partition)
            elif leader == NO_LEADER:
                self._written(partition, ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                remote.setdefault(leader, []).append(partition)
        for leader, led in remote.items():
            delivery.peers.write_markers(leader, self._marker, led, self._answered)
        if end < len(partitions):
            delivery.timers.call_soon(lambda: self._send_more(partitions, end))

    def _send_more(self, partitions: Sequence[TopicPartition], start: int) -> None:
        if not self._is_stopped and self._is_wanted():
            self._send(partitions, start)

    def _write_here(self, partition: TopicPartition) -> None:
        self._delivery.local.write(partition, self._marker, lambda code: self._written(partition, code))

    def _look_up(self, partition: TopicPartition) -> None:
        def found(is_deleted: bool) -> None:
            self._written(partition, ErrorCode.NONE if is_deleted else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        self._delivery.is_deleted(partition, found)

    def _answered(self, codes: dict[TopicPartition, ErrorCode]) -> None:
        for partition, code in codes.items():
            self._written(partition, code)

    def _written(self, partition: TopicPartition, code: ErrorCode) -> None:
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._is_stopped = True
        if self._is_stopped:
            return
        if code in MARKER_IS_THERE:
            del self._owed[partition]
            if not self._owed:
                self._finish()
            return
        if not self._failed:
            self._delivery.timers.call_later(RETRY_MS, self._retry)
        self._failed.append(partition)

    def _retry(self) -> None:
        failed, self._failed = self._failed, []
        self._send_more(failed, 0)

    def _finish(self) -> None:
        self._is_stopped = True
        self._done()
