"""Rules broken on purpose, to see that the judge sees it.

Each fault replaces one function of the product for the length of a run. `catch` looks for a seed that fails under it, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ottla.base.errors import ErrorCode
from ottla.machine.contract import Decision
from ottla.machine.host import MachineHost
from ottla.replication.partition import Partition
from ottla.transactions import add_partitions, end_transaction
from ottla.transactions.expiry import next_expiry_scan, next_timeout_scan
from ottla.transactions.machine import TransactionMachine
from ottla.transactions.markers import LocalMarkers
from ottla.transactions.metadata import TransactionMetadata, prepared
from ottla.transactions.routing import TransactionCoordinators
from tests.sim.world import World


def release_early() -> Any:
    """Effects leave before their records are committed."""
    return mock.patch.object(Partition, "committed_end", lambda _partition: 1 << 62)


def skip_resume() -> Any:
    """A new coordinator does not finish what the last one has decided."""

    def resume(machine: TransactionMachine, now_ms: int) -> Decision:
        shard = machine.shard
        scans = (next_timeout_scan(shard, shard.settings.timeout_scan_interval_ms), next_expiry_scan(shard, 1 << 30))
        return Decision(effects=scans)

    return mock.patch.object(TransactionMachine, "resume", resume)


def forget_epoch_bump() -> Any:
    """An end of transactions v2 keeps the epoch."""

    def unbumped(metadata: TransactionMetadata, is_commit: bool, now_ms: int, **_rest: Any) -> TransactionMetadata:
        return prepared(metadata, is_commit, 0, now_ms)

    return mock.patch.object(end_transaction, "prepared_with_bump", unbumped)


def skip_verification() -> Any:
    """Partitions take a transactional batch without asking the coordinator, as before KIP-890."""

    def admit(_self: Any, _id: str, _pid: int, _epoch: int, partitions: Any, _is_v2: bool, done: Callable[[Any], None]) -> None:
        done(dict.fromkeys(partitions, ErrorCode.NONE))

    return mock.patch.object(TransactionCoordinators, "admit", admit)


def skip_epoch_check() -> Any:
    """The coordinator adds partitions for whoever asks."""
    return mock.patch.object(add_partitions, "_judge_add", lambda _metadata, _identity: ErrorCode.NONE)


def forget_timeouts() -> Any:
    """Nobody looks for transactions that are open for too long."""
    return mock.patch.object(TransactionMetadata, "is_timed_out", lambda _metadata, _now_ms: False)


def forget_group_markers() -> Any:
    """The group coordinator does not hear of markers in its partition."""
    return mock.patch.object(MachineHost, "apply_marker", lambda *_arguments: None)


def lose_markers() -> Any:
    """A marker counts as written without being written."""
    return mock.patch.object(LocalMarkers, "write", lambda _markers, _partition, _marker, done: done(ErrorCode.NONE))


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (
        release_early,
        skip_resume,
        forget_epoch_bump,
        skip_verification,
        skip_epoch_check,
        forget_timeouts,
        forget_group_markers,
        lose_markers,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with FAULTS[name]():
        yield


def catch(name: str, seeds: int) -> tuple[int, str]:
    """The first seed that fails under the fault, and how; (0, "") if none does."""
    with planted(name):
        for seed in range(1, seeds + 1):
            try:
                World(seed).run()
            except AssertionError as failure:
                return seed, str(failure).split("\n", 1)[0]
    return 0, ""
