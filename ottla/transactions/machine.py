"""The transaction coordinator of one partition of `__transaction_state`, as a log machine: commands in, decisions out.

Each command is one line here and is decided in a separate file. `resume` sends the markers of every transaction that a lost leader
left prepared, to the outcome that was logged, and starts the two scans; the coordinator epoch is the leader epoch of the partition, and
partitions refuse markers of an older one.

Left out: which shard an id belongs to and waiting for a completing transaction (`routing.py`), delivery of markers (`markers.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.machine.contract import Answer, Decision, Effect, LogRecord, Reply, Transactional
from ottla.machine.draft import Draft
from ottla.machine.memory import CoordinatorMemory
from ottla.transactions.add_partitions import decide_add, decide_verify
from ottla.transactions.end_transaction import decide_end, send_markers
from ottla.transactions.expiry import schedule_expiry_scan, schedule_timeout_scan
from ottla.transactions.init_producer_id import InitProducerId, decide_init
from ottla.transactions.metadata import ProducerIdAndEpoch
from ottla.transactions.queries import ListFilter, decide_describe, decide_list
from ottla.transactions.settings import TransactionCoordinatorSettings
from ottla.transactions.shard import MarkerSender, ProducerIdSource, Shard
from ottla.transactions.states import PREPARED


class TransactionMachine:
    """One shard; see `machine/contract.py` for what a host does with it."""

    def __init__(
        self,
        coordinator_epoch: int,
        settings: TransactionCoordinatorSettings,
        producer_ids: ProducerIdSource,
        markers: MarkerSender,
        memory: CoordinatorMemory | None = None,
    ) -> None:
        self.shard = Shard(coordinator_epoch, settings, producer_ids, markers, memory or CoordinatorMemory())

    # The machine's contract

    def apply(self, offset: int, record: LogRecord, transactional: Transactional | None) -> None:
        self.shard.apply(record)

    def apply_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Changes nothing: this topic has no records of clients' transactions, and a stray marker is ignored."""

    def resume(self, now_ms: int) -> Decision:
        shard = self.shard
        shard.note_clock(now_ms)
        shard.memory.count()
        draft = Draft()
        for metadata in shard.transactions.values():
            if metadata.state in PREPARED:
                draft.call(send_markers(shard, metadata))
        schedule_timeout_scan(shard, draft, shard.settings.timeout_scan_interval_ms)
        schedule_expiry_scan(shard, draft, shard.settings.expiry_scan_interval_ms)
        return draft.decision()

    def abandon(self, code: ErrorCode) -> Sequence[Effect]:
        """Answers all waiting requests when leadership is lost: they must ask the next coordinator."""
        self.shard.is_abandoned = True
        waiters = [waiter for waiters in self.shard.waiting.values() for waiter in waiters]
        self.shard.waiting.clear()
        return [Answer(waiter, code) for waiter in waiters]

    # Commands

    def init_producer_id(self, now_ms: int, command: InitProducerId, reply: Reply) -> Decision:
        """Replies an `EndResult`."""
        return decide_init(self.shard, now_ms, command, reply)

    def add_partitions(
        self,
        now_ms: int,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        version: int,
        reply: Reply,
    ) -> Decision:
        """Replies an `ErrorCode`."""
        return decide_add(self.shard, now_ms, transactional_id, identity, partitions, version, reply)

    def verify_partitions(
        self, now_ms: int, transactional_id: str, identity: ProducerIdAndEpoch, partitions: Sequence[TopicPartition], reply: Reply
    ) -> Decision:
        """Replies an `ErrorCode` for each partition."""
        return decide_verify(self.shard, transactional_id, identity, partitions, reply)

    def end(
        self, now_ms: int, transactional_id: str, identity: ProducerIdAndEpoch, is_commit: bool, version: int, reply: Reply
    ) -> Decision:
        """Replies an `EndResult`."""
        return decide_end(self.shard, now_ms, transactional_id, identity, is_commit, version, reply)

    def describe(self, now_ms: int, transactional_id: str, reply: Reply) -> Decision:
        """Replies a `TransactionMetadata` or None."""
        return decide_describe(self.shard, transactional_id, reply)

    def list_transactions(self, now_ms: int, wanted: ListFilter, reply: Reply) -> Decision:
        """Replies a list of `TransactionMetadata`."""
        return decide_list(self.shard, now_ms, wanted, reply)
