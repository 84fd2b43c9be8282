"""The log of a follower: appends the leader's records, truncates at a divergence, or restarts the log.

`follower.py` decides between these. A `FollowerLog` exists for one term of one leader. After that its methods do nothing, so a late answer
of an earlier leader changes nothing (I18).

Invariant: nothing below the high watermark is truncated (I17), unless the loss was accepted: by an unclean election newer than these
records, or by the topic's `unclean.leader.election.enable`. Otherwise the replica is taken offline with its log unchanged, and reports that
its leader lacks records (`controller/log_dir_events.py`). Its next role brings it back online.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.errors import ApiError, ErrorCode, StorageError, WireError
from ottla.replication.high_watermark import move_high_watermark
from ottla.replication.state import PartitionState

log = logging.getLogger("ottla.replication")


class FollowerLog:
    """Applies the answers of the leader in `epoch` to the log."""

    __slots__ = ("_log", "_state", "epoch", "is_over", "leader_watermark", "on_durable")

    def __init__(self, state: PartitionState, epoch: int) -> None:
        self._state = state
        self._log = state.log
        self.epoch = epoch
        self.is_over = False
        self.leader_watermark = 0
        """The leader's high watermark in its last answer of this term."""
        self.on_durable: Callable[[], None] | None = None
        """Called when the leader should get a report: the durable end has moved and acknowledgements depend on it, this dependence was
        switched, or a higher log start was checkpointed."""

    @property
    def lag(self) -> int:
        """Number of offsets below the leader's high watermark that this replica lacks, as of the leader's last answer of this term."""
        return max(0, self.leader_watermark - self._log.log_end_offset)

    def append(self, batches: memoryview, *, high_watermark: int, leader_log_start: int) -> None:
        """Appends the leader's batches, and adopts its high watermark and log start as far as this log reaches. Raises `ApiError`:
        CORRUPT_MESSAGE for invalid bytes (nothing is appended), KAFKA_STORAGE_ERROR for a disk failure."""
        if self.is_over:
            return
        self.leader_watermark = high_watermark
        state, own = self._state, self._log
        try:
            if len(batches):
                own.append_as_follower(batches, self.epoch)
            if leader_log_start > own.log_start_offset:
                own.advance_log_start(min(leader_log_start, own.log_end_offset))
        except WireError as error:
            message = f"{state.topic_partition}: the leader sent bytes that are no batches: {error}"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, message) from None
        except StorageError as error:
            raise state.owner.fail(error) from error
        state.keep_log_start()
        known = max(state.high_watermark, own.log_start_offset)
        move_high_watermark(state, max(known, min(high_watermark, own.log_end_offset)))
        if state.is_flush_on_ack:
            state.ask_flush()
        if state.notifier.watchers:
            state.notify()

    def truncate(self, offset: int) -> None:
        """Truncates the log to the divergence. Takes the replica offline if that would lose records below the high watermark without
        permission. Raises `ApiError` for a disk failure.
        """
        state, own = self._state, self._log
        if self.is_over or offset >= own.log_end_offset:
            return
        if offset < state.high_watermark:
            if not self._is_loss_accepted():
                self._refuse(offset)
                return
            log.warning(
                "%s: cuts the offsets %d to %d, which were below the high watermark: broker %d leads without them; their loss was accepted",
                state.topic_partition, offset, state.high_watermark - 1, state.leader_id,
            )  # fmt: skip
        try:
            own.truncate_to(offset)
        except StorageError as error:
            raise state.owner.fail(error) from error
        state.note_truncated(state.high_watermark)

    def _is_loss_accepted(self) -> bool:
        """Whether an unclean election or the topic's settings allow the loss of records below the high watermark."""
        state, own = self._state, self._log
        return own.config.is_unclean_election_enabled or state.loss_epoch > own.epochs.epoch_at(state.high_watermark - 1)

    def _refuse(self, offset: int) -> None:
        state = self._state
        reason = f"the log of its leader, broker {state.leader_id}, diverges at {offset}, below the high watermark {state.high_watermark}"
        log.error("%s goes offline, so that nothing is lost: %s", state.topic_partition, reason)
        state.owner.go_offline(reason, may_revive=True)
        if state.on_short_leader is not None:
            state.on_short_leader(state)

    def restart(self, offset: int) -> None:
        """Deletes all records and restarts the log at the leader's start, because the leader has deleted the next records. Raises
        `ApiError` for a disk failure.
        """
        if self.is_over:
            return
        try:
            self._log.truncate_fully_and_start_at(offset)
        except StorageError as error:
            raise self._state.owner.fail(error) from error
        self._state.keep_log_start()
        self._state.note_truncated(offset)
