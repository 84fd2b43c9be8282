"""One replica of a partition, whatever its role: where its bounds are, who leads, and who wants to know when that changes.

`Partition` builds on it what a leader does for clients; here stands what both roles share, and following: appending what the leader
sent, truncating where the histories part (`follower.py` decides where).

Invariants, asserted where they change: log start <= high watermark <= log end (I2); the high watermark never falls while this replica
leads (I11) and moves only by the rule in `high_watermark.py` (I12); leader epochs go up (I15). A disk failure takes the replica offline
before anybody hears of it (I44).

Watchers are called, without arguments, after the log end, a durable end, the high watermark, the last stable offset or the leadership
has moved. They may append in turn; then they are called again after the round that is running, never inside of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.types import TopicPartition
from ottla.replication.high_watermark import next_high_watermark
from ottla.replication.isr import IsrProposal, IsrState
from ottla.replication.leader import RemoteReplica
from ottla.replication.traffic import Traffic
from ottla.replication.verification import Verifications
from ottla.storage.log import Log
from ottla.storage.validate import is_stamped

NO_LEADER = -1
_NEVER = 1 << 63


class Replica:
    """See above. Every method runs to its end on the loop."""

    __slots__ = (
        "_config",
        "_durable_end",
        "_flush_end_max",
        "_is_alone",
        "_is_flush_on_ack",
        "_is_leading",
        "_is_notifying",
        "_is_stamping",
        "_awaiting_commit",
        "_awaiting_flush",
        "_committed_listeners",
        "_notify_again",
        "_request_flush",
        "_watchers",
        "broker_epoch_of",
        "broker_id",
        "epoch_start_offset",
        "high_watermark",
        "is_verification_required",
        "isr_state",
        "leader_epoch",
        "leader_id",
        "log",
        "min_insync",
        "offline_code",
        "offline_reason",
        "on_isr_proposal",
        "on_storage_error",
        "partition_epoch",
        "remotes",
        "replicas",
        "topic_partition",
        "traffic",
        "verifications",
    )

    def __init__(
        self,
        log: Log,
        *,
        broker_id: int,
        high_watermark: int = 0,
        is_flush_on_ack: bool = False,
        request_flush: Callable[[Any], None] | None = None,
        is_verification_required: bool = False,
    ) -> None:
        assert request_flush is not None or not is_flush_on_ack, "flush on ack needs somebody who flushes"
        self.topic_partition: TopicPartition = log.topic_partition
        self.log = log
        self.broker_id = broker_id
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.remotes: dict[int, RemoteReplica] = {}
        self.isr_state = IsrState(members=())
        self.min_insync = 1
        self.epoch_start_offset = 0
        # A checkpoint may be older than the log's start or, after a crash, ahead of its end.
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.offline_reason = ""
        self.offline_code = ErrorCode.KAFKA_STORAGE_ERROR
        self.verifications = Verifications()
        self.traffic = Traffic()
        self.is_verification_required = is_verification_required
        self.broker_epoch_of: Callable[[int], int | None] | None = None  # by broker id, as the controller knows it
        self.on_isr_proposal: Callable[[Any, IsrProposal], None] | None = None
        self.on_storage_error: Callable[[Any, StorageError], None] | None = None
        self._config: LogConfig | None = None
        self._is_stamping = False
        self._is_leading = False  # and online
        self._is_alone = False  # leads without any other replica
        self._is_flush_on_ack = is_flush_on_ack
        self._request_flush = request_flush
        self._durable_end = log.recovery_point
        self._flush_end_max = _NEVER  # a flush that began before a truncation says nothing of what came after
        self._watchers: dict[Callable[[], None], None] = {}
        self._committed_listeners: list[Callable[[], None]] = []
        # Who waits for one offset, in ascending order of the offsets: many producers may, and each is called once.
        self._awaiting_commit: OrderedDict[Callable[[], None], int] = OrderedDict()
        self._awaiting_flush: OrderedDict[Callable[[], None], int] = OrderedDict()
        self._is_notifying = False
        self._notify_again = False
        log.producers.on_high_watermark(self.high_watermark)

    @property
    def topic_id(self) -> bytes:
        return self.log.topic_id or bytes(16)

    @property
    def isr(self) -> tuple[int, ...]:
        return self.isr_state.members

    @property
    def is_leading(self) -> bool:
        return self._is_leading

    @property
    def is_online(self) -> bool:
        return not self.offline_reason

    @property
    def durable_end(self) -> int:
        """Everything below is on this replica's disk as far as acknowledgements care."""
        return self._durable_end if self._is_flush_on_ack else self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, and the decision will survive (I24)."""
        first_unstable = self.log.producers.first_unstable_offset()
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log.log_start_offset)

    # Roles

    def become_leader(self, *, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Sequence[int], now_ms: int) -> None:
        """Leads from here on, or learns of a new ISR or replica set within the same epoch. `now_ms` is monotonic."""
        assert leader_epoch >= self.leader_epoch, f"{self.topic_partition}: leader epoch {leader_epoch} after {self.leader_epoch} (I15)"
        assert self.broker_id in isr, f"{self.topic_partition}: a leader outside of its ISR {isr} (I9)"
        if leader_epoch > self.leader_epoch or not self._is_leading:
            self.remotes = {}
            self.epoch_start_offset = self.log.log_end_offset
            self.log.epochs.assign(leader_epoch, self.epoch_start_offset)
        self.leader_id, self.leader_epoch, self.partition_epoch = self.broker_id, leader_epoch, partition_epoch
        self.replicas = tuple(replicas)
        self.isr_state = IsrState(members=tuple(isr))
        known = self.remotes
        self.remotes = {
            replica_id: known.get(replica_id) or RemoteReplica(replica_id, now_ms=now_ms, is_in_sync=replica_id in isr)
            for replica_id in self.replicas
            if replica_id != self.broker_id
        }
        self._is_leading = self.is_online
        self._is_alone = not self.remotes
        self._configure()
        self._ask_flush()
        self._advance_high_watermark()
        self._notify()

    def become_follower(
        self, *, leader_id: int, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Sequence[int]
    ) -> None:
        """Follows `leader_id` (-1: nobody leads). Those who waited for the leader that this was are told by the watchers."""
        assert leader_epoch >= self.leader_epoch, f"{self.topic_partition}: leader epoch {leader_epoch} after {self.leader_epoch} (I15)"
        self.leader_id, self.leader_epoch, self.partition_epoch = leader_id, leader_epoch, partition_epoch
        self.replicas = tuple(replicas)
        self.isr_state = IsrState(members=tuple(isr))
        # An epoch that this replica led without writing anything must not stand in the way of older records it has yet to get.
        self.log.epochs.truncate_end(self.log.log_end_offset)
        self._stop_leading()

    def go_offline(self, reason: str, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """No read, no append, no acknowledgement until the log is opened anew: its directory failed, or, with another `code`, it went."""
        if not self.offline_reason:
            self.offline_reason = reason or "the log directory is offline"
            self.offline_code = code
            self._stop_leading()

    def fail(self, error: StorageError) -> ApiError:
        """The disk failed under this replica: takes it offline, tells who looks after the directory, answers what clients are told."""
        self.go_offline(str(error))
        if self.on_storage_error is not None:
            self.on_storage_error(self, error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _stop_leading(self) -> None:
        self._is_leading = self._is_alone = False
        self.remotes = {}
        self.verifications.clear()
        self._notify()
        # Who listens for commits does so for one term of leadership.
        self._committed_listeners.clear()

    def _configure(self) -> None:
        """Works out what the settings mean here; again whenever the log's configuration object is another one."""
        self._config = config = self.log.config
        self._is_stamping = is_stamped(config)
        self.min_insync = min(config.min_insync_replicas, max(1, len(self.replicas)))

    def require_leading(self, current_leader_epoch: int = -1) -> None:
        """Refuses what only the leader of this epoch may answer (I18)."""
        if self.offline_reason:
            raise ApiError(self.offline_code, f"{self.topic_partition} is offline: {self.offline_reason}")
        if 0 <= current_leader_epoch != self.leader_epoch:
            is_old = current_leader_epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(code, f"leader epoch {current_leader_epoch} of {self.topic_partition}, here it is {self.leader_epoch}")
        if not self._is_leading:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by broker {self.leader_id}")

    # Bounds

    def on_flushed(self, end: int) -> None:
        """A group commit has made everything below `end` durable."""
        end = min(end, self._flush_end_max)
        self._flush_end_max = _NEVER
        self.log.mark_flushed(end)
        if end > self._durable_end:
            self._durable_end = end
            self._advance_high_watermark()
            self._notify()

    def _ask_flush(self) -> None:
        if self._is_flush_on_ack and self._durable_end < self.log.log_end_offset and self._request_flush is not None:
            self._request_flush(self)

    def _advance_high_watermark(self) -> None:
        if not self._is_leading:
            return
        state = self.isr_state
        remotes = self.remotes
        moved = next_high_watermark(
            self.high_watermark,
            own_end=self.durable_end,
            remote_ends=[remotes[member].log_end_offset for member in state.maximal if member in remotes],
            in_sync=len(state.members),
            in_sync_min=self.min_insync,
        )
        assert self.high_watermark <= moved <= self.log.log_end_offset, f"{self.topic_partition}: high watermark {moved} (I2, I11)"
        self.high_watermark = moved
        self.log.producers.on_high_watermark(moved)

    # Watching

    def add_watcher(self, function: Callable[[], None]) -> None:
        self._watchers[function] = None

    def remove_watcher(self, function: Callable[[], None]) -> None:
        self._watchers.pop(function, None)

    def call_when_acknowledged(self, last_offset: int, acks: int, function: Callable[[], None]) -> None:
        """Calls `function` once, when what `acks` asks for `last_offset` is there, or when this replica leads no more."""
        awaiting = self._awaiting_commit if acks == -1 else self._awaiting_flush
        offset = max(last_offset, awaiting.pop(function, last_offset))
        is_out_of_turn = bool(awaiting) and awaiting[next(reversed(awaiting))] > offset
        awaiting[function] = offset
        if is_out_of_turn:
            # A batch that came again waits for where it was written the first time, which is before what others have appended since.
            for waiting, _ in sorted(awaiting.items(), key=itemgetter(1)):
                awaiting.move_to_end(waiting)

    def forget_acknowledgement(self, function: Callable[[], None]) -> None:
        self._awaiting_commit.pop(function, None)
        self._awaiting_flush.pop(function, None)

    def _call_acknowledged(self) -> None:
        ends = (self.high_watermark, self._durable_end) if self._is_leading else (_NEVER, _NEVER)
        for awaiting, end in zip((self._awaiting_commit, self._awaiting_flush), ends, strict=True):
            while awaiting and awaiting[function := next(iter(awaiting))] < end:
                del awaiting[function]
                function()

    def _notify(self) -> None:
        if self._is_notifying:
            self._notify_again = True
            return
        self._is_notifying = True
        try:
            self._notify_again = True
            while self._notify_again:
                self._notify_again = False
                for function in (*self._committed_listeners, *self._watchers):
                    function()
                if self._awaiting_commit or self._awaiting_flush:
                    self._call_acknowledged()
        finally:
            self._is_notifying = False

    # Following

    def append_as_follower(self, batches: memoryview, *, leader_epoch: int, high_watermark: int, leader_log_start: int) -> None:
        """Appends what the leader of `leader_epoch` sent, and takes over its bounds as far as this log reaches."""
        assert not self._is_leading, f"{self.topic_partition} leads and cannot follow"
        if leader_epoch != self.leader_epoch or self.offline_reason:
            return  # an answer of an earlier leader (I18)
        try:
            if len(batches):
                self.log.append_as_follower(batches)
            if leader_log_start > self.log.log_start_offset:
                self.log.advance_log_start(min(leader_log_start, self.log.log_end_offset))
        except StorageError as error:
            raise self.fail(error) from error
        moved = max(self.log.log_start_offset, min(high_watermark, self.log.log_end_offset))
        self.high_watermark = max(self.high_watermark, moved)
        self.log.producers.on_high_watermark(self.high_watermark)
        self._ask_flush()
        if self._watchers:
            self._notify()

    def truncate_as_follower(self, offset: int, *, leader_epoch: int) -> None:
        """Cuts the log where it parts from the leader's, never below the high watermark unless elections may be unclean (I17)."""
        if self._is_leading or leader_epoch != self.leader_epoch or self.offline_reason or offset >= self.log.log_end_offset:
            return
        if offset < self.high_watermark and not self.log.config.is_unclean_election_enabled:
            self.go_offline(f"the leader's log parts at {offset}, below the high watermark {self.high_watermark}")
            return
        self.log.truncate_to(offset)
        self._after_truncation(min(self.high_watermark, self.log.log_end_offset))

    def restart_as_follower(self, offset: int, *, leader_epoch: int) -> None:
        """The leader has deleted everything that this log could continue: begin anew at the leader's start."""
        if self._is_leading or leader_epoch != self.leader_epoch or self.offline_reason:
            return
        self.log.truncate_fully_and_start_at(offset)
        self._after_truncation(offset)

    def _after_truncation(self, high_watermark: int) -> None:
        end = self.log.log_end_offset
        self.high_watermark = high_watermark
        self.log.producers.on_high_watermark(high_watermark)
        self._durable_end = min(self._durable_end, end)
        self._flush_end_max = end
        self._notify()
