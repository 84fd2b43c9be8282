"""The state of one classic group: members join and leave, votes and leaders change, and a group is loaded from its record."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.classic.group import ClassicGroup, read_subscription
from ottla.groups.commands import Protocols
from ottla.groups.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from ottla.wire.codec import encoder
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.group_records import GroupMetadataValue
from tests.groups.classic.coordinator import BOTH, RANGE, ignore, member


def group_of(*members: str, protocols: Protocols = RANGE) -> ClassicGroup:
    group = ClassicGroup("g")
    group.protocol_type = "consumer"
    for member_id in members:
        group.add(member(member_id, protocols=protocols))
    return group


def subscription(*topics: str, version: int = 1) -> bytes:
    return version.to_bytes(2, "big") + encoder(ConsumerProtocolSubscription, min(version, 3))(
        ConsumerProtocolSubscription(topics=[*topics])
    )


# Members


def test_the_first_member_leads_until_it_goes() -> None:
    group = group_of("a", "b", "c")
    assert group.leader_id == "a"
    group.remove(group.members["b"])
    assert group.leader_id == "a"
    group.remove(group.members["a"])
    assert group.leader_id == "c"
    group.remove(group.members["c"])
    assert group.leader_id is None and group.votes == {}


def test_the_metadata_of_all_members_is_counted_as_they_come_and_go() -> None:
    group = group_of("a", "b", protocols=BOTH)
    assert group.metadata_bytes == 2 * len(b"r" + b"rr")
    group.set_protocols(group.members["a"], RANGE)
    group.rename(group.members["a"], "c")
    assert group.metadata_bytes == len(b"r" + b"rr") + len(b"r")
    for member_id in ("b", "c"):
        group.remove(group.members[member_id])
    assert group.metadata_bytes == 0


def test_an_id_is_used_once() -> None:
    group = group_of("a")
    with pytest.raises(AssertionError):
        group.add(member("a"))


def test_a_member_with_an_open_request_is_not_removed() -> None:
    group = group_of("a")
    group.members["a"].join_reply = ignore
    with pytest.raises(AssertionError):
        group.remove(group.members["a"])


def test_votes_follow_the_members_protocols() -> None:
    group = group_of("a", "b", protocols=BOTH)
    assert group.votes == {"range": 2, "roundrobin": 2}
    group.set_protocols(group.members["a"], (("sticky", b""), ("range", b"")))
    assert group.votes == {"range": 2, "roundrobin": 1, "sticky": 1}
    group.remove(group.members["b"])
    assert group.votes == {"sticky": 1, "range": 1}


def test_a_renamed_member_keeps_its_place_in_everything() -> None:
    group = group_of("a")
    group.add(member("old", instance_id="i"))
    group.add(member("c"))
    group.leader_id = "old"
    group.pending_syncs = {"old": None, "c": None}
    renamed = group.members["old"]
    group.rename(renamed, "new")
    assert list(group.members) == ["a", "new", "c"] and group.members["new"] is renamed and renamed.member_id == "new"
    assert (group.leader_id, group.static_members) == ("new", {"i": "new"})
    assert set(group.pending_syncs) == {"new", "c"}


def test_removing_a_fenced_member_leaves_the_instance_to_its_successor() -> None:
    group = ClassicGroup("g")
    group.add(member("old", instance_id="i"))
    group.add(member("new", instance_id="i"))
    group.remove(group.members["old"])
    assert group.static_members == {"i": "new"}


@pytest.mark.parametrize(
    ("member_id", "instance_id", "code"),
    [
        ("a", None, None),
        ("s", "i", None),
        ("s", None, None),
        ("unknown", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i", ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_requests_name_a_member_by_its_id_and_a_static_one_by_both(member_id: str, instance_id: str | None, code: ErrorCode | None) -> None:
    group = group_of("a")
    group.add(member("s", instance_id="i"))
    if code is None:
        assert group.check_member(member_id, instance_id).member_id == member_id
        return
    with pytest.raises(ApiError) as refused:
        group.check_member(member_id, instance_id)
    assert refused.value.code is code


def test_all_have_joined_when_no_id_that_was_given_out_is_missing() -> None:
    group = group_of("a")
    assert not group.have_all_joined
    group.joining = 1
    assert group.have_all_joined
    group.pending_members["b"] = None
    assert not group.have_all_joined
    group.add(member("b"))
    assert not group.pending_members and not group.have_all_joined


def test_the_slowest_member_decides_how_long_all_wait() -> None:
    group = ClassicGroup("g")
    assert group.rebalance_timeout_ms == 0
    group.add(member("a", rebalance_timeout_ms=5))
    group.add(member("b", rebalance_timeout_ms=70))
    assert group.rebalance_timeout_ms == 70


# Protocols


@pytest.mark.parametrize(
    ("protocol_type", "protocols", "may"),
    [
        ("consumer", RANGE, True),
        ("consumer", (("sticky", b""), ("range", b"")), True),
        ("consumer", (("roundrobin", b""),), False),
        ("consumer", (), False),
        ("connect", RANGE, False),
    ],
)
def test_a_member_needs_a_protocol_that_all_know(protocol_type: str, protocols: Protocols, may: bool) -> None:
    group = group_of("a", protocols=BOTH)
    group.add(member("b"))
    assert group.may_use(protocol_type, protocols) is may


@pytest.mark.parametrize(("protocol_type", "protocols", "may"), [("any", RANGE, True), ("", RANGE, False), ("any", (), False)])
def test_the_first_member_needs_any_type_and_protocol(protocol_type: str, protocols: Protocols, may: bool) -> None:
    assert ClassicGroup("g").may_use(protocol_type, protocols) is may


def test_the_protocol_is_the_one_that_most_members_prefer() -> None:
    group = group_of("a", protocols=BOTH)
    for name in ("b", "c"):
        group.add(member(name, protocols=(("sticky", b""), ("roundrobin", b""), ("range", b""))))
    assert group.select_protocol() == "roundrobin", "sticky is not known to a"
    group.remove(group.members["c"])
    assert group.select_protocol() == "range", "among equals the one that the first member prefers"


# States


def test_a_move_that_the_table_does_not_allow_breaks_an_invariant() -> None:
    group = ClassicGroup("g")
    with pytest.raises(AssertionError):
        group.move_to(STABLE, 0)
    group.move_to(PREPARING_REBALANCE, 5)
    assert (group.state, group.previous_state, group.state_since_ms, group.may_rebalance) == (PREPARING_REBALANCE, EMPTY, 5, False)


# The record


def record_of(*members: str, leader: str | None = "a", generation: int = 3) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader=leader,
        current_state_timestamp=9,
        members=[member(one, protocols=(("range", subscription("t")),)).to_record("range", b"share") for one in members],
    )


def test_a_group_comes_back_from_its_record() -> None:
    group = ClassicGroup.from_record("g", record_of("a", "b", leader="b"))
    assert (group.state, group.generation, group.leader_id, group.protocol_name) == (STABLE, 3, "b", "range")
    assert group.subscribed_topics == {"t"} and group.votes == {"range": 2}
    assert {one.assignment for one in group.members.values()} == {b"share"}
    again = group.to_record({})
    assert [one.assignment for one in again.members] == [b"share", b"share"] and again.current_state_timestamp == 9


def test_a_record_without_members_is_an_empty_group() -> None:
    group = ClassicGroup.from_record("g", record_of(leader=None))
    assert (group.state, group.generation, group.leader_id) == (EMPTY, 3, None)


def test_a_leader_that_is_no_member_is_replaced_by_the_first() -> None:
    assert ClassicGroup.from_record("g", record_of("a", "b", leader="gone")).leader_id == "a"


def test_a_group_that_was_a_consumer_group_a_moment_ago_is_in_a_rebalance() -> None:
    group = ClassicGroup.from_record("g", record_of("a", leader=None))
    assert (group.state, group.previous_state, group.leader_id) == (PREPARING_REBALANCE, STABLE, "a")


def test_a_logged_assignment_of_this_generation_makes_the_group_stable() -> None:
    group = ClassicGroup.from_record("g", record_of("a", "b"))
    group.move_to(PREPARING_REBALANCE, 10)
    group.generation = 4
    group.move_to(COMPLETING_REBALANCE, 11)
    group.apply_record(record_of("a", "b", generation=3))
    assert group.state is COMPLETING_REBALANCE, "a record of the last generation changes what is stored, and nothing else"
    value = record_of("a", "b", generation=4)
    value.members[0].assignment = b"new"
    group.remove(group.members["b"])
    group.apply_record(value)
    assert (group.state, group.state_since_ms, group.members["a"].assignment, group.stored) == (STABLE, 9, b"new", value)


# Subscriptions


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff" + subscription("t")[2:], b"\0\1\0\0\0\5", b"\0\0\x7f\xff\xff\xff"], ids=str)
def test_bytes_that_are_no_subscription(metadata: bytes) -> None:
    assert read_subscription(metadata) is None


def test_a_subscription_of_a_later_version_is_read_as_the_last_known_one() -> None:
    found = read_subscription(subscription("t", "u", version=9) + b"more")
    assert found is not None and found.topics == ["t", "u"]


def test_where_a_subscription_cannot_be_read_every_topic_may_be_in_use() -> None:
    group = group_of("a", protocols=(("range", subscription("t")),))
    group.protocol_name = "range"
    group.find_subscribed_topics()
    assert group.subscribed_among(["t", "u"]) == {"t"}
    group.add(member("b", protocols=(("range", b"?"),)))
    group.find_subscribed_topics()
    assert group.subscribed_topics is None and group.subscribed_among(["u"]) == {"u"}
    group.protocol_type = "connect"
    group.find_subscribed_topics()
    assert not group.subscribed_among(["t"]), "its members are no consumers"
