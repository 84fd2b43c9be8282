"""The state of one replica of a partition in any role: its log, high watermark and durable end, the leader, the ISR, and the reason if the
replica is offline.

`leader.py` and `follower_log.py` work on it, and `partition.py` combines the three. Only `high_watermark.py` moves the high watermark.

Invariant: a disk failure takes the replica offline before anything else is notified of it (I44).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.loop.notifier import Notifier
from ottla.base.types import TopicPartition
from ottla.replication.damage import Damage
from ottla.replication.high_watermark import move_high_watermark
from ottla.replication.isr import IsrProposal, IsrState
from ottla.replication.traffic import Traffic
from ottla.storage.log import Log

NO_LEADER = -1
NO_EPOCH = -1
_NEVER = 1 << 63


class StateOwner(Protocol):
    """The replica as its roles use it (implemented by `Partition`)."""

    def request_flush(self) -> None:
        """Requests a group commit of this log."""

    def fail(self, error: StorageError) -> ApiError:
        """Takes the replica offline after a disk failure; returns the error for clients."""

    def go_offline(self, reason: str, *, may_revive: bool = False) -> None: ...


class PartitionState:
    """See the module. Plain attributes, and the few rules that both roles share."""

    __slots__ = (
        "_durable_end",
        "_flush_end_max",
        "_noted_log_start",
        "admit_producer",
        "broker_epoch_of",
        "broker_id",
        "damage",
        "high_watermark",
        "is_below_min_insync",
        "is_flush_on_ack",
        "is_verification_required",
        "isr_state",
        "leader_epoch",
        "leader_id",
        "log",
        "loss_epoch",
        "may_revive",
        "notifier",
        "offline_code",
        "offline_reason",
        "on_isr_proposal",
        "on_short_leader",
        "owner",
        "partition_epoch",
        "replicas",
        "request_checkpoint",
        "topic_partition",
        "traffic",
    )

    high_watermark: int

    def __init__(
        self,
        log: Log,
        *,
        broker_id: int,
        high_watermark: int,
        is_flush_on_ack: bool,
        is_verification_required: bool,
        owner: StateOwner,
    ) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.log = log
        self.broker_id = broker_id
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.loss_epoch = NO_EPOCH
        """The newest leader epoch whose election was allowed to lose records (unclean)."""
        self.replicas: tuple[int, ...] = ()
        self.isr_state = IsrState(members=())
        self.is_below_min_insync = False
        """Whether the controller keeps eligible replicas. Then the ISR is too small to commit, whatever the settings here are."""
        self.is_flush_on_ack = is_flush_on_ack
        self.is_verification_required = is_verification_required
        self.admit_producer: Callable[[], None] | None = None
        """Called before the first batch of a producer; raises `ApiError` if there are too many producers."""
        self.offline_reason = ""
        self.offline_code = ErrorCode.KAFKA_STORAGE_ERROR
        self.may_revive = False
        """Whether the replica is offline with an intact log. Its next role then brings it back online."""
        self.damage: Damage | None = None
        """The known damage of the log."""
        self.notifier = Notifier()
        self.traffic = Traffic()
        self.owner = owner
        self.broker_epoch_of: Callable[[int], int | None] | None = None
        """Returns the broker epoch that the controller knows for a broker id."""
        self.on_isr_proposal: Callable[[PartitionState, IsrProposal], None] | None = None
        self.on_short_leader: Callable[[PartitionState], None] | None = None
        """Called when this follower refuses to truncate, because its leader's log lacks acknowledged records."""
        self.request_checkpoint: Callable[[], None] | None = None
        """Requests a round of checkpoints, which ends with `note_log_start`. None (in unit tests): the log start is not checkpointed."""
        self._noted_log_start = log.log_start_offset
        self._durable_end = log.recovery_point
        self._flush_end_max = _NEVER  # a flush that began before a truncation does not cover later appends
        # A checkpoint may be older than the log's start or, after a crash, ahead of its end.
        self._place_high_watermark(high_watermark)

    @property
    def durable_end(self) -> int:
        """The offset below which all records are synced; the log end if acknowledgements do not wait for the disk."""
        return self._durable_end if self.is_flush_on_ack else self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided and the decision will survive (I24)."""
        first_unstable = self.log.producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log.log_start_offset)

    @property
    def min_insync(self) -> int:
        """Number of in-sync replicas that a commit needs: `min.insync.replicas`, or the number of replicas if that is smaller. While the
        controller keeps eligible replicas it is one more than the in-sync replicas, so nothing is committed."""
        if self.is_below_min_insync:
            return len(self.isr_state.members) + 1
        return self.configured_min_insync

    @property
    def configured_min_insync(self) -> int:
        return min(self.log.config.min_insync_replicas, max(1, len(self.replicas)))

    def assign(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        eligible: Sequence[int] = (),
    ) -> None:
        """Adopts the controller's decision; that ends a pending proposal of this leader."""
        self.leader_id, self.leader_epoch, self.partition_epoch = leader_id, leader_epoch, partition_epoch
        self.replicas = tuple(replicas)
        self.isr_state = IsrState(members=tuple(isr))
        self.is_below_min_insync = bool(eligible)

    def refusal(self) -> ApiError:
        """Returns the error of a request that only the leader may answer."""
        if self.offline_reason:
            return ApiError(self.offline_code, f"{self.topic_partition} is offline: {self.offline_reason}")
        led = "has no leader now" if self.leader_id == NO_LEADER else f"is led by broker {self.leader_id}"
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} {led}")

    def notify(self) -> None:
        """Notifies waiters and watchers of a change of the log end, the durable end, the high watermark, the last stable offset or the
        role."""
        self.notifier.notify(self.high_watermark, self._durable_end)

    # Durability

    def ask_flush(self) -> None:
        """Requests a group commit if acknowledgements wait for the disk and the log has records that are not durable."""
        if self.is_flush_on_ack and self._durable_end < self.log.log_end_offset:
            self.owner.request_flush()

    def note_flushed(self, end: int) -> bool:
        """Records the end of a group commit that covered the log up to `end`; returns whether the durable end has moved."""
        is_doubtful, end = end > self._flush_end_max, min(end, self._flush_end_max)
        self._flush_end_max = _NEVER
        self.log.mark_flushed(end)
        if is_doubtful:
            self.ask_flush()  # the flush may have begun before the truncation, so another one is needed
        if end <= self._durable_end:
            return False
        self._durable_end = end
        return True

    # The start of the log

    @property
    def noted_log_start(self) -> int:
        """The log start in the checkpoints, which survives a restart."""
        start = self.log.log_start_offset
        return start if self.request_checkpoint is None else min(self._noted_log_start, start)

    def keep_log_start(self) -> None:
        """Requests a checkpoint of a raised log start."""
        if self.request_checkpoint is not None and self.log.log_start_offset > self._noted_log_start:
            self.request_checkpoint()

    def note_log_start(self, offset: int) -> bool:
        """Records the checkpointed log start; returns whether it is higher than the previous one."""
        is_news = offset > self._noted_log_start
        if is_news:
            self._noted_log_start = offset
        return is_news

    def note_truncated(self, high_watermark: int) -> None:
        """Adjusts the durable end after a truncation, and sets the high watermark to `high_watermark`, limited to the offsets from the log
        start to the log end."""
        end = self.log.log_end_offset
        self._durable_end = min(self._durable_end, end)
        self._flush_end_max = end
        self._place_high_watermark(high_watermark)
        self.notify()

    def _place_high_watermark(self, offset: int) -> None:
        move_high_watermark(self, min(max(offset, self.log.log_start_offset), self.log.log_end_offset), may_fall=True)
