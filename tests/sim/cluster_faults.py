"""Faults: functions that break a rule of the cluster on purpose, one at a time. The tests show that the checks and the final verdicts
notice each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.control_messages import LeaderAndIsr
from ottla.base.errors import ErrorCode
from ottla.base.loop.procedure import Procedure
from ottla.base.ports import Check, Outcome, StoreResult
from ottla.cluster.control.receiver import ControlReceiver
from ottla.cluster.deleted_partitions import DeletedPartitions
from ottla.controller import command_queue, membership, plans
from ottla.controller.announcements import Announcements
from ottla.controller.local_controller import LocalController
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes
from ottla.replication import follower, leader
from ottla.replication.isr import IsrPhase, IsrState
from ottla.replication.leader import Leader
from ottla.replication.partition import Partition
from ottla.replication.state import PartitionState
from tests.sim import replica_faults
from tests.sim.cluster_world import ClusterWorld
from tests.sim.seed_search import catch_seed, together


def watermark_over_shrunk_isr() -> Any:
    """The high watermark ignores a member of the ISR that the leader wants to remove, before the controller has agreed."""
    return mock.patch.object(IsrState, "maximal", property(_proposed))


def _proposed(state: IsrState) -> tuple[int, ...]:
    if state.phase is IsrPhase.PENDING_SHRINK:
        return tuple(member for member in state.members if member not in state.moving)
    return state.members + state.moving


def watermark_without_pending() -> Any:
    """The high watermark ignores a replica that the controller may already regard as in sync."""
    return mock.patch.multiple(
        IsrState, maximal=property(lambda state: state.members), proposed=property(_proposed)
    )


def watermark_below_min_insync() -> Any:
    """The high watermark advances although too few replicas are in sync (KIP-966)."""
    advance = leader.next_high_watermark

    def next_high_watermark(current: int, **bounds: Any) -> int:
        return advance(current, **{**bounds, "in_sync_min": 0})

    return mock.patch.object(leader, "next_high_watermark", next_high_watermark)


def truncate_by_watermark() -> Any:
    """A follower truncates its log to its own high watermark when its leader changes, as before KIP-101."""
    become = Partition.become_follower

    def become_follower(partition: Partition, **role: Any) -> None:
        is_new = role["leader_epoch"] > partition.leader_epoch
        become(partition, **role)
        if is_new and partition.follower_log is not None:
            partition.follower_log.truncate(partition.high_watermark)

    return mock.patch.object(Partition, "become_follower", become_follower)


def diverge_to_watermark() -> Any:
    """If its log differs from the leader's, a follower does not look for the last common epoch, but keeps everything (KIP-101, case 2)."""
    return mock.patch.object(follower, "divergence_point", lambda _epochs, log_end_offset, *_rest: log_end_offset)


def isr_without_broker_epoch() -> Any:
    """A replica joins the ISR although it has fetched with an earlier broker epoch (KIP-903)."""
    from ottla.controller import machine

    join, in_sync = leader.may_join, machine._may_be_in_sync

    def may_join(follower: Any, **bounds: Any) -> bool:
        return bool(join(follower, **{**bounds, "known_broker_epoch": follower.broker_epoch}))

    def may_be_in_sync(state: Any, member: int, epoch: int, *, is_joining: bool) -> bool:
        registered = state.brokers.get(member)
        return bool(in_sync(state, member, epoch if registered is None else registered.epoch, is_joining=is_joining))

    return together([mock.patch.object(leader, "may_join", may_join), mock.patch.object(machine, "_may_be_in_sync", may_be_in_sync)])


def write_without_epoch_check() -> Any:
    """A controller's writes are not conditional on the epoch with which it was elected (I39)."""

    def unchecked(path: str, _version: int) -> Check:
        return Check(path, -1)

    return mock.patch.object(plans, "Check", unchecked)


def epoch_by_reading() -> Any:
    """A replaced controller reads the state and the epoch again, and continues with the epoch of its successor (I38)."""
    read_state = LocalController._read_state

    def read_epoch(controller: LocalController) -> Procedure[ClusterState]:
        state = yield from read_state(controller)
        node = controller._store.model.tree.get(znodes.CONTROLLER_EPOCH)  # type: ignore[attr-defined]
        state.controller_epoch, state.controller_epoch_version = znodes.read_controller_epoch(node.data), node.version
        return state

    def ends_term(outcome: Outcome) -> bool:
        return outcome.result is StoreResult.SESSION_EXPIRED

    return together(
        [mock.patch.object(LocalController, "_read_state", read_epoch), mock.patch.object(command_queue, "_ends_term", ends_term)]
    )


def wipe_pending() -> Any:
    """A repeated state of the same leader epoch is applied again, and the leader's pending proposal is forgotten."""
    become = Partition.become_leader

    def become_leader(partition: Partition, **role: Any) -> None:
        own = partition.leader
        if own is not None and own.epoch == role["leader_epoch"] and role["partition_epoch"] <= partition.partition_epoch:
            partition.state.isr_state = IsrState(members=partition.isr)
            own.advance_high_watermark()
            return
        become(partition, **role)

    patches = [
        mock.patch.object(Partition, "become_leader", become_leader),
        mock.patch.object(ControlReceiver, "_is_news", lambda _receiver, _state: True),
    ]
    return together(patches)


def restarted_in_isr() -> Any:
    """A follower is still in the ISR after a restart (KIP-966)."""
    from ottla.controller import leader_election

    return mock.patch.object(
        leader_election, "in_sync_after", lambda isr, standing: tuple(member for member in isr if member in standing.live) or tuple(isr)
    )


def ack_of_another_term() -> Any:
    """A waiting append is not failed at a change of the leader, and is acknowledged when its offset is committed in a later term of the
    same broker.
    """
    works = Leader.acknowledgement

    def acknowledgement(term: Leader, last_offset: int, acks: int) -> ErrorCode | None:
        owner = term._state.owner
        if not term.is_over or not isinstance(owner, Partition):
            return works(term, last_offset, acks)
        return None if owner.leader is None else works(owner.leader, last_offset, acks)

    def call_when_acknowledged(term: Leader, last_offset: int, acks: int, function: Callable[[], None]) -> None:
        state = term._state

        def look() -> None:
            if acknowledgement(term, last_offset, acks) is None:
                state.notifier.call_when_committed(max(last_offset, state.high_watermark) + 1, look)
            else:
                function()

        state.notifier.call_when_committed(last_offset + 1, look)

    return mock.patch.multiple(Leader, acknowledgement=acknowledgement, call_when_acknowledged=call_when_acknowledged)


def unknown_is_marked() -> Any:
    """A partition that is missing in the coordinator's metadata is treated as needing no marker (I52). The fault breaks two rules: the
    coordinator asks the metadata store, and a new broker gets all metadata before the partitions that it leads.
    """
    everything = Announcements.everything

    def roles_first(announcements: Announcements, state: ClusterState, brokers: Iterable[BrokerMetadata]) -> None:
        send, sent = announcements._send, list[tuple[Any, ...]]()
        with mock.patch.object(announcements, "_send", lambda *message, **content: sent.append((message, content))):
            everything(announcements, state, brokers)
        for message, content in sorted(sent, key=lambda one: one[0][2] is not LeaderAndIsr):
            send(*message, **content)

    def is_deleted(_partitions: DeletedPartitions, _partition: Any, done: Callable[[bool], None]) -> None:
        done(True)

    partitions = mock.patch.object(DeletedPartitions, "is_deleted", is_deleted)
    return together([mock.patch.object(Announcements, "everything", roles_first), partitions])


def epoch_without_record() -> Any:
    """A leader stores its epoch before its first record. It may then become a follower, get records of older epochs, and be killed."""
    begin = Leader.__init__

    def noting(self: Leader, state: PartitionState, epoch: int) -> None:
        begin(self, state, epoch)
        state.log.epochs.assign(epoch, state.log.log_end_offset)

    return mock.patch.object(Leader, "__init__", noting)


def new_disk_like_old() -> Any:
    """A broker with an empty disk is treated like a broker that has lost only the end of its logs."""
    return mock.patch.object(membership, "_missing_directories", lambda _state, _broker: [])


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (
        watermark_over_shrunk_isr,
        watermark_without_pending,
        watermark_below_min_insync,
        truncate_by_watermark,
        diverge_to_watermark,
        isr_without_broker_epoch,
        write_without_epoch_check,
        epoch_by_reading,
        wipe_pending,
        restarted_in_isr,
        ack_of_another_term,
        unknown_is_marked,
        new_disk_like_old,
        epoch_without_record,
    )
} | replica_faults.FAULTS
VERDICTS = {
    "watermark_over_shrunk_isr": r"in the ISR of epoch .*: ends at \d+, \d+ is committed \(I10\)",
    "watermark_without_pending": r"in the ISR of epoch .*: ends at \d+, \d+ is committed \(I10\)",
    "watermark_below_min_insync": r"lost-write|\(I10\)|\(I3\)|\(I12\)|\(I13\)|\(I14\)",
    "truncate_by_watermark": r"its log ends at \d+, \d+ is committed \(I10\)",
    "diverge_to_watermark": r"ISR .* of .* \(I45\)|\(I3\)",
    "isr_without_broker_epoch": r"enters the ISR of epoch \d+ in registration \d+.* \(I13\)",
    "write_without_epoch_check": r"writes in controller epoch \d+, to which \d+ was elected \(I38\)",
    "epoch_by_reading": r"act as controller in epoch \d+ \(I38\)|writes in controller epoch \d+, to which \d+ was elected \(I38\)",
    "wipe_pending": r"pending since partition epoch \d+ .* is forgotten without an answer \(I12\)",
    "restarted_in_isr": r"in the ISR .* with registration \d+: its log ends at \d+, \d+ is committed \(I10\)",
    "unknown_is_marked": r"a transaction hangs \(I31\): .*, has no marker \(I25\)",
    "new_disk_like_old": r"is elected in epoch \d+: its log ends at \d+, \d+ is committed \(I14\)",
    "epoch_without_record": r"leader epoch \d+ begins at the end \d+, without a record \(I16\)",
    "ack_of_another_term": r"lost-write: .* where they were acknowledged: .* has v\d+.* \(I14\)",
} | replica_faults.VERDICTS
"""What the checks say of each fault. Another verdict under it may be true as well, and shows less: it does not count as found."""


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault's verdict, and the message; (0, "") if no seed fails."""
    return catch_seed(FAULTS[name](), lambda seed: ClusterWorld(seed).run(), seeds, first, VERDICTS[name])
