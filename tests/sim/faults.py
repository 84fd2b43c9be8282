"""Faults: functions that break a rule of transactions on purpose. The tests show that the verdicts notice each. A fault replaces one
function of the product during a run. `catch` searches for a seed that fails with the fault, and returns the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from ottla.base.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.groups.offsets.store import OffsetStore
from ottla.machine.contract import Call, Decision
from ottla.machine.draft import Draft
from ottla.machine.host import MachineHost
from ottla.replication.leader import Leader
from ottla.replication.state import PartitionState
from ottla.replication.verification import Verifications
from ottla.server import flusher
from ottla.storage import producer_snapshot
from ottla.storage.log import Log
from ottla.storage.producer_snapshot import CachedBatch
from ottla.storage.producers import ProducerEntry, ProducerStates
from ottla.transactions import add_partitions, end_transaction, expiry, init_producer_id, markers
from ottla.transactions.coordinators import TransactionCoordinators
from ottla.transactions.expiry import schedule_expiry_scan, schedule_timeout_scan
from ottla.transactions.machine import TransactionMachine
from ottla.transactions.markers import LocalMarkers
from ottla.transactions.metadata import TransactionMetadata, prepared
from ottla.wire.batch_header import BatchHeader
from tests.sim.broker import SimNode
from tests.sim.seed_search import catch_seed
from tests.sim.world import World


def release_early() -> Any:
    """A coordinator's answers and effects are sent before their records are committed."""
    return mock.patch.object(Leader, "committed_end", lambda _leader: 1 << 62)


def skip_resume() -> Any:
    """A new coordinator does not complete transactions that the previous one has decided."""

    def resume(machine: TransactionMachine, now_ms: int) -> Decision:
        shard = machine.shard
        shard.note_clock(now_ms)
        draft = Draft()
        schedule_timeout_scan(shard, draft, shard.settings.timeout_scan_interval_ms)
        schedule_expiry_scan(shard, draft, 1 << 30)
        return draft.decision()

    return mock.patch.object(TransactionMachine, "resume", resume)


def forget_epoch_bump() -> Any:
    """EndTxn of transactions v2 does not raise the epoch."""

    def unbumped(metadata: TransactionMetadata, is_commit: bool, now_ms: int, **_rest: Any) -> TransactionMetadata:
        return prepared(metadata, is_commit, 0, now_ms)

    return mock.patch.object(end_transaction, "prepared_with_bump", unbumped)


def skip_verification() -> Any:
    """Partitions append a transactional batch without asking the coordinator, as before KIP-890."""

    def admit(_self: Any, _id: str, _pid: int, _epoch: int, partitions: Any, _is_v2: bool, done: Callable[[Any], None]) -> None:
        done(dict.fromkeys(partitions, ErrorCode.NONE))

    return mock.patch.object(TransactionCoordinators, "admit", admit)


def skip_epoch_check() -> Any:
    """The coordinator adds partitions for any producer epoch."""
    return mock.patch.object(add_partitions, "_judge_add", lambda _metadata, _identity: ErrorCode.NONE)


def forget_timeouts() -> Any:
    """Transactions that are open for too long are not aborted."""
    return mock.patch.object(TransactionMetadata, "is_timed_out", lambda _metadata, _now_ms: False)


def forget_group_markers() -> Any:
    """The group coordinator is not notified of markers in its partition."""
    return mock.patch.object(MachineHost, "apply_marker", lambda *_arguments: None)


def lose_markers() -> Any:
    """A marker is reported as written without being written."""
    return mock.patch.object(LocalMarkers, "write", lambda _markers, _partition, _marker, done: done(ErrorCode.NONE))


def forget_last_stable_offset() -> Any:
    """Readers of committed data get everything below the high watermark."""
    return mock.patch.object(PartitionState, "last_stable_offset", property(lambda state: state.high_watermark))


def forget_aborted() -> Any:
    """Aborted transactions are not added to the index of aborted transactions."""
    return mock.patch.object(Log, "_note_aborted", lambda _log, _ended: None)


def answer_before_durable() -> Any:
    """The high watermark includes records that were not synced."""
    return mock.patch.object(flusher, "sync_all", lambda _work, _failures: None)


def accept_any_sequence() -> Any:
    """A repeated batch is appended twice."""
    return mock.patch.object(ProducerStates, "_judge_sequence", lambda *_arguments: None)


def forget_bump_on_init() -> Any:
    """InitProducerId returns the epoch of the former producer."""
    return mock.patch.object(init_producer_id, "next_identity", lambda _shard, current: current)


def show_pending_offsets() -> Any:
    """Offsets of a transaction become visible before its marker is written."""
    keep = OffsetStore.put_pending

    def put_pending(store: OffsetStore, producer_id: int, group_id: str, key: Any, offset: Any) -> None:
        keep(store, producer_id, group_id, key, offset)
        store._materialize(group_id, key, offset)

    return mock.patch.object(OffsetStore, "put_pending", put_pending)


def ignore_pending_offsets() -> Any:
    """OffsetFetch with `require_stable` does not wait."""
    return mock.patch.object(OffsetStore, "pending_keys", lambda *_arguments: ())


def markers_before_prepare() -> Any:
    """Markers are sent to the partitions before the decision is durable."""
    run = MachineHost.run

    def run_early(host: MachineHost, decide: Callable[[int], Decision]) -> None:
        def split(now_ms: int) -> Decision:
            decision = decide(now_ms)
            calls = [effect for effect in decision.effects if type(effect) is Call]
            if not decision.records or not calls:
                return decision
            host._timers.call_soon(lambda: [call.function() for call in calls])
            return replace(decision, effects=[effect for effect in decision.effects if effect not in calls])

        run(host, split)

    return mock.patch.object(MachineHost, "run", run_early)


def skip_guard() -> Any:
    """A partition uses the coordinator's answer although a marker has arrived after the question (KIP-890)."""
    return mock.patch.multiple(Verifications, check=lambda *_arguments, **_named: None, stands=lambda *_arguments: True)


def timeout_without_fencing() -> Any:
    """A timed-out transaction is aborted without a new epoch, so its client may continue."""

    def unbumped(metadata: TransactionMetadata, is_commit: bool, now_ms: int, **_rest: Any) -> TransactionMetadata:
        return prepared(metadata, is_commit, 0, now_ms)

    return mock.patch.object(expiry, "prepared_with_bump", unbumped)


def forget_producers() -> Any:
    """A broker that starts does not load epochs, sequences and open transactions of producers."""
    load = Log.open

    def opened(*arguments: Any, **options: Any) -> Log:
        log = load(*arguments, **options)
        log.producers.clear()
        return log

    return mock.patch.object(Log, "open", opened)


def forget_completed() -> Any:
    """The last stable offset advances over a transaction whose marker may still be lost."""
    follow = ProducerStates.apply_marker

    def apply_marker(producers: ProducerStates, *arguments: Any) -> Any:
        ended = follow(producers, *arguments)
        producers.completed.clear()
        producers._find_first_unstable()
        return ended

    return mock.patch.object(ProducerStates, "apply_marker", apply_marker)


def snapshot_without_open() -> Any:
    """A producer snapshot lacks the open transactions."""
    keep = ProducerStates.snapshot

    def snapshot(producers: ProducerStates) -> bytes:
        return producer_snapshot.encode_snapshot(
            [row._replace(transaction_first_offset=-1) for row in producer_snapshot.decode_snapshot(keep(producers), "")[0]], []
        )

    return mock.patch.object(ProducerStates, "snapshot", snapshot)


def forget_markers_of_groups_on_load() -> Any:
    """A group coordinator ignores markers when it loads its log."""
    apply = GroupMachine.apply_marker

    def apply_marker(machine: GroupMachine, *arguments: Any) -> None:
        if machine.shard.is_live:
            apply(machine, *arguments)

    return mock.patch.object(GroupMachine, "apply_marker", apply_marker)


def replace_partitions() -> Any:
    """Partitions that are added to a transaction replace the earlier ones."""
    add = add_partitions.with_partitions

    def with_partitions(metadata: TransactionMetadata, partitions: Any, version: int, now_ms: int) -> TransactionMetadata:
        return add(metadata, partitions, version, now_ms)._replace(partitions=partitions)

    return mock.patch.object(add_partitions, "with_partitions", with_partitions)


def end_any_epoch() -> Any:
    """EndTxn with an earlier epoch ends the transaction of the current epoch."""
    judge = end_transaction._judge_v2
    return mock.patch.object(
        end_transaction, "_judge_v2", lambda metadata, _identity, is_commit: judge(metadata, metadata.identity, is_commit)
    )


def complete_before_markers() -> Any:
    """A transaction is completed before its markers are committed."""
    return mock.patch.object(markers._Wait, "look", lambda wait: wait._done(ErrorCode.NONE))


def take_unknown_for_written() -> Any:
    """A partition that is missing in the coordinator's metadata is treated as deleted, so it gets no marker."""
    return mock.patch.object(SimNode, "_is_deleted", lambda _node: markers.always_deleted)


def answer_with_another_offset() -> Any:
    """A duplicate is answered with an offset that is not the offset of the batch in the log."""
    find = ProducerEntry.find_duplicate

    def find_duplicate(entry: ProducerEntry, header: BatchHeader) -> CachedBatch | None:
        batch = find(entry, header)
        return None if batch is None else batch._replace(base_offset=batch.base_offset + 1)

    return mock.patch.object(ProducerEntry, "find_duplicate", find_duplicate)


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (
        release_early,
        answer_before_durable,
        markers_before_prepare,
        skip_resume,
        lose_markers,
        forget_group_markers,
        forget_epoch_bump,
        forget_bump_on_init,
        timeout_without_fencing,
        forget_timeouts,
        skip_verification,
        skip_guard,
        skip_epoch_check,
        accept_any_sequence,
        forget_producers,
        forget_last_stable_offset,
        forget_aborted,
        show_pending_offsets,
        ignore_pending_offsets,
        forget_completed,
        snapshot_without_open,
        forget_markers_of_groups_on_load,
        replace_partitions,
        end_any_epoch,
        complete_before_markers,
        take_unknown_for_written,
        answer_with_another_offset,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with FAULTS[name]():
        yield


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault, and the message; (0, "") if no seed fails."""
    return catch_seed(planted(name), lambda seed: World(seed).run(), seeds, first)
