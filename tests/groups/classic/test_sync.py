"""SyncGroup and Heartbeat: which assignment is logged, and the answers to members before and after that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.groups.classic import sync
from ottla.groups.commands import Heartbeat
from ottla.groups.share.group import ShareGroup
from ottla.groups.states import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from tests.groups.classic.coordinator import BOTH, Coordinator, ignore


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 3}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
def test_a_member_speaks_for_its_own_generation_and_protocol(fields: dict[str, Any], code: ErrorCode) -> None:
    """I33: a request with another generation or protocol is refused."""
    coordinator = Coordinator()
    _, follower = coordinator.stable("a", "b")
    coordinator.sync("b", **{"member_id": follower, **fields})
    assert coordinator.synced("b").error is code


def test_a_share_group_has_no_classic_members() -> None:
    coordinator = Coordinator()
    coordinator.shard.groups["g"] = ShareGroup("g")
    coordinator.sync("a", "a", generation=1)
    assert coordinator.synced("a").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def completing(*names: str) -> tuple[Coordinator, list[str]]:
    """Returns a group whose second generation waits for its assignment."""
    coordinator = Coordinator()
    ids = coordinator.stable(*names)
    coordinator.join("leader", ids[0])
    for member_id in ids[1:]:
        coordinator.join(member_id, member_id)
    coordinator.answered()
    assert coordinator.group.state is COMPLETING_REBALANCE
    return coordinator, ids


def test_members_wait_for_the_leaders_assignment() -> None:
    coordinator, (leader, follower) = completing("a", "b")
    coordinator.sync("b", follower)
    assert not coordinator.answers
    coordinator.sync("a", leader, {leader: b"1", follower: b"2", "no member": b"3"})
    assert {name: answer.assignment for name, answer in coordinator.answered()} == {"a": b"1", "b": b"2"}
    stored = coordinator.group_records()[-1]
    assert {one.member_id: one.assignment for one in stored.members} == {leader: b"1", follower: b"2"}
    assert coordinator.group.state is STABLE and not coordinator.group.pending_syncs


def test_a_member_that_the_leader_leaves_out_is_assigned_nothing() -> None:
    """A member that is missing in the leader's SyncGroup does not keep the assignment of the last generation."""
    coordinator, (leader, follower) = completing("a", "b")
    coordinator.sync("a", leader, {leader: b"1"})
    coordinator.sync("b", follower)
    assert {name: answer.assignment for name, answer in coordinator.answered()} == {"a": b"1", "b": b""}


def test_a_member_that_syncs_late_is_answered_at_once_and_ends_the_wait() -> None:
    coordinator, (leader, follower) = completing("a", "b")
    coordinator.sync("a", leader, {leader: b"1", follower: b"2"})
    coordinator.synced("a")
    assert "sync/g" in coordinator.timers
    coordinator.sync("b", follower)
    assert coordinator.synced("b").assignment == b"2" and "sync/g" not in coordinator.timers
    coordinator.sync("b", follower)
    assert coordinator.synced("b").assignment == b"2", "its answer was lost"


def test_the_second_sync_of_a_waiting_member_replaces_the_first() -> None:
    coordinator, (leader, follower) = completing("a", "b")
    coordinator.sync("b1", follower)
    coordinator.sync("b2", follower)
    assert coordinator.codes() == [("b1", ErrorCode.REBALANCE_IN_PROGRESS)]
    coordinator.sync("a", leader, {follower: b"2"})
    assert {name: answer.assignment for name, answer in coordinator.answered()} == {"a": b"", "b2": b"2"}


def test_an_assignment_that_fits_into_no_record_is_refused() -> None:
    coordinator, (leader,) = completing("a")
    coordinator.shard.settings = replace(coordinator.shard.settings, member_metadata_bytes_max=3)
    coordinator.sync("a", leader, {leader: b"1234"})
    assert coordinator.synced("a").error is ErrorCode.GROUP_MAX_SIZE_REACHED and coordinator.group.state is COMPLETING_REBALANCE
    coordinator.sync("a", leader, {leader: b"123"})
    assert coordinator.synced("a").assignment == b"123"


def test_an_assignment_that_the_log_refuses_begins_a_round_for_all() -> None:
    coordinator, (leader, follower) = completing("a", "b")
    coordinator.sync("b", follower)
    coordinator.sync("a", leader, {leader: b"1"}, refused=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert dict(coordinator.codes()) == dict.fromkeys("ab", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert coordinator.group.state is PREPARING_REBALANCE
    assert coordinator.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_during_a_round_is_asked_to_join_again() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable("a", "b")
    coordinator.join("a", leader, protocols=BOTH)
    coordinator.sync("b", follower)
    assert coordinator.synced("b").error is ErrorCode.REBALANCE_IN_PROGRESS


# Heartbeats


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (Heartbeat("", "a", None, 1), ErrorCode.INVALID_GROUP_ID),
        (Heartbeat("unknown", "a", None, 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (Heartbeat("g", "unknown", None, 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (Heartbeat("g", "unknown", "i", 1), ErrorCode.FENCED_INSTANCE_ID),
        (Heartbeat("g", "unknown", "unknown", 1), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeats_of_others(command: Heartbeat, code: ErrorCode) -> None:
    coordinator = Coordinator()
    coordinator.sync_all([coordinator.add("a", instance_id="i")])
    codes: list[ErrorCode] = []
    coordinator.take(sync.heartbeat(coordinator.shard, command, codes.append, coordinator.now_ms))
    assert codes == [code]


def test_heartbeats_of_a_member() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable("a", "b")
    assert coordinator.beat(leader) is ErrorCode.NONE
    assert coordinator.beat(leader, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.beat(leader, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID, "the member is not static"
    coordinator.join("a", leader, protocols=BOTH)
    assert coordinator.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_heartbeat_only_moves_the_deadline() -> None:
    coordinator = Coordinator()
    [member_id] = coordinator.stable("a")
    coordinator.advance(6_000)
    before = dict(coordinator.timers)
    decision = sync.heartbeat(coordinator.shard, Heartbeat("g", member_id, None, 1), ignore, coordinator.now_ms)
    assert not decision.records and len(decision.effects) == 1 and coordinator.timers == before
    coordinator.advance(9_000)
    assert member_id in coordinator.group.members, "the timer found that there was a heartbeat"
    coordinator.advance(1_000)
    assert not coordinator.group.members
