"""The common state of consumer and share groups: a group before its first member, and the copy that a decision changes."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.consumer.group import ConsumerGroup, MemberFacts
from ottla.groups.modern.group import FIRST_EPOCH, EpochGroup
from ottla.groups.modern.reconciling import ReconciledAssignment
from ottla.groups.share.group import ShareFacts, ShareGroup, SharePosition
from ottla.groups.states import EMPTY, STABLE

T, U = b"t" * 16, b"u" * 16
KINDS: list[tuple[type[EpochGroup[Any, Any]], Any, Any]] = [
    (ConsumerGroup, MemberFacts, ReconciledAssignment),
    (ShareGroup, ShareFacts, SharePosition),
]
of_each_kind = pytest.mark.parametrize(("kind", "facts", "position"), KINDS)


@of_each_kind
def test_a_group_without_a_past(kind: type[EpochGroup[Any, Any]], facts: Any, position: Any) -> None:
    """The first member raises the group's epoch, so its member epoch is 2, as in Kafka."""
    group = kind("g")
    assert (group.epoch, group.target_epoch, group.metadata_hash, group.state) == (FIRST_EPOCH, FIRST_EPOCH, 0, EMPTY)
    assert group.position("unknown") == position() and group.subscribed_topics() == []


@of_each_kind
def test_topics_of_all_members_in_order_and_once(kind: type[EpochGroup[Any, Any]], facts: Any, position: Any) -> None:
    group = kind("g")
    for name, topics in (("a", ("u", "t")), ("b", ("t",)), ("c", ()), ("d", ("v", "t"))):
        group.set_member(name, facts(topics=topics))
    assert group.subscribed_topics() == ["t", "u", "v"] and group.state is not EMPTY
    assert list(group.members) == ["a", "b", "c", "d"]


@of_each_kind
def test_a_change_of_the_copy_is_none_of_the_group(kind: type[EpochGroup[Any, Any]], facts: Any, position: Any) -> None:
    group = kind("g")
    group.set_member("a", facts(topics=("t",)))
    group.set_position("a", position(epoch=2, assigned={T: (0,)}))
    group.set_target("a", {T: (0,)})
    before = {name: getattr(group, name) for name in group.fields}
    before = {name: dict(value) if isinstance(value, dict) else value for name, value in before.items()}
    copy = group.copy()
    assert type(copy) is kind and {name: getattr(copy, name) for name in copy.fields} == before
    copy.set_member("b", facts())
    copy.remove_member("a")
    copy.set_epoch(9, 9)
    copy.set_target_epoch(9, 9)
    copy.set_target("a", {U: (1,)})
    copy.set_position("b", position(epoch=9))
    copy.remove_position("a")
    assert {name: getattr(group, name) for name in group.fields} == before
    assert (list(copy.facts), list(copy.positions), copy.epoch, copy.target) == (["b"], ["b"], 9, {"a": {U: (1,)}})


@of_each_kind
def test_removing_what_is_not_there_changes_nothing(kind: type[EpochGroup[Any, Any]], facts: Any, position: Any) -> None:
    """Compaction may have removed the records before a tombstone."""
    group = kind("g")
    for remove in (group.remove_member, group.remove_target, group.remove_position):
        remove("unknown")
    assert not group.facts and not group.target and not group.positions


def test_a_share_group_with_members_is_stable() -> None:
    group = ShareGroup("g")
    group.set_member("a", ShareFacts())
    assert group.state is STABLE
    group.remove_member("a")
    assert group.state is EMPTY


@of_each_kind
@pytest.mark.parametrize(("now_ms", "has_rested"), [(10_499, False), (10_500, True), (9_999, True)])
def test_a_target_of_a_coordinator_whose_clock_is_ahead(
    kind: type[EpochGroup[Any, Any]], facts: Any, position: Any, now_ms: int, has_rested: bool
) -> None:
    """The clock may be an hour ahead. The group's next target does not wait until then."""
    group = kind("g")
    group.set_target_epoch(5, 10_000)
    assert group.has_rested(500, now_ms) is has_rested
