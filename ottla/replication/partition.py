"""One replica of a partition: its state and its current role.

`state` (`state.py`) exists as long as the log is open. `leader` (`leader.py`) exists while this replica leads, and `follower_log`
(`follower_log.py`) while it follows; each leader epoch has a new object. An offline replica has neither. Consumers read up to the high
watermark, with read_committed up to the last stable offset; followers read to the log end.

Invariants: leader epochs never decrease (I15), and a leader is in its ISR (I9). A request of another broker raises `ApiError` and changes
nothing if it would break an invariant, or if it has another leader epoch (I18).

Waiters for an offset are called when the offset is reached, or when this replica's term as leader ends before that. Watchers are called at
every change, in every role (`base/loop/notifier.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.errors import ApiError, DamagedLogError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.types import NO_TIMESTAMP
from ottla.replication import reads
from ottla.replication.appended import AppendResult
from ottla.replication.follower_log import FollowerLog
from ottla.replication.isr import IsrState
from ottla.replication.leader import Leader
from ottla.replication.progress import FollowerFetch
from ottla.replication.reads import PartitionRead
from ottla.replication.state import NO_EPOCH, PartitionState
from ottla.storage.log import Log
from ottla.storage.segment import LOG_SUFFIX
from ottla.storage.time_search import TimeSearch

__all__ = ["AppendResult", "Partition", "PartitionRead"]


class Partition:
    """See the module. Every method runs to its end on the event loop."""

    __slots__ = (
        "_request_flush", "follower_log", "leader", "log", "notifier", "on_doubt", "on_storage_error", "state", "topic_partition",
        "traffic",
    )  # fmt: skip

    def __init__(
        self,
        log: Log,
        *,
        broker_id: int,
        high_watermark: int = 0,
        is_flush_on_ack: bool = False,
        request_flush: Callable[[Partition], None] | None = None,
        is_verification_required: bool = False,
    ) -> None:
        assert request_flush is not None or not is_flush_on_ack, "flush on ack needs a function that flushes"
        self.state = PartitionState(
            log,
            broker_id=broker_id,
            high_watermark=high_watermark,
            is_flush_on_ack=is_flush_on_ack,
            is_verification_required=is_verification_required,
            owner=self,
        )
        self.topic_partition = log.topic_partition
        self.log = log
        self.traffic = self.state.traffic
        self.notifier = self.state.notifier
        self.leader: Leader | None = None
        self.follower_log: FollowerLog | None = None
        self.on_storage_error: Callable[[Partition, StorageError], None] | None = None
        self.on_doubt: Callable[[Partition, str], None] | None = None
        """Called with the path of a segment that may be damaged. The segment is checked before any consequence."""
        self._request_flush = request_flush

    @property
    def topic_id(self) -> bytes:
        return self.log.topic_id or bytes(16)

    @property
    def broker_id(self) -> int:
        return self.state.broker_id

    @property
    def leader_id(self) -> int:
        return self.state.leader_id

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self.state.partition_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        return self.state.isr_state.members

    @property
    def isr_state(self) -> IsrState:
        return self.state.isr_state

    @property
    def min_insync(self) -> int:
        return self.state.min_insync

    @property
    def high_watermark(self) -> int:
        return self.state.high_watermark

    @property
    def lag(self) -> int:
        """Number of offsets below the leader's high watermark that this replica lacks; 0 if it does not follow."""
        return self.follower_log.lag if self.follower_log is not None else 0

    @property
    def last_stable_offset(self) -> int:
        return self.state.last_stable_offset

    @property
    def is_leading(self) -> bool:
        return self.leader is not None

    @property
    def is_online(self) -> bool:
        return not self.state.offline_reason

    @property
    def has_failed(self) -> bool:
        """Whether the replica is offline because of its log or disk, so that the log must be opened again."""
        state = self.state
        return bool(state.offline_reason) and not state.may_revive and state.offline_code is ErrorCode.KAFKA_STORAGE_ERROR

    @property
    def offline_reason(self) -> str:
        return self.state.offline_reason

    # Roles

    def become_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        now_ms: int,
        eligible: Sequence[int] = (),
    ) -> None:
        """Starts a term of leadership, or adopts a new ISR or replica set within the same epoch. `now_ms` is monotonic. While there are
        `eligible` replicas the high watermark does not move (KIP-966).

        A repeated or outdated request of this epoch changes nothing; a pending proposal stays pending. A request with the present partition
        epoch may have a new replica set, and then changes only this set. Such a request is possible because the answer to the leader's own
        proposal may have raised the partition epoch, and that answer has no replica set. Raises `ApiError` FENCED_LEADER_EPOCH for an older
        epoch. Also raises it for the current epoch if this replica has already stopped leading in this epoch: the broker's session ended,
        or the log was opened again and may be shorter. Raises INVALID_REQUEST for an ISR without this broker.
        """
        state, leader = self.state, self.leader
        self._require_epoch(leader_epoch)
        if state.broker_id not in isr:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{self.topic_partition}: a leader outside of its ISR {isr} (I9)")
        if leader is None and leader_epoch == state.leader_epoch and not state.offline_reason:
            message = f"{self.topic_partition}: this replica does not lead in leader epoch {leader_epoch} any more (I15)"
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, message)
        is_same_term = leader is not None and leader.epoch == leader_epoch
        if leader is not None and is_same_term and partition_epoch <= state.partition_epoch:
            if partition_epoch == state.partition_epoch and tuple(replicas) != state.replicas:
                state.replicas = tuple(replicas)
                leader.on_assigned(now_ms)
            return
        state.assign(
            leader_id=state.broker_id, leader_epoch=leader_epoch, partition_epoch=partition_epoch,
            replicas=replicas, isr=isr, eligible=eligible,
        )  # fmt: skip
        if state.offline_reason:
            return
        if leader is None or not is_same_term:
            self._end_term()
            leader = self.leader = Leader(state, leader_epoch)
        leader.on_assigned(now_ms)
        state.notify()

    def become_follower(
        self, *, leader_id: int, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Sequence[int],
        loss_epoch: int = NO_EPOCH,
    ) -> None:  # fmt: skip
        """Makes this replica a follower of `leader_id` (-1: there is no leader now), and ends an earlier term. See `PartitionState` for
        `loss_epoch`. Raises `ApiError` FENCED_LEADER_EPOCH for an older epoch.
        """
        state = self.state
        self._require_epoch(leader_epoch)
        is_same_term = self.follower_log is not None and self.follower_log.epoch == leader_epoch
        state.assign(leader_id=leader_id, leader_epoch=leader_epoch, partition_epoch=partition_epoch, replicas=replicas, isr=isr)
        state.loss_epoch = loss_epoch
        if not is_same_term and not state.offline_reason:
            self._end_term()
            self.follower_log = FollowerLog(state, leader_epoch)
        state.ask_flush()
        state.notify()

    def _require_epoch(self, leader_epoch: int) -> None:
        known = self.state.leader_epoch
        if leader_epoch < known:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.topic_partition}: leader epoch {leader_epoch} after {known} (I15)")

    def go_offline(self, reason: str, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR, *, may_revive: bool = False) -> None:
        """Takes the replica offline until its log is opened again. `code` is the reason: the default for a failed directory, another code
        for a replica that was stopped or removed. With `may_revive` the log is intact, and `revive` can bring the replica online."""
        state = self.state
        if state.offline_reason:
            state.may_revive = state.may_revive and may_revive
            return
        state.may_revive = may_revive
        state.offline_reason = reason or "the log directory is offline"
        state.offline_code = code
        self._end_term()
        # An offline replica does not need its owner. Without this reference cycle a dropped partition is freed immediately.
        state.owner = OFFLINE
        state.notify()

    def revive(self) -> None:
        """Brings the replica online if its log is intact; it can then get a role. Otherwise does nothing."""
        state = self.state
        if state.offline_reason and state.may_revive:
            state.offline_reason, state.offline_code = "", ErrorCode.KAFKA_STORAGE_ERROR
            state.may_revive = False
            state.owner = self

    def request_flush(self) -> None:
        """Requests a group commit of this log, if the broker has a flusher."""
        if self._request_flush is not None:
            self._request_flush(self)

    def fail(self, error: StorageError) -> ApiError:
        """Takes the replica offline after a disk failure and notifies the owner of the directory. Returns the error for clients."""
        self.go_offline(str(error))
        if self.on_storage_error is not None:
            self.on_storage_error(self, error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def read_failed(self, error: StorageError) -> ApiError:
        """Handles a failed read; returns the error for clients. If `on_doubt` is set, damaged bytes do not take the replica offline;
        `on_doubt` has the segment checked instead."""
        if not isinstance(error, DamagedLogError) or self.on_doubt is None:
            return self.fail(error)
        self.on_doubt(self, error.path)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def doubt(self, offset: int) -> None:
        """Reports the segment of this offset as possibly damaged, because a follower received a damaged batch."""
        segment = next((found for found in reversed(self.log.segments) if found.base_offset <= offset), None)
        if segment is not None and self.on_doubt is not None:
            self.on_doubt(self, segment.path(LOG_SUFFIX))

    def _end_term(self) -> None:
        leader, self.leader = self.leader, None
        if leader is not None:
            leader.end()
            self.notifier.end_waits()
        follower_log, self.follower_log = self.follower_log, None
        if follower_log is not None:
            follower_log.is_over = True

    def require_leading(self, current_leader_epoch: int = -1) -> Leader:
        """Returns the current term of leadership. Raises `ApiError` if this replica does not lead in this epoch (I18)."""
        leader = self.leader
        if leader is None or 0 <= current_leader_epoch != leader.epoch:
            self._require_term(current_leader_epoch)
            raise self.state.refusal()
        return leader

    def require_reading(self, current_leader_epoch: int = -1, *, may_follow: bool) -> None:
        """Raises `ApiError` unless this replica leads in this epoch, or, with `may_follow`, follows an existing leader (KIP-392)."""
        self._require_term(current_leader_epoch)
        if self.leader is None and not (may_follow and self.follower_log is not None and self.leader_id >= 0):
            raise self.state.refusal()

    def bounds(self) -> PartitionRead:
        """Returns the current high watermark, last stable offset and log start, without records."""
        return reads.nothing_but(self.state, None)

    def _require_term(self, current_leader_epoch: int) -> None:
        state = self.state
        if state.offline_reason:
            raise state.refusal()
        if 0 <= current_leader_epoch != state.leader_epoch:
            is_old = current_leader_epoch < state.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(code, f"leader epoch {current_leader_epoch} of {self.topic_partition}, here it is {state.leader_epoch}")

    def on_flushed(self, end: int) -> None:
        """Records that a group commit has made everything below `end` durable."""
        if self.state.note_flushed(end):
            if self.leader is not None:
                self.leader.advance_high_watermark()
            if self.state.is_flush_on_ack:
                self._report()
            self.state.notify()

    def on_log_start_noted(self, offset: int) -> None:
        """Notes that the checkpoint files on disk contain this log start."""
        if self.state.note_log_start(offset):
            self._report()
            self.state.notify()

    def _report(self) -> None:
        if self.follower_log is not None and self.follower_log.on_durable is not None:
            self.follower_log.on_durable()

    def configure(self, config: LogConfig) -> None:
        """Applies changed settings of the topic."""
        self.log.configure(config)
        if self.leader is not None:
            self.leader.on_configured()

    def set_flush_on_ack(self, is_on: bool) -> None:
        """Sets whether acknowledgements wait for the disk. Earlier acknowledgements are not affected."""
        if is_on == self.state.is_flush_on_ack:
            return
        self.state.is_flush_on_ack = is_on
        self.state.ask_flush()
        if self.leader is not None:
            self.leader.advance_high_watermark()
        self._report()
        self.state.notify()

    # Reading (`reads.py`)

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        isolation: int = 0,
        min_one: bool = True,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        may_follow: bool = False,
    ) -> PartitionRead:
        """Reads for a consumer's Fetch. With `may_follow` a follower answers too."""
        state = self.state
        if self.leader is None or 0 <= current_leader_epoch != state.leader_epoch:
            self.require_reading(current_leader_epoch, may_follow=may_follow)
        if last_fetched_epoch >= 0:
            diverging = reads.find_divergence(state, offset, last_fetched_epoch)
            if diverging is not None:
                return reads.nothing_but(state, diverging)
        try:
            return reads.read_as_consumer(state, offset, bytes_max, isolation, min_one)
        except StorageError as error:
            raise self.read_failed(error) from error

    def note_follower(
        self, fetch: FollowerFetch, *, current_leader_epoch: int = -1, last_fetched_epoch: int = -1
    ) -> tuple[int, int] | None:
        """Records the progress of a follower's Fetch. Callers call it once for each request. If the logs diverge, it records nothing and
        returns the divergence as (epoch, end offset)."""
        leader = self.leader
        if leader is None or 0 <= current_leader_epoch != leader.epoch:
            leader = self.require_leading(current_leader_epoch)
        # Within the leader's own epoch the logs can only diverge beyond the leader's end.
        if last_fetched_epoch >= 0 and (last_fetched_epoch != leader.epoch or fetch.offset > leader.log.log_end_offset):
            diverging = reads.find_divergence(self.state, fetch.offset, last_fetched_epoch)
            if diverging is not None:
                return diverging
        leader.take_progress(fetch)
        return None

    def read_beyond(
        self,
        offset: int,
        bytes_max: int,
        *,
        min_one: bool = True,
        current_leader_epoch: int = -1,
        diverging_epoch: tuple[int, int] | None = None,
    ) -> PartitionRead:
        """Reads for a follower's Fetch, to the log end; returns no records if the logs diverge (`diverging_epoch`)."""
        leader = self.leader
        if leader is None or 0 <= current_leader_epoch != leader.epoch:
            self.require_leading(current_leader_epoch)
        if diverging_epoch is not None:
            return reads.nothing_but(self.state, diverging_epoch)
        try:
            return reads.read_as_follower(self.state, offset, bytes_max, min_one)
        except StorageError as error:
            raise self.read_failed(error) from error

    def read_as_follower(
        self,
        fetch: FollowerFetch,
        bytes_max: int,
        *,
        min_one: bool = True,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> PartitionRead:
        """`note_follower` and `read_beyond` in one call."""
        diverging = self.note_follower(fetch, current_leader_epoch=current_leader_epoch, last_fetched_epoch=last_fetched_epoch)
        return self.read_beyond(fetch.offset, bytes_max, min_one=min_one, diverging_epoch=diverging)

    def list_offset(
        self, timestamp: int, isolation: int, current_leader_epoch: int = -1, search: TimeSearch | None = None
    ) -> tuple[int, int, int]:
        """Returns (timestamp, offset, leader epoch) of the first record at or after `timestamp`, or for a special negative timestamp.
        Raises `SearchPaused` if the search is not allowed to finish in one step."""
        leader = self.require_leading(current_leader_epoch)
        try:
            return reads.list_offset(self.state, leader.epoch_start_offset, timestamp, isolation, search)
        except StorageError as error:
            raise self.read_failed(error) from error

    def log_end(self, current_leader_epoch: int = -1) -> tuple[int, int, int]:
        """Returns the answer to a follower for the latest offset: (-1, log end, leader epoch)."""
        leader = self.require_leading(current_leader_epoch)
        return NO_TIMESTAMP, self.log.log_end_offset, leader.epoch

    def end_offset_for_epoch(self, leader_epoch: int, current_leader_epoch: int = -1) -> tuple[int, int]:
        """Returns the answer of OffsetForLeaderEpoch for `leader_epoch`: (epoch, end offset) of `LeaderEpochs.end_offset_for`."""
        leader = self.require_leading(current_leader_epoch)
        return self.log.epochs.end_offset_for(leader_epoch, self.log.log_end_offset, leader.epoch)


class _Offline:
    """Takes the place of `Partition` as the owner of an offline replica's state (`state.StateOwner`)."""

    def request_flush(self) -> None:
        """Does nothing: an offline replica has nothing to flush."""

    def fail(self, error: StorageError) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def go_offline(self, _reason: str, *, may_revive: bool = False) -> None:
        """Does nothing: the replica is offline."""


OFFLINE = _Offline()
