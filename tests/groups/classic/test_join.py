"""JoinGroup: which members are admitted, with which id, and what a static member takes over from its earlier instance."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.groups.classic.join import ASK_METADATA_LATE
from ottla.groups.commands import Caller, MemberName
from ottla.groups.states import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from tests.groups.classic.coordinator import BOTH, RANGE, Coordinator
from tests.instructions import instructions


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1 << 30}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": tuple((f"p{number}", b"") for number in range(101))}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", bytes(512 * 1024 + 1)),)}, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_refused_join_leaves_no_group_behind(fields: dict[str, Any], code: ErrorCode) -> None:
    coordinator = Coordinator()
    coordinator.join("a", **fields)
    answer = coordinator.joined("a")
    assert (answer.error, answer.member_id) == (code, fields.get("member_id", ""))
    assert not coordinator.shard.groups and not coordinator.timers


def test_a_protocol_named_twice_counts_once() -> None:
    coordinator = Coordinator()
    coordinator.join("a", protocols=(("range", b"first"), ("range", b"second")))
    assert coordinator.joined("a").members[0].metadata == b"second" and coordinator.group.votes == {"range": 1}


# Ids


def test_a_new_member_comes_back_with_the_id_that_it_was_given() -> None:
    """KIP-394: the client joins again with the id in the answer."""
    coordinator = Coordinator()
    coordinator.join("a", needs_member_id=True)
    answer = coordinator.joined("a")
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED and answer.member_id.startswith("client-")
    assert list(coordinator.group.pending_members) == [answer.member_id] and not coordinator.group.members
    coordinator.join("a", answer.member_id, needs_member_id=True)
    assert coordinator.joined("a").generation == 1 and not coordinator.group.pending_members


def test_an_id_that_is_not_used_is_forgotten_after_a_session() -> None:
    coordinator = Coordinator()
    coordinator.join("a", needs_member_id=True)
    coordinator.advance(9_999)
    assert coordinator.shard.groups
    coordinator.advance(1)
    assert not coordinator.shard.groups and not coordinator.timers


def test_ids_that_are_not_used_are_limited() -> None:
    coordinator = Coordinator(pending_members_max=2)
    for name in ("a", "b", "c"):
        coordinator.join(name, needs_member_id=True)
    assert [code for _, code in coordinator.codes()] == [
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_a_pending_id_does_not_serve_a_static_member() -> None:
    coordinator = Coordinator()
    coordinator.join("a", needs_member_id=True)
    member_id = coordinator.joined("a").member_id
    coordinator.join("a", member_id, instance_id="i")
    assert coordinator.joined("a").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_never_given_out_is_unknown() -> None:
    coordinator = Coordinator()
    coordinator.stable("a")
    coordinator.join("b", "made-up")
    assert coordinator.joined("b").error is ErrorCode.UNKNOWN_MEMBER_ID and len(coordinator.group.members) == 1


# Limits


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    coordinator = Coordinator(members_max=2)
    coordinator.stable("a", "b")
    coordinator.join("c")
    assert coordinator.joined("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert coordinator.group.state is STABLE, "and is not rebalanced by the attempt"


def test_while_a_group_gathers_only_members_that_wait_count() -> None:
    """Some of the earlier members may never join again, so the first `group.max.size` members that join are accepted."""
    coordinator = Coordinator(members_max=2)
    first, second = coordinator.stable("a", "b")
    coordinator.join("a", first, protocols=BOTH)
    assert coordinator.group.state is PREPARING_REBALANCE and not coordinator.answered()
    coordinator.join("c")
    coordinator.join("b", second)
    codes = dict(coordinator.codes())
    assert codes["b"] is ErrorCode.GROUP_MAX_SIZE_REACHED and codes["a"] is codes["c"] is ErrorCode.NONE
    assert second not in coordinator.group.members and len(coordinator.group.members) == 2


def test_the_metadata_of_all_members_is_limited_together() -> None:
    coordinator = Coordinator(member_metadata_bytes_max=100, group_metadata_bytes_max=150)
    coordinator.join("a", protocols=(("range", bytes(90)),))
    coordinator.joined("a")
    coordinator.join("b", protocols=(("range", bytes(90)),))
    assert coordinator.joined("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    member_id = next(iter(coordinator.group.members))
    coordinator.join("a", member_id, protocols=(("range", bytes(100)),))
    assert coordinator.joined("a").error is ErrorCode.NONE, "what it had before does not count against it"


# Members that come again


def test_a_lost_answer_is_given_again() -> None:
    coordinator = Coordinator()
    first = coordinator.add("a")
    coordinator.join("b")
    coordinator.join("a", first)
    second = {answer.member_id for _, answer in coordinator.answered()} - {first}
    assert coordinator.group.state is COMPLETING_REBALANCE
    coordinator.join("a", first)
    answer = coordinator.joined("a")
    assert (answer.generation, answer.leader_id, len(answer.members)) == (2, first, 2)
    coordinator.join("b", *second)
    assert (coordinator.joined("b").generation, coordinator.group.state) == (2, COMPLETING_REBALANCE)


def test_a_follower_that_joins_again_unchanged_moves_nothing_and_the_leader_does() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable("a", "b")
    coordinator.join("b", follower)
    answer = coordinator.joined("b")
    assert (answer.generation, answer.members, coordinator.group.state) == (2, [], STABLE)
    coordinator.join("a", leader)
    assert not coordinator.answered() and coordinator.group.state is PREPARING_REBALANCE


def test_a_changed_subscription_begins_a_round() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.stable("a", "b")
    coordinator.join("b", follower, protocols=(("range", b"other"),))
    assert coordinator.group.state is PREPARING_REBALANCE


def test_the_second_join_of_a_waiting_member_replaces_the_first() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable("a", "b")
    coordinator.join("b1", second, protocols=BOTH)
    coordinator.join("b2", second, protocols=BOTH)
    assert coordinator.codes() == [("b1", ErrorCode.REBALANCE_IN_PROGRESS)] and coordinator.group.joining == 1
    coordinator.join("a", first)
    assert [name for name, _ in coordinator.answered()] == ["a", "b2"]


# Static members


def test_a_static_member_that_restarts_keeps_its_place_without_a_round() -> None:
    """KIP-345: the new id of the static member is logged, and the old id is fenced."""
    coordinator = Coordinator()
    old = coordinator.add("a", instance_id="i")
    coordinator.sync_all([old])
    coordinator.join("again", instance_id="i")
    answer = coordinator.joined("again")
    assert (answer.error, answer.generation, answer.skip_assignment) == (ErrorCode.NONE, 1, True)
    assert answer.leader_id == answer.member_id != old and [one.member_id for one in answer.members] == [answer.member_id]
    [stored] = coordinator.group_records()[-1].members
    assert (stored.member_id, stored.assignment) == (answer.member_id, old.encode())
    coordinator.sync("again", answer.member_id, instance_id="i")
    assert coordinator.synced("again").assignment == old.encode()
    assert coordinator.beat(old, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_client_that_cannot_skip_the_assignment_is_not_made_to_assign() -> None:
    """Clients without KIP-814 do not assign, because the answer has the member's old id as the leader."""
    coordinator = Coordinator()
    old = coordinator.add("a", instance_id="i")
    coordinator.sync_all([old])
    coordinator.join("again", instance_id="i", may_skip_assignment=False)
    answer = coordinator.joined("again")
    assert (answer.leader_id, answer.members, answer.skip_assignment) == (old, [], False)


def test_a_static_member_with_another_protocol_begins_a_round() -> None:
    coordinator = Coordinator()
    old = coordinator.add("a", instance_id="i", protocols=BOTH)
    coordinator.sync_all([old])
    coordinator.join("again", instance_id="i", protocols=(("roundrobin", b""),))
    assert (coordinator.joined("again").generation, coordinator.group.state) == (2, COMPLETING_REBALANCE)


def test_requests_of_the_former_process_are_fenced() -> None:
    coordinator = Coordinator()
    first, second = coordinator.add("a", instance_id="i"), ""
    coordinator.join("b")
    coordinator.join("again", instance_id="i")
    answers = dict(coordinator.answered())
    assert answers["again"].generation == answers["b"].generation == 2
    second = answers["b"].member_id
    coordinator.join("old", first, instance_id="i")
    assert coordinator.joined("old").error is ErrorCode.FENCED_INSTANCE_ID
    coordinator.join("again waits", answers["again"].member_id, instance_id="i", protocols=BOTH)
    coordinator.join("successor", instance_id="i")
    assert coordinator.codes() == [("again waits", ErrorCode.FENCED_INSTANCE_ID)]
    coordinator.join("b", second)
    assert {name for name, code in coordinator.codes() if code is ErrorCode.NONE} == {"b", "successor"}


def test_a_replacement_that_the_log_refuses_gives_the_place_back() -> None:
    coordinator = Coordinator()
    old = coordinator.add("a", instance_id="i")
    coordinator.sync_all([old])
    coordinator.join("again", instance_id="i", session_timeout_ms=20_000, refused=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert coordinator.joined("again").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    [member] = coordinator.group.members.values()
    assert (member.member_id, member.session_timeout_ms, member.protocols) == (old, 10_000, RANGE)
    assert coordinator.group.static_members == {"i": old} and coordinator.beat(old, instance_id="i") is ErrorCode.NONE


# Clients that ask for metadata late

(KAFKA_PYTHON,) = ASK_METADATA_LATE


@pytest.mark.parametrize(("software", "delay_ms", "wait_ms"), [("librdkafka", 0, 0), (KAFKA_PYTHON, 0, 200), (KAFKA_PYTHON, 50, 50)])
def test_the_first_round_waits_for_clients_that_ask_for_metadata_late(software: str, delay_ms: int, wait_ms: int) -> None:
    """The wait for such clients is replaced by a configured delay for all clients."""
    coordinator = Coordinator(initial_rebalance_delay_ms=delay_ms, late_metadata_wait_ms=200)
    coordinator.join("a", caller=Caller("client", "/host", software=software))
    assert bool(coordinator.answers) is not bool(wait_ms)
    coordinator.advance(wait_ms)
    assert coordinator.joined("a").generation == 1


# Work


def costs_of_joins(members: int) -> dict[str, int]:
    """Counts the instructions of joins of each kind in a group with `members` members. The first join of a rebalance is not counted."""
    coordinator = Coordinator(initial_rebalance_delay_ms=3000, members_max=10_000)
    for number in range(members):
        coordinator.join(f"m{number}")
    costs = {"of a new group": instructions(lambda: coordinator.join("last"))}
    coordinator.advance(6500)
    ids = [answer.member_id for _, answer in coordinator.answered()]
    assert len(ids) == members + 1 and coordinator.group.state is COMPLETING_REBALANCE
    costs["tried again"] = instructions(lambda: coordinator.join("again", ids[3]))
    coordinator.answered()
    coordinator.sync_all(ids)
    coordinator.join("new")
    assert coordinator.group.state is PREPARING_REBALANCE
    costs["of a new member"] = instructions(lambda: coordinator.join("newer"))
    costs["of a known member"] = instructions(lambda: coordinator.join("known", ids[5]))
    costs["of a static member"] = instructions(lambda: coordinator.join("static", instance_id="i"))
    costs["of one that gets an id"] = instructions(lambda: coordinator.join("id", needs_member_id=True))
    costs["a member that leaves"] = instructions(lambda: coordinator.leave(MemberName(ids[7], None)))
    return costs


def test_a_join_costs_the_same_whatever_the_size_of_the_group() -> None:
    """Formerly each join added up the metadata of all members, so the cost of a rebalance was quadratic in the number of members. The cost
    of the first join of a rebalance is not compared."""
    costs_of_joins(20)  # CPython specializes instructions that were executed some times
    assert costs_of_joins(200) == costs_of_joins(20)
