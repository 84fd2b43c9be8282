"""One term of leadership of a partition: appends, acknowledgements, the followers' progress, and ISR proposals.

A leader checks a batch, assigns its offset, and moves the high watermark as its followers (or, with flush on ack, its disk) progress. Each
leader epoch has its own `Leader`. When the term ends, the old object appends and acknowledges nothing, and its waiters are called. A
request asks the `Leader` that made the append for the acknowledgement, because in a later term another batch may have the same offset.

Invariants: nothing is appended if a check refuses (I19, I21); with acks=all nothing is appended while too few replicas are in sync, and
acknowledged records are below the high watermark (I14); a transaction gets one marker of each coordinator epoch (I25).

`partition.py` has roles and reads, `isr.py` the rules of the ISR, `storage/log.py` the files, and `storage/producers.py` the checks of
sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.machine.contract import LogRecord, Transactional
from ottla.replication.appended import AppendResult
from ottla.replication.high_watermark import move_high_watermark, next_high_watermark
from ottla.replication.isr import IsrPhase, IsrProposal, IsrState, lagging, may_join
from ottla.replication.mirror_rules import forget_producers_of_source, may_append, refusal_to_append
from ottla.replication.progress import UNKNOWN_EPOCH, FollowerFetch, FollowerProgress
from ottla.replication.stages import PartitionStages
from ottla.replication.state import PartitionState
from ottla.replication.verification import VerificationGuard, Verifications
from ottla.storage.inspection import InspectHere, Inspector, is_inspected, is_only_timed, repack_own
from ottla.storage.producer_snapshot import CachedBatch
from ottla.storage.producers import UNKNOWN_PRINCIPAL
from ottla.storage.validate import check_batch, is_stamped, settle_times, stamp_batch
from ottla.wire.batch_header import TRANSACTIONAL_BIT, BatchHeader, read_batch_header
from ottla.wire.record_times import is_single_as_claimed
from ottla.wire.records import CONTROL_ABORT, CONTROL_COMMIT, Record, encode_batch, encode_control_batch

ALL_IN_SYNC = -1
NOTHING_COMMITTED = -1
HERE = InspectHere()
NO_AGES = (1, 0)
"""An empty range of record ages: its lower bound is above its upper bound."""
REFUSED_MS = 1_000
"""Time until a follower that the controller refused for the ISR is proposed again, in milliseconds."""

_new_tuple = tuple.__new__


class Leader:
    """See the module. Every method runs to its end on the event loop. Implements `machine.contract.MachineLog`."""

    __slots__ = (
        "_config", "_is_alone", "_is_closed", "_is_inspecting", "_is_stamping", "_min_insync", "_notifier", "_plain_age_max_ms",
        "_plain_age_min_ms", "_state", "epoch", "epoch_start_offset", "followers", "is_over", "log", "stages", "traffic", "verifications",
    )  # fmt: skip

    def __init__(self, state: PartitionState, epoch: int) -> None:
        self._state = state
        self._notifier = state.notifier
        self.log = state.log
        self.traffic = state.traffic
        self.epoch = epoch
        self.epoch_start_offset = state.log.log_end_offset
        self.followers: dict[int, FollowerProgress] = {}
        self.verifications = Verifications()
        self.stages: PartitionStages | None = None
        """The chunks staged in this term; created with the first chunk (`stage_space.py`)."""
        self.is_over = False
        self._config: LogConfig | None = None
        self._is_stamping = False
        self._is_inspecting = self._is_closed = False
        # The ages within which a batch of one record needs no inspection.
        self._plain_age_min_ms, self._plain_age_max_ms = NO_AGES
        self._is_alone = False  # the only replica
        self._min_insync = 1

    def on_assigned(self, now_ms: int) -> None:
        """Adopts new replicas or a new ISR; called at the start of the term too. `now_ms` is monotonic."""
        state, known = self._state, self.followers
        isr = state.isr_state.members
        self.followers = {
            replica_id: known.get(replica_id) or FollowerProgress(replica_id, now_ms=now_ms, is_in_sync=replica_id in isr)
            for replica_id in state.replicas
            if replica_id != state.broker_id
        }
        self._is_alone = not self.followers
        self._configure()
        state.ask_flush()
        self.advance_high_watermark()
        self._maybe_prove()

    def on_configured(self) -> None:
        """Adopts changed settings of the topic. With a lower `min.insync.replicas` the high watermark may move."""
        self._configure()
        if self.advance_high_watermark():
            self._state.notify()
        self._maybe_prove()

    def end(self) -> None:
        """Ends the term. `Partition` calls the waiters."""
        self.is_over = True
        self.verifications.clear()
        if self.stages is not None:
            self.stages.close()

    def _configure(self) -> None:
        """Derives values from the log's configuration; called again whenever that is replaced."""
        self._config = config = self.log.config
        self._is_stamping = is_stamped(config)
        self._is_inspecting = is_inspected(config)
        ages = (-config.timestamp_after_max_ms, config.timestamp_before_max_ms) if is_only_timed(config) else NO_AGES
        self._plain_age_min_ms, self._plain_age_max_ms = ages
        self._min_insync = self._state.min_insync
        self._is_closed = not may_append(config, self.epoch)
        if config.leader_epoch_min and not self._is_closed:
            forget_producers_of_source(self.log)

    # Appending

    def append(
        self,
        batch: memoryview | bytearray,
        *,
        acks: int,
        now_ms: int,
        is_transaction_v2: bool = False,
        guard: VerificationGuard | None = None,
        inspector: Inspector = HERE,
        is_intact: bool = False,
        principal: str = UNKNOWN_PRINCIPAL,
    ) -> AppendResult:
        """Appends a client's batch, which is stamped in place, or finds that it is a duplicate. Raises `ApiError` if a check refuses it,
        and `WorkerNeeded` if the worker process must inspect it first. `now_ms` is wall time. `is_intact`: the caller has checked these
        bytes and written the CRC over them (`storage.validate.check_batch`)."""
        if self.is_over or self._is_closed:
            raise refusal_to_append(self._state, is_over=self.is_over)
        log = self.log
        config = log.config
        if config is not self._config:
            self._configure()
        if acks == -1 and not self._is_alone:
            self.require_in_sync()
        if type(batch) is not memoryview:
            batch = memoryview(batch)
        header = check_batch(batch, config, is_intact=is_intact)
        found = None
        is_plain = header[12] == 1 and self._plain_age_min_ms <= now_ms - header[8] <= self._plain_age_max_ms
        if not (is_plain and is_single_as_claimed(batch, header)):
            if self._is_inspecting:
                found = inspector.inspect(batch, header, config)
            if not config.is_log_append_time:
                header = settle_times(batch, header, found and found.times, config, now_ms=now_ms)
        is_new = False
        if header[9] >= 0:
            entry = log.producers.get(header[9])
            if entry is None:
                is_new = True
            else:
                entry.written_ms = now_ms
                if not entry.principal:
                    entry.principal = principal
            duplicate = self._check_producer(header, is_transaction_v2, guard, is_new=is_new)
            if duplicate is not None:
                self.traffic.produces += 1
                time_ms = duplicate.timestamp if config.is_log_append_time else -1
                return AppendResult(duplicate.base_offset, duplicate.last_offset, time_ms, log.log_start_offset, True)
        if self._is_stamping:
            batch, header = stamp_batch(batch, header, config, now_ms=now_ms, repacked=found and found.repacked)
        base_offset = self._write(batch, header, now_ms)
        if is_new:
            self.claim_producer(header[9], principal, now_ms)
        self.traffic.produces += 1
        time_ms = now_ms if config.is_log_append_time else -1
        result: AppendResult = _new_tuple(AppendResult, (base_offset, base_offset + header[6], time_ms, log.log_start_offset, False))
        return result

    def _check_producer(
        self, header: BatchHeader, is_transaction_v2: bool, guard: VerificationGuard | None, *, is_new: bool
    ) -> CachedBatch | None:
        producers = self.log.producers
        duplicate = producers.check(header, transaction_version=2 if is_transaction_v2 else 0)
        if duplicate is None and header.attributes & TRANSACTIONAL_BIT:
            producer_id = header.producer_id
            if not producers.has_open_transaction(producer_id, header.producer_epoch):
                if self._state.is_verification_required or guard is not None:
                    self.verifications.check(header, guard, has_state=not is_new)
                self.verifications.forget(producer_id)
        if is_new and self._state.admit_producer is not None:
            self._state.admit_producer()
        return duplicate

    def claim_producer(self, producer_id: int, principal: str, now_ms: int) -> None:
        """Records that a producer belongs to `principal`, if it has written here."""
        entry = self.log.producers.get(producer_id)
        if entry is not None:
            entry.principal, entry.written_ms = principal, now_ms

    def begin_verification(self, producer_id: int, producer_epoch: int, base_sequence: int) -> VerificationGuard:
        """Returns the guard for `append`. Call it before asking the coordinator, also if the transaction is open: a marker may end it."""
        return self.verifications.begin(producer_id, producer_epoch, base_sequence)

    def must_verify_again(self, header: BatchHeader, guard: VerificationGuard | None) -> bool:
        """Whether the coordinator must be asked again about a batch that it has accepted."""
        if guard is None or self.is_over or self.log.producers.has_open_transaction(header.producer_id, header.producer_epoch):
            return False
        return not self.verifications.stands(header.producer_id, header.producer_epoch, guard)

    def may_continue(self, producer_id: int, producer_epoch: int, principal: str) -> bool:
        """Whether the transaction is open here and its producer belongs to `principal`. Then the coordinator need not be asked.

        The coordinator knows which transactional id has the producer id. A principal therefore cannot write into another principal's
        transaction by knowing the producer id. After a change of leader the first batch asks the coordinator again."""
        entry = self.log.producers.get(producer_id)
        if entry is None or entry.transaction_first_offset < 0 or entry.epoch != producer_epoch:
            return False
        return entry.principal == principal

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.log.producers.has_open_transaction(producer_id, producer_epoch)

    def write_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool, now_ms: int, transaction_version: int = 0
    ) -> int | None:
        """Ends a producer's transaction here. Returns the marker's offset, or None if the same marker is already in the log.

        Whether new or found, the marker is safe only when the high watermark has reached the current log end.
        """
        producers = self.log.producers
        if self.log.config.mirror_source and not producers.has_open_transaction(producer_id, producer_epoch):
            return None  # The coordinator cannot have records here: clients cannot write.
        self._begin_internal_append()
        is_repeated = producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        self.verifications.forget(producer_id)
        if self.stages is not None:
            self.stages.end_transaction(producer_id, is_commit=is_commit)
        if is_repeated:
            return None
        kind = CONTROL_COMMIT if is_commit else CONTROL_ABORT
        batch = memoryview(encode_control_batch(kind, producer_id, producer_epoch, coordinator_epoch, now_ms))
        return self._write(batch, read_batch_header(batch), now_ms)

    def append_records(self, records: Sequence[LogRecord], transactional: Transactional | None, now_ms: int) -> int:
        """`MachineLog`: appends one batch of a coordinator with acks=all; returns the offset after its last record."""
        config = self._begin_internal_append()
        plain = [Record(0, now_ms, record.key, record.value) for record in records]
        if transactional is None:
            batch = memoryview(encode_batch(plain))
        else:
            producer_id, epoch = transactional.producer_id, transactional.producer_epoch
            batch = memoryview(encode_batch(plain, producer_id=producer_id, producer_epoch=epoch, is_transactional=True))
        if len(batch) > config.max_message_bytes:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(batch)} bytes, max.message.bytes is {config.max_message_bytes}")
        header = read_batch_header(batch)
        if transactional is not None:
            self.log.producers.check(header, is_client=False)
        if self._is_stamping:
            batch, header = stamp_batch(batch, header, config, now_ms=now_ms, repacked=repack_own(batch, header, config))
        return self._write(batch, header, now_ms) + header.last_offset_delta + 1

    def _begin_internal_append(self) -> LogConfig:
        """Checks the term and the ISR for a batch that the broker itself appends, always with acks=all. Raises `ApiError`."""
        if self.is_over or self._is_closed:
            raise refusal_to_append(self._state, is_over=self.is_over)
        config = self.log.config
        if config is not self._config:
            self._configure()
        self.require_in_sync()
        return config

    def require_in_sync(self) -> None:
        """Raises `ApiError` NOT_ENOUGH_REPLICAS if an append with acks=all is not allowed."""
        count = len(self._state.isr_state.members)
        if count < self._min_insync:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{counted(count, 'replica')} in sync, min.insync.replicas is {self._min_insync}")

    def _write(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        """Appends a batch that has passed all checks, requests a flush if one is due, and advances the high watermark."""
        state, log = self._state, self.log
        try:
            base_offset = log.append(batch, header, leader_epoch=self.epoch, now_ms=now_ms)
        except StorageError as error:
            raise state.owner.fail(error) from error
        traffic = self.traffic
        traffic.messages_in += header[6] + 1
        traffic.bytes_in += len(batch)
        if log.log_end_offset >= log.flush_offset:
            state.owner.request_flush()  # flush.messages
        if state.is_flush_on_ack:
            state.ask_flush()
        elif self._is_alone:
            move_high_watermark(state, base_offset + header[6] + 1)
        else:
            for member in state.isr_state.members:
                if member in self.followers:  # The watermark moves when this follower has fetched these records.
                    break
            else:
                self.advance_high_watermark()
        notifier = self._notifier
        if notifier.watchers or notifier.waiters:
            log.active.open_files.keep_latest(log.active, batch, base_offset)
            state.notify()
        return base_offset

    # Acknowledging

    def acknowledgement(self, last_offset: int, acks: int) -> ErrorCode | None:
        """Returns the result for a batch of this term that ends at `last_offset`: None to wait, NONE for success, or an error."""
        state = self._state
        if self.is_over:
            return state.refusal().code
        if acks == 0:
            return ErrorCode.NONE
        if acks == 1:
            return ErrorCode.NONE if not state.is_flush_on_ack or state.durable_end > last_offset else None
        if state.high_watermark <= last_offset:
            return None
        if len(state.isr_state.members) < self._min_insync:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def call_when_acknowledged(self, last_offset: int, acks: int, function: Callable[[], None]) -> None:
        """Calls `function` once, when `last_offset` is acknowledged as `acks` requires, or when this term ends."""
        if self.is_over:
            function()
        elif acks == ALL_IN_SYNC:
            self._state.notifier.call_when_committed(last_offset + 1, function)
        else:
            self._state.notifier.call_when_durable(last_offset + 1, function)

    def forget_acknowledgement(self, function: Callable[[], None]) -> None:
        self._state.notifier.forget(function)

    def committed_end(self) -> int:
        """`MachineLog`: returns the high watermark, or `NOTHING_COMMITTED` after the term."""
        return NOTHING_COMMITTED if self.is_over else self._state.high_watermark

    def call_when_committed(self, end: int, function: Callable[[], None]) -> None:
        """`MachineLog`: calls `function` when everything below `end` is committed, and possibly when the term ends."""
        if not self.is_over:
            self._state.notifier.call_when_committed(end, function)

    def advance_high_watermark(self) -> bool:
        """Moves the high watermark as far as the rule allows; returns whether it moved."""
        state = self._state
        isr_state, followers, high_watermark = state.isr_state, self.followers, state.high_watermark
        remote_ends = []
        for member in isr_state.maximal:
            if member in followers:
                end = followers[member].durable_end
                if end <= high_watermark:
                    return False
                remote_ends.append(end)
        moved = next_high_watermark(
            high_watermark,
            own_end=state.durable_end,
            remote_ends=remote_ends,
            in_sync=len(isr_state.members),
            in_sync_min=self._min_insync,
        )
        if moved == high_watermark:
            return False
        move_high_watermark(state, moved)
        return True

    # The start of the log

    def delete_records(self, offset: int) -> int:
        """Raises the log's start to `offset` (-1: to the high watermark) and returns that offset. Does nothing if the log starts later
        already. Raises `ApiError` for an offset above the high watermark (I7)."""
        state = self._state
        if self.is_over:
            raise state.refusal()
        target = state.high_watermark if offset == -1 else offset
        if not 0 <= target <= state.high_watermark:
            message = f"cannot delete up to {offset}, the high watermark of {state.topic_partition} is {state.high_watermark}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if target > self.log.log_start_offset:
            self.log.advance_log_start(target)
            state.keep_log_start()
            state.notify()
        return target

    def low_watermark(self, live: Container[int] | None = None) -> int:
        """Returns the smallest log start that replicas have checkpointed; -1 if one of them has not sent its start in this term. Only
        in-sync replicas and replicas on brokers in `live` are considered. All replicas are considered if `live` is None, or while the
        controller keeps eligible replicas."""
        return min(self._state.noted_log_start, self.followed_log_start(live))

    def followed_log_start(self, live: Container[int] | None) -> int:
        """Like `low_watermark`, with the current log start of this broker instead of its checkpoint."""
        state = self._state
        counts_all = live is None or state.is_below_min_insync
        may_lead = state.isr_state.maximal
        starts = [
            follower.log_start_offset
            for replica_id, follower in self.followers.items()
            if counts_all or replica_id in may_lead or (live is not None and replica_id in live)
        ]
        return min([self.log.log_start_offset, *starts])

    # Followers and the ISR

    def take_progress(self, fetch: FollowerFetch) -> None:
        """Records a follower's progress, once for each of its fetches; raises `ApiError` for an invalid fetch."""
        state, log = self._state, self.log
        replica_id, broker_epoch, offset, log_start_offset, now_ms, _ = fetch
        follower = self.followers.get(replica_id)
        if follower is None:
            message = f"broker {replica_id} has no replica of {state.topic_partition}"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        if 0 <= broker_epoch < follower.broker_epoch:
            message = f"broker {replica_id} was registered again after epoch {broker_epoch}"
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, message)
        start, end = log.log_start_offset, log.log_end_offset
        if not start <= offset <= end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{state.topic_partition} reaches from {start} to {end}")
        has_start_moved = log_start_offset > follower.log_start_offset >= 0
        follower.on_fetch(fetch, end)
        if replica_id not in state.isr_state.members:
            self.maybe_expand_isr(follower, now_ms)
        # The watermark is the smallest end, so a follower at or below it does not move it.
        if (follower.durable_end > state.high_watermark and self.advance_high_watermark()) or has_start_moved:
            state.notify()

    def maybe_expand_isr(self, follower: FollowerProgress, now_ms: int) -> None:
        """Proposes a follower for the ISR if it has caught up; called at its fetches (`now_ms` is monotonic)."""
        state = self._state
        isr_state = state.isr_state
        if follower.broker_id in isr_state.members or isr_state.is_pending or now_ms < follower.refused_until_ms:
            return
        known = follower.broker_epoch if state.broker_epoch_of is None else state.broker_epoch_of(follower.broker_id)
        if may_join(follower, high_watermark=state.high_watermark, epoch_start_offset=self.epoch_start_offset, known_broker_epoch=known):
            state.isr_state = isr_state.expand(follower.broker_id)
            self._propose()

    def _maybe_prove(self) -> None:
        """Confirms to the controller that enough replicas are in sync and that the leader's log is open. Until then, the controller keeps
        other replicas eligible."""
        state = self._state
        isr_state = state.isr_state
        if state.is_below_min_insync and not isr_state.is_pending and len(isr_state.members) >= state.configured_min_insync:
            state.isr_state = isr_state.confirm()
            self._propose()

    def maybe_shrink_isr(self, now_ms: int, lag_max_ms: int) -> None:
        """Proposes to remove members that have lagged for too long; called periodically (`now_ms` is monotonic)."""
        state = self._state
        isr_state = state.isr_state
        if self.is_over or isr_state.is_pending:
            return
        out = lagging(isr_state.members, self.followers, self.log.log_end_offset, now_ms=now_ms, lag_max_ms=lag_max_ms)
        if out:
            state.isr_state = isr_state.shrink(out)
            self._propose()

    def _propose(self) -> None:
        """Proposes the pending ISR, each member with its broker epoch (I13)."""
        state = self._state
        epochs = {replica_id: follower.broker_epoch for replica_id, follower in self.followers.items()}
        own_epoch = None if state.broker_epoch_of is None else state.broker_epoch_of(state.broker_id)
        epochs[state.broker_id] = UNKNOWN_EPOCH if own_epoch is None else own_epoch
        members = tuple((member, epochs.get(member, UNKNOWN_EPOCH)) for member in state.isr_state.proposed)
        proposal = IsrProposal(members=members, leader_epoch=self.epoch, partition_epoch=state.partition_epoch)
        if state.on_isr_proposal is not None:
            state.on_isr_proposal(state, proposal)

    def has_proposed(self, proposal: IsrProposal) -> bool:
        """Whether this proposal is pending: it was not answered yet, and no newer state has replaced it."""
        state = self._state
        is_of_now = proposal.leader_epoch == self.epoch and proposal.partition_epoch == state.partition_epoch
        return is_of_now and not self.is_over and state.isr_state.is_pending

    def on_isr_answer(self, isr: Sequence[int] | None, *, leader_epoch: int, partition_epoch: int, eligible: Sequence[int] = ()) -> None:
        """Processes the controller's final answer to a proposal: the current ISR and eligible replicas, or None if the proposal was
        refused.

        A proposal whose outcome is unknown stays pending. An answer with older epochs than ours is ignored.
        """
        state = self._state
        if self.is_over or leader_epoch != self.epoch or partition_epoch < state.partition_epoch:
            return
        if isr is None:
            self._note_refusal(state.isr_state)
        state.isr_state = IsrState(members=state.isr_state.members if isr is None else tuple(isr))
        if isr is not None:
            state.is_below_min_insync = bool(eligible)
            self._configure()
        is_newer, state.partition_epoch = partition_epoch > state.partition_epoch, partition_epoch
        self.advance_high_watermark()
        if is_newer:
            self._maybe_prove()
        state.notify()

    def _note_refusal(self, isr_state: IsrState) -> None:
        """Delays the next proposal of the refused replicas, so that not each of their fetches sends one."""
        for replica_id in isr_state.moving if isr_state.phase is IsrPhase.PENDING_EXPAND else ():
            if (follower := self.followers.get(replica_id)) is not None:
                follower.refused_until_ms = follower.last_fetch_ms + REFUSED_MS
