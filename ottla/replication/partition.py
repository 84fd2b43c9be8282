"""One replica of one partition as its clients see it: what is written, acknowledged, readable and stable.

A leader checks a batch, gives it its offset, and moves the high watermark as its replicas (or, with flush on ack, its disk) come along.
All bounds follow from that: consumers read below the high watermark, readers of committed data below the last stable offset, followers
to the end of the log.

Invariants: nothing is appended when a check refuses (I19, I21); a request that names another leader epoch changes nothing (I18); with
acks=all nothing is appended while too few replicas are in sync, and what is acknowledged is below the high watermark (I14); a
transaction gets one marker (I25).

Left out: roles, bounds, watchers and following (`replica.py`), bytes and files (`storage/log.py`), sequences (`storage/producers.py`),
reads and look-ups (`reads.py`), sending anything to anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.machine.contract import LogRecord, Transactional
from ottla.replication import reads
from ottla.replication.isr import IsrProposal, IsrState, lagging, may_join
from ottla.replication.leader import RemoteReplica
from ottla.replication.reads import PartitionRead
from ottla.replication.replica import Replica
from ottla.replication.verification import VerificationGuard
from ottla.storage.producer_snapshot import CachedBatch
from ottla.storage.validate import check_batch, stamp_batch
from ottla.wire.batch_header import TRANSACTIONAL_BIT, BatchHeader, read_batch_header
from ottla.wire.records import CONTROL_ABORT, CONTROL_COMMIT, Record, encode_batch, encode_control_batch

__all__ = ["AppendResult", "Partition", "PartitionRead"]

_new_tuple = tuple.__new__


class AppendResult(NamedTuple):
    """Where a batch stands; `log_append_time_ms` is -1 unless the broker stamps times."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool


class Partition(Replica):
    """See above. `leader_epoch`, `high_watermark`, `isr`, `last_stable_offset` and the rest of the state: `Replica`."""

    __slots__ = ()

    # Appending as leader

    def append(
        self,
        batch: memoryview | bytearray,
        *,
        acks: int,
        now_ms: int,
        is_transaction_v2: bool = False,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Appends a client's batch, which is stamped in place; or finds that it is there already. `now_ms` is wall time."""
        if not self._is_leading:
            self.require_leading()
        log = self.log
        config = log.config
        if config is not self._config:
            self._configure()
        if acks == -1 and not self._is_alone:
            self._require_in_sync()
        if type(batch) is not memoryview:
            batch = memoryview(batch)
        header = check_batch(batch, config, now_ms=now_ms)
        if header[9] >= 0:
            duplicate = self._check_producer(header, is_transaction_v2, guard)
            if duplicate is not None:
                time_ms = duplicate.timestamp if config.is_log_append_time else -1
                return AppendResult(duplicate.base_offset, duplicate.last_offset, time_ms, log.log_start_offset, True)
        if self._is_stamping:
            batch, header = stamp_batch(batch, header, config, now_ms=now_ms)
        base_offset = self._write(batch, header, now_ms)
        self.traffic.produces += 1
        time_ms = now_ms if config.is_log_append_time else -1
        result: AppendResult = _new_tuple(AppendResult, (base_offset, base_offset + header[6], time_ms, log.log_start_offset, False))
        return result

    def _check_producer(self, header: BatchHeader, is_transaction_v2: bool, guard: VerificationGuard | None) -> CachedBatch | None:
        producers = self.log.producers
        duplicate = producers.check(header, transaction_version=2 if is_transaction_v2 else 0)
        if duplicate is None and header.attributes & TRANSACTIONAL_BIT:
            producer_id = header.producer_id
            if not producers.has_open_transaction(producer_id, header.producer_epoch):
                if self.is_verification_required or guard is not None:
                    self.verifications.check(header, guard)
                self.verifications.forget(producer_id)
        return duplicate

    def begin_verification(self, producer_id: int, producer_epoch: int, base_sequence: int) -> VerificationGuard | None:
        """To be called before the coordinator is asked, and shown to `append`; None when the transaction is open here already."""
        if self.log.producers.has_open_transaction(producer_id, producer_epoch):
            return None
        return self.verifications.begin(producer_id, producer_epoch, base_sequence)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.log.producers.has_open_transaction(producer_id, producer_epoch)

    def write_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool, now_ms: int, transaction_version: int = 0
    ) -> int | None:
        """Ends a producer's transaction here; the marker's offset, or None when the same marker stands in the log already.

        Either way the marker is safe only when the high watermark has reached the log end of this moment.
        """
        self.require_leading()
        if self.log.config is not self._config:
            self._configure()
        self._require_in_sync()
        producers = self.log.producers
        is_repeated = producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        self.verifications.forget(producer_id)
        if is_repeated:
            return None
        kind = CONTROL_COMMIT if is_commit else CONTROL_ABORT
        batch = memoryview(encode_control_batch(kind, producer_id, producer_epoch, coordinator_epoch, now_ms))
        return self._write(batch, read_batch_header(batch), now_ms)

    def append_records(self, records: Sequence[LogRecord], transactional: Transactional | None, now_ms: int) -> int:
        """`MachineLog`: one batch of a coordinator, with acks=all; the offset after its last record."""
        self.require_leading()
        config = self.log.config
        if config is not self._config:
            self._configure()
        self._require_in_sync()
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
            batch, header = stamp_batch(batch, header, config, now_ms=now_ms)
        return self._write(batch, header, now_ms) + header.last_offset_delta + 1

    def _require_in_sync(self) -> None:
        in_sync = len(self.isr_state.members)
        if in_sync < self.min_insync:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{in_sync} replicas in sync, min.insync.replicas is {self.min_insync}")

    def _write(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        """Appends what every check has passed, and moves the bounds."""
        log = self.log
        try:
            base_offset = log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except StorageError as error:
            raise self.fail(error) from error
        traffic = self.traffic
        traffic.messages_in += header[6] + 1
        traffic.bytes_in += len(batch)
        if log.log_end_offset >= log.flush_offset and self._request_flush is not None:
            self._request_flush(self)  # flush.messages
        if self._is_flush_on_ack:
            self._ask_flush()
        elif self._is_alone:
            self.high_watermark = high_watermark = base_offset + header[6] + 1
            log.producers.on_high_watermark(high_watermark)
        else:
            self._advance_high_watermark()
        if self._watchers or self._committed_listeners or self._awaiting_commit:
            self._notify()
        return base_offset

    # Acknowledging

    def acknowledgement(self, last_offset: int, acks: int, leader_epoch: int = -1) -> ErrorCode | None:
        """What to tell the producer of a batch that ends at `last_offset`: None to wait, NONE for done, or an error.

        `leader_epoch` is the one of the append: under a later one the offset may belong to another batch.
        """
        if not self._is_leading or 0 <= leader_epoch != self.leader_epoch:
            return self.offline_code if self.offline_reason else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == 0:
            return ErrorCode.NONE
        if acks == 1:
            return ErrorCode.NONE if not self._is_flush_on_ack or self._durable_end > last_offset else None
        if self.high_watermark <= last_offset:
            return None
        if len(self.isr_state.members) < self.min_insync:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def committed_end(self) -> int:
        """`MachineLog`: the high watermark."""
        return self.high_watermark

    def on_committed(self, function: Callable[[], None]) -> None:
        """`MachineLog`: calls `function` after each move, for this term of leadership."""
        self._committed_listeners.append(function)

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
        replica_id: int = -1,
        replica_epoch: int = -1,
        log_start_offset: int = -1,
        now_ms: int = 0,
    ) -> PartitionRead:
        """What a Fetch gets. A `replica_id` >= 0 is a follower's, whose progress it tells (`now_ms` is monotonic)."""
        if not self._is_leading or 0 <= current_leader_epoch != self.leader_epoch:
            self.require_leading(current_leader_epoch)
        if last_fetched_epoch >= 0:
            diverging = reads.find_divergence(self, offset, last_fetched_epoch)
            if diverging is not None:
                start = self.log.log_start_offset
                return PartitionRead(None, self.high_watermark, self.last_stable_offset, start, None, diverging)
        try:
            if replica_id < 0:
                return reads.read_as_consumer(self, offset, bytes_max, isolation, min_one)
            self._on_follower_fetch(replica_id, replica_epoch, offset, log_start_offset, now_ms)
            return reads.read_as_follower(self, offset, bytes_max, min_one)
        except StorageError as error:
            raise self.fail(error) from error

    def list_offset(self, timestamp: int, isolation: int, current_leader_epoch: int = -1) -> tuple[int, int, int]:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp`, or for a special negative one."""
        self.require_leading(current_leader_epoch)
        try:
            return reads.list_offset(self, timestamp, isolation)
        except StorageError as error:
            raise self.fail(error) from error

    def end_offset_for_epoch(self, leader_epoch: int, current_leader_epoch: int = -1) -> tuple[int, int]:
        """The largest epoch not above `leader_epoch` and where it ends; (-1, -1) when nothing is known of it."""
        self.require_leading(current_leader_epoch)
        return self.log.epochs.end_offset_for(leader_epoch, self.log.log_end_offset)

    def delete_records(self, offset: int) -> int:
        """Raises the log's start (-1: to the high watermark), never above the high watermark (I7); the new low watermark."""
        self.require_leading()
        target = self.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.high_watermark:
            message = f"cannot delete up to {offset}, the high watermark of {self.topic_partition} is {self.high_watermark}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if target > self.log.log_start_offset:
            self.log.advance_log_start(target)
            self._notify()
        return self.low_watermark

    @property
    def low_watermark(self) -> int:
        """The smallest log start of all replicas that have told theirs."""
        starts = [remote.log_start_offset for remote in self.remotes.values() if remote.log_start_offset >= 0]
        return min(self.log.log_start_offset, *starts) if starts else self.log.log_start_offset

    # Replicas and the ISR

    def _on_follower_fetch(self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int) -> None:
        replica = self.remotes.get(replica_id)
        if replica is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica_id} has no replica of {self.topic_partition}")
        end = self.log.log_end_offset
        if not self.log.log_start_offset <= offset <= end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} reaches from {self.log.log_start_offset} to {end}")
        replica.on_fetch(offset=offset, log_start_offset=log_start_offset, leader_end_offset=end, broker_epoch=broker_epoch, now_ms=now_ms)
        self._maybe_expand_isr(replica)
        before = self.high_watermark
        self._advance_high_watermark()
        if self.high_watermark != before:
            self._notify()

    def _maybe_expand_isr(self, replica: RemoteReplica) -> None:
        state = self.isr_state
        if replica.broker_id in state.members or state.moving:
            return
        known = replica.broker_epoch if self.broker_epoch_of is None else self.broker_epoch_of(replica.broker_id)
        if may_join(replica, high_watermark=self.high_watermark, epoch_start_offset=self.epoch_start_offset, known_broker_epoch=known):
            self.isr_state = state.expand(replica.broker_id)
            self._propose()

    def maybe_shrink_isr(self, now_ms: int, lag_max_ms: int) -> None:
        """Proposes to drop who has lagged for too long; called by the housekeeping of a leader (`now_ms` is monotonic)."""
        state = self.isr_state
        if not self._is_leading or state.moving:
            return
        end = self.log.log_end_offset
        out = lagging(state.members, self.remotes, leader_end_offset=end, now_ms=now_ms, lag_max_ms=lag_max_ms)
        if out:
            self.isr_state = state.shrink(out)
            self._propose()

    def _propose(self) -> None:
        """Asks for the ISR in mind, naming each member's life by its broker epoch (I13)."""
        epochs = {replica_id: replica.broker_epoch for replica_id, replica in self.remotes.items()}
        own_epoch = -1 if self.broker_epoch_of is None else self.broker_epoch_of(self.broker_id)
        epochs[self.broker_id] = -1 if own_epoch is None else own_epoch
        members = tuple((member, epochs.get(member, -1)) for member in self.isr_state.proposed)
        proposal = IsrProposal(members=members, leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch)
        if self.on_isr_proposal is not None:
            self.on_isr_proposal(self, proposal)

    def on_isr_answer(self, isr: Sequence[int] | None, *, leader_epoch: int, partition_epoch: int) -> None:
        """The controller's answer to a proposal: the ISR as it stands now, or None when the proposal was refused.

        An answer from before a change that we know already (older epochs) says nothing.
        """
        if not self._is_leading or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return
        self.isr_state = IsrState(members=self.isr_state.members if isr is None else tuple(isr))
        self.partition_epoch = partition_epoch
        self._advance_high_watermark()
        self._notify()
