"""Faults: functions that break a rule of share groups, as in `faults.py`. The tests show that the verdicts notice each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ottla.base.errors import ErrorCode
from ottla.base.share_state import ShareState, StateWritten
from ottla.machine.contract import Decision, Reply
from ottla.replication.leader import Leader
from ottla.server import flusher
from ottla.sharing import acknowledgement, acquisition, share_partition, state_machine
from ottla.sharing.acquisition import Taker
from ottla.sharing.commands import ReadState, WriteState
from ottla.sharing.in_flight import AVAILABLE, InFlight, OffsetRun
from ottla.sharing.pruning import Pruner
from ottla.sharing.share_partition import SharePartition
from ottla.sharing.state_machine import ShareStateMachine
from tests.sim.seed_search import catch_seed
from tests.sim.share_world import ShareWorld


def answer_before_write() -> Any:
    """An acknowledgement is answered before it is written."""
    change = SharePartition._change

    def hasty(share: SharePartition, changing: list[OffsetRun], done: StateWritten) -> None:
        done(ErrorCode.NONE)
        change(share, changing, lambda _code: None)

    return mock.patch.object(SharePartition, "_change", hasty)


def answer_before_durable() -> Any:
    """The high watermark includes records that were not synced."""
    return mock.patch.object(flusher, "sync_all", lambda _work, _failures: None)


def release_early() -> Any:
    """The coordinator answers before its records are committed."""
    return mock.patch.object(Leader, "committed_end", lambda _leader: 1 << 62)


def forget_state_epoch() -> Any:
    """A write from before a reset is accepted after it."""
    write = ShareStateMachine._write

    def lax(machine: ShareStateMachine, now_ms: int, command: WriteState, reply: Reply) -> Decision:
        return write(machine, now_ms, command._replace(state=command.state._replace(state_epoch=-1)), reply)

    return mock.patch.object(ShareStateMachine, "_write", lax)


def forget_leader_epoch() -> Any:
    """A replaced leader may still write, and a later leader reads the epoch of the first one."""
    write, read = ShareStateMachine._write, ShareStateMachine._read

    def lax_write(machine: ShareStateMachine, now_ms: int, command: WriteState, reply: Reply) -> Decision:
        return write(machine, now_ms, command._replace(state=command.state._replace(leader_epoch=-1)), reply)

    def lax_read(machine: ShareStateMachine, now_ms: int, command: ReadState, reply: Reply) -> Decision:
        known = machine.shard.partitions.get(command.key)
        return read(machine, now_ms, command._replace(leader_epoch=known.state.leader_epoch if known else 0), reply)

    return mock.patch.multiple(ShareStateMachine, _write=lax_write, _read=lax_read)


def lose_snapshot_merge() -> Any:
    """A snapshot contains only the last change."""

    def unmerged(known: ShareState, change: ShareState) -> ShareState:
        return change._replace(state_epoch=known.state_epoch, leader_epoch=known.leader_epoch)

    return mock.patch.object(state_machine, "updated", unmerged)


def start_ahead_of_its_write() -> Any:
    """A write contains the start offset that would be right after it, without regard to other pending writes."""
    change = SharePartition._change

    def ahead(share: SharePartition, changing: list[OffsetRun], done: StateWritten) -> None:
        flight, start = share.flight, share.flight.start
        last = max((run.last for run in changing if run.target is not AVAILABLE), default=start - 1)
        flight.start = max(start, last + 1)
        try:
            change(share, changing, done)
        finally:
            if flight.start == max(start, last + 1):
                flight.start = start

    return mock.patch.object(SharePartition, "_change", ahead)


def prune_too_much() -> Any:
    """The beginning of the log is deleted although it has snapshots that are needed."""

    def prune(pruner: Pruner, _redundant_end: int) -> None:
        leader: Any = pruner._partition
        leader.delete_records(leader.committed_end())

    return mock.patch.object(Pruner, "__call__", prune)


def forget_expiry() -> Any:
    """Locks never expire."""
    return mock.patch.object(SharePartition, "_arm", lambda _share, _deadline_ms: None)


def forget_limit() -> Any:
    """Records that no member accepts are delivered without a limit."""
    return mock.patch.object(acknowledgement, "outcome", lambda _run, kind, _limit: acknowledgement.OUTCOMES[kind])


def forget_owner() -> Any:
    """Acknowledgements are accepted from any member."""
    plan = acknowledgement.plan

    def accept_all(flight: InFlight, member: str, said: Any, rules: Any, deadline_ms: int) -> Any:
        for run in flight.runs:
            if run.member and run.target is None:
                run.member = member
        return plan(flight, member, said, rules, deadline_ms)

    return mock.patch.object(acknowledgement, "plan", accept_all)


def forget_counts() -> Any:
    """The next leader does not include earlier deliveries in the delivery count."""

    def uncounted(start: int, batches: Any = ()) -> InFlight:
        return InFlight(start, [batch._replace(delivery_count=0) for batch in batches])

    return mock.patch.object(share_partition, "InFlight", uncounted)


def share_twice() -> Any:
    """Records that a member has acquired stay available for other members."""
    take = Taker._take

    def leave(taker: Taker, run: OffsetRun) -> None:
        take(taker, run)
        taker._flight.set_state(run, AVAILABLE)

    return mock.patch.object(Taker, "_take", leave)


def skip_records() -> Any:
    """The first new record is skipped."""

    def skip(flight: InFlight, member: str, offset: int, batches: Any, terms: Any) -> Any:
        taken = acquire(flight, member, offset, batches, terms)
        if taken and len(taken) > 1:
            flight.archive_free(flight.end, flight.end)
        return taken

    acquire = acquisition.acquire
    return mock.patch.object(acquisition, "acquire", skip)


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (
        answer_before_write,
        answer_before_durable,
        release_early,
        forget_state_epoch,
        forget_leader_epoch,
        lose_snapshot_merge,
        start_ahead_of_its_write,
        prune_too_much,
        forget_expiry,
        forget_limit,
        forget_owner,
        forget_counts,
        share_twice,
        skip_records,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with FAULTS[name]():
        yield


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault, and the message; (0, "") if no seed fails."""
    return catch_seed(planted(name), lambda seed: ShareWorld(seed).run(), seeds, first)
