"""More faults like those of `cluster_faults.py`: they break rules of eligible replicas, moves, truncations, and log directories that fail
and work again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from ottla.base.cluster_metadata import NO_LEADER, PartitionMetadata
from ottla.cluster.control.inbox import ControlInbox
from ottla.cluster.control.receiver import ControlReceiver
from ottla.controller import leader_election, machine, partition_states, reassignment
from ottla.controller.leader_election import Standing
from ottla.replication import leader
from ottla.replication.state import PartitionState
from ottla.server import replica_changes
from ottla.storage.durability import Durability
from ottla.wire.messages.stop_replica import StopReplicaRequest
from tests.sim.seed_search import together


def watermark_despite_eligible() -> Any:
    """A leader uses only its own `min.insync.replicas`, although the partition state has eligible replicas (KIP-966)."""
    return mock.patch.object(PartitionState, "is_below_min_insync", property(lambda _state: False, lambda _state, _is_below: None))


def join_before_epoch_start() -> Any:
    """A follower joins the ISR at the high watermark, although the leader's epoch begins at a later offset (KAFKA-7128)."""
    join = leader.may_join

    def may_join(follower: Any, **bounds: Any) -> bool:
        return bool(join(follower, **{**bounds, "epoch_start_offset": 0}))

    return mock.patch.object(leader, "may_join", may_join)


def unproved_stays_eligible() -> Any:
    """A replica stays eligible although its broker has restarted without proof that its log is complete."""
    after = leader_election.eligible_after

    def eligible_after(partition: Any, isr: Any, in_sync_min: int, _lost: Any = ()) -> tuple[int, ...]:
        return after(partition, isr, in_sync_min)

    return mock.patch.object(partition_states, "eligible_after", eligible_after)


def move_ends_early() -> Any:
    """A move ends as soon as one of its new replicas is in sync."""
    finish = reassignment.finished

    def finished(partition: PartitionMetadata, standing: Any, in_sync_min: int) -> PartitionMetadata:
        if not any(replica in partition.isr for replica in partition.adding_replicas):
            return finish(partition, standing, in_sync_min)
        target = reassignment.target_of(partition)
        narrowed = reassignment._narrowed(partition, target, standing, in_sync_min)
        if narrowed is None:
            return partition
        ended = replace(narrowed, replicas=target, adding_replicas=(), removing_replicas=())
        return reassignment._fencing_former(partition, ended)

    return together([mock.patch.object(reassignment, "finished", finished), mock.patch.object(machine, "finished", finished)])


def flush_over_a_cut() -> Any:
    """A flush that began before a truncation is treated as covering records that were appended after the truncation."""
    mark, note = Durability.mark, PartitionState.note_flushed

    def mark_all(durability: Durability, offset: int, segments: Any) -> None:
        durability._ceiling = offset
        mark(durability, offset, segments)

    def note_all(state: PartitionState, end: int) -> bool:
        state._flush_end_max = end
        return note(state, min(end, state.log.log_end_offset))

    return together([mock.patch.object(Durability, "mark", mark_all), mock.patch.object(PartitionState, "note_flushed", note_all)])


def late_stop_deletes() -> Any:
    """A late request to delete a replica is executed. The fault breaks two rules: a controller numbers its messages, and such a request
    names the leader epoch of the deletion (KIP-570).
    """
    take = ControlInbox.take

    def take_any(inbox: ControlInbox, request: Any, done: Any) -> None:
        newest = inbox._newest
        if isinstance(request, StopReplicaRequest):
            inbox._newest = (-1, -1)
        take(inbox, request, done)
        inbox._newest = max(newest, inbox._newest)

    return together(
        [mock.patch.object(ControlReceiver, "_may_stop", lambda *_: True), mock.patch.object(ControlInbox, "take", take_any)]
    )


def failed_directory_leads() -> Any:
    """A replica on a failed log directory remains leader and may be elected."""
    return mock.patch.object(Standing, "without", lambda standing, _failed: standing)


def reopened_goes_on() -> Any:
    """A leader whose logs were opened again in a repaired directory continues to lead in the same epoch."""

    def keep_leader(role: Any, **changes: Any) -> Any:
        return role if changes == {"leader": NO_LEADER} else replace(role, **changes)

    return mock.patch.object(replica_changes, "replace", keep_leader)


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (
        watermark_despite_eligible,
        join_before_epoch_start,
        unproved_stays_eligible,
        move_ends_early,
        flush_over_a_cut,
        late_stop_deletes,
        failed_directory_leads,
        reopened_goes_on,
    )
}
VERDICTS = {
    "watermark_despite_eligible": r"the high watermark moves to \d+ .*, although .* are eligible \(I12\)",
    "join_before_epoch_start": r"proposes broker \d+ .*: its log ends at \d+, the least is \d+ \(I13\)",
    "unproved_stays_eligible": r"in the eligible replicas .*: its log ends at \d+, \d+ is committed \(I49\)",
    "move_ends_early": r"the move to .* ends with the ISR .* \(I9\)",
    "flush_over_a_cut": r"\d+ counts as synced, .* are on the disk \(I5\)",
    "late_stop_deletes": r"has no log any more \(I10\)",
    "failed_directory_leads": r"has reported that its log has failed \(I44\)",
    "reopened_goes_on": r"begins to lead in epoch \d+ for the second time \(I15\)",
}
"""What the checks say of each fault."""
