"""The transaction coordinator of one partition of `__transaction_state`, as a state machine over the partition's log
(`machine/contract.py`).

The `decide_*` functions of `init_producer_id.py`, `add_partitions.py`, `end_transaction.py` and `queries.py` decide commands;
`coordinators.py` runs them on the shard. `resume` sends the markers of every prepared transaction again, with the logged outcome, and
starts the scans for timeouts and expired ids. The coordinator epoch is the leader epoch of the partition. Partitions refuse markers with an
older coordinator epoch.

`coordinators.py` chooses the shard of an id, and waits for a transaction to complete. `markers.py` delivers the markers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode
from ottla.machine.contract import Decision, Effect, LogRecord, Respond, RunDecision, Transactional, run_nothing
from ottla.machine.draft import Draft
from ottla.machine.memory import CoordinatorMemory
from ottla.transactions.end_transaction import send_markers
from ottla.transactions.expiry import schedule_expiry_scan, schedule_timeout_scan
from ottla.transactions.settings import TransactionCoordinatorSettings
from ottla.transactions.shard import EndCounts, MarkerSender, ProducerIdSource, Shard
from ottla.transactions.states import PREPARED


class TransactionMachine:
    """One shard; `machine/contract.py` describes the methods."""

    def __init__(
        self,
        coordinator_epoch: int,
        settings: TransactionCoordinatorSettings,
        producer_ids: ProducerIdSource,
        markers: MarkerSender,
        memory: CoordinatorMemory | None = None,
        ended: EndCounts | None = None,
    ) -> None:
        self.shard = Shard(coordinator_epoch, settings, producer_ids, markers, memory or CoordinatorMemory(), ended or EndCounts())

    # The life of a shard (`machine/coordinator.py`)

    def begin(self, run: RunDecision) -> None:
        self.shard.run = run

    def end(self) -> None:
        self.shard.memory.end()
        self.shard.run = run_nothing

    def configure(self, settings: TransactionCoordinatorSettings) -> None:
        self.shard.settings = settings

    # The machine's contract

    def apply(self, offset: int, record: LogRecord, transactional: Transactional | None) -> None:
        self.shard.apply(record)

    def apply_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Does nothing: this topic has no records of clients' transactions, so a marker in it has no meaning."""

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
        """Answers all waiting requests when leadership is lost; the clients must ask the next coordinator."""
        self.shard.is_abandoned = True
        waiters = [waiter for waiters in self.shard.waiting.values() for waiter in waiters]
        self.shard.waiting.clear()
        return [Respond(waiter, code) for waiter in waiters]
