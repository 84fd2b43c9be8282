"""Timing of a classic group's rebalances: how long they wait for which members, and when silent members are removed."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.groups.classic import rebalance
from ottla.groups.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from ottla.machine.draft import Draft
from tests.groups.classic.coordinator import BOTH, Coordinator

# The first round


def test_a_new_group_waits_for_more_members() -> None:
    coordinator = Coordinator(initial_rebalance_delay_ms=3_000)
    coordinator.join("a")
    coordinator.advance(2_999)
    assert not coordinator.answers
    coordinator.advance(1)
    assert coordinator.joined("a").generation == 1


def test_each_new_member_prolongs_the_wait_up_to_the_rebalance_timeout() -> None:
    coordinator = Coordinator(initial_rebalance_delay_ms=3_000)
    coordinator.join("a", rebalance_timeout_ms=7_000)
    for name in ("b", "c", "d"):
        coordinator.advance(2_000)
        coordinator.join(name, rebalance_timeout_ms=7_000)
    assert not coordinator.answers
    coordinator.advance(1_000)
    assert {answer.generation for _, answer in coordinator.answered()} == {1} and coordinator.now_ms == 1_007_000


def test_without_news_the_wait_is_not_prolonged() -> None:
    coordinator = Coordinator(initial_rebalance_delay_ms=3_000)
    coordinator.join("a")
    coordinator.advance(1_000)
    coordinator.join("b")
    coordinator.advance(4_999)
    assert not coordinator.answers
    coordinator.advance(1)
    assert len(coordinator.answered()) == 2


def test_a_member_that_joins_a_new_group_does_not_end_its_wait() -> None:
    """During this wait all known members have joined, and the rebalance still waits."""
    coordinator = Coordinator(initial_rebalance_delay_ms=3_000)
    coordinator.join("a")
    coordinator.join("b")
    assert coordinator.group.have_all_joined and coordinator.group.state is PREPARING_REBALANCE and not coordinator.answers


# Later rounds


def test_a_round_ends_when_all_have_joined() -> None:
    coordinator = Coordinator(initial_rebalance_delay_ms=3_000)
    coordinator.join("a")
    coordinator.advance(3_000)
    first = coordinator.joined("a").member_id
    coordinator.sync_all([first])
    coordinator.join("b")
    assert not coordinator.answers
    coordinator.join("a", first)
    assert [answer.generation for _, answer in coordinator.answered()] == [2, 2], "without the delay of a new group"


def test_members_that_do_not_come_back_are_dropped_at_the_rebalance_timeout() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable("a", "b", session_timeout_ms=100_000)
    coordinator.join("b", second, protocols=BOTH)
    coordinator.advance(59_999)
    assert not coordinator.answers and coordinator.beat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.advance(1)
    answer = coordinator.joined("b")
    assert (answer.generation, answer.leader_id, [one.member_id for one in answer.members]) == (3, second, [second])


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    coordinator = Coordinator()
    static = coordinator.add("s", instance_id="i", session_timeout_ms=100_000)
    coordinator.join("a", session_timeout_ms=100_000)
    coordinator.advance(60_000)
    answer = coordinator.joined("a")
    assert answer.leader_id == answer.member_id, "the leader is one that has joined"
    assert {one.member_id for one in answer.members} == {static, answer.member_id}


def test_a_round_in_which_no_member_joins_waits_for_static_ones() -> None:
    coordinator = Coordinator()
    static = coordinator.add("s", instance_id="i", session_timeout_ms=300_000)
    coordinator.join("a", session_timeout_ms=300_000)
    coordinator.join("s", static, instance_id="i", session_timeout_ms=300_000)
    other = dict(coordinator.answered())["a"].member_id
    coordinator.sync_all([static, other])
    coordinator.join("a", other, protocols=BOTH)
    member = coordinator.group.members[other]
    draft = Draft()
    rebalance.drop_member(coordinator.group, member, draft)
    coordinator.take(draft.decision())
    coordinator.answered()
    coordinator.advance(60_000)
    assert coordinator.group.state is PREPARING_REBALANCE and list(coordinator.group.members) == [static]
    coordinator.join("s", static, instance_id="i")
    assert coordinator.joined("s").leader_id == static


def test_a_member_of_the_new_generation_that_never_syncs_is_dropped() -> None:
    """Otherwise no member would read its partitions."""
    coordinator = Coordinator()
    first, second = coordinator.stable("a", "b", session_timeout_ms=200_000)
    coordinator.join("b", second, protocols=BOTH, session_timeout_ms=200_000)
    coordinator.join("a", first, session_timeout_ms=200_000)
    coordinator.answered()
    coordinator.sync("a", first, {first: b"1"})
    assert coordinator.group.state is STABLE
    coordinator.advance(60_000)
    assert list(coordinator.group.members) == [first] and coordinator.group.state is PREPARING_REBALANCE


def test_a_round_that_begins_while_members_wait_for_an_assignment_answers_them() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable("a", "b")
    coordinator.join("b", second, protocols=BOTH)
    coordinator.join("a", first)
    coordinator.answered()
    coordinator.sync("b", second)
    coordinator.join("c")
    assert coordinator.codes() == [("b", ErrorCode.REBALANCE_IN_PROGRESS)]
    assert all(one.assignment == b"" for one in coordinator.group.members.values())


def test_a_group_whose_last_member_is_dropped_is_empty_and_says_so_in_the_log() -> None:
    coordinator = Coordinator()
    coordinator.stable("a")
    coordinator.advance(10_000)
    stored = coordinator.group_records()[-1]
    assert (coordinator.group.state, stored.members, stored.generation) == (EMPTY, [], 2)
    assert coordinator.group.subscribed_topics == frozenset()


# Sessions


def test_a_new_member_that_waits_is_given_up_after_five_minutes() -> None:
    """Its client may have disconnected, which looks the same as a client that waits."""
    coordinator = Coordinator()
    first = coordinator.add("a", rebalance_timeout_ms=1_000_000)
    coordinator.sync_all([first])
    coordinator.join("b", rebalance_timeout_ms=1_000_000)
    for _ in range(59):
        coordinator.advance(5_000)
        coordinator.beat(first)
    assert not coordinator.answers
    coordinator.advance(5_000)
    assert coordinator.codes() == [("b", ErrorCode.UNKNOWN_MEMBER_ID)]


def test_a_member_whose_request_waits_is_alive() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable("a", "b")
    coordinator.join("b", second, protocols=BOTH)
    for _ in range(4):
        coordinator.advance(5_000)
        coordinator.beat(first)
    assert second in coordinator.group.members and not coordinator.answers
    coordinator.join("a", first)
    assert len(coordinator.answered()) == 2
    coordinator.advance(10_000)
    assert not coordinator.group.members, "with the answer its session has begun again"


def test_a_session_that_becomes_shorter_is_watched_by_a_new_timer() -> None:
    coordinator = Coordinator()
    [member_id] = coordinator.stable("a", session_timeout_ms=300_000)
    coordinator.join("a", member_id, protocols=BOTH, session_timeout_ms=10_000)
    coordinator.joined("a")
    coordinator.sync_all([member_id])
    coordinator.advance(10_000)
    assert not coordinator.group.members


def test_the_timers_of_a_group_are_made_anew() -> None:
    """The log has refused a change of the group's protocol, which had cancelled the timers."""
    coordinator = Coordinator()
    first, second = coordinator.stable("a", "b")
    coordinator.timers.clear()
    draft = Draft()
    rebalance.watch_again(coordinator.shard, coordinator.group, draft, coordinator.now_ms)
    coordinator.take(draft.decision())
    assert set(coordinator.timers) == {f"session/g/{first}", f"session/g/{second}"}
    coordinator.join("b", second, protocols=BOTH)
    coordinator.join("a", first)
    coordinator.answered()
    assert coordinator.group.state is COMPLETING_REBALANCE
    coordinator.timers.clear()
    draft = Draft()
    rebalance.watch_again(coordinator.shard, coordinator.group, draft, coordinator.now_ms)
    coordinator.take(draft.decision())
    assert coordinator.group.state is PREPARING_REBALANCE and "join/g" in coordinator.timers
