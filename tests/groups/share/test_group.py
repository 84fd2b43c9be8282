"""The topics of a share group are known without reading the subscription of each member."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ottla.groups.share.group import COUNTED_SUBSCRIPTIONS, ShareFacts, ShareGroup

NAMES = [f"topic-{number}" for number in range(40)]


class Subscription(tuple[str, ...]):
    """Counts how often the names in a member's subscription are read."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        Subscription.looks += 1
        return super().__iter__()


def facts(number: int, width: int = 20) -> ShareFacts:
    return ShareFacts(topics=Subscription(sorted(NAMES[(number + place) % len(NAMES)] for place in range(width))))


def read_by_members(group: ShareGroup) -> set[str]:
    return {name for member in group.facts.values() for name in member.topics}


def test_what_is_read_after_any_changes_is_what_members_read() -> None:
    source = random.Random(7)
    group = ShareGroup("g")
    for _ in range(3000):
        member_id, kind = f"m{source.randrange(30)}", source.random()
        before = group
        group = group.copy() if kind < 0.2 else group
        known = read_by_members(before)
        if kind < 0.45:
            group.remove_member(member_id)
        else:
            group.set_member(member_id, facts(source.randrange(25), source.choice((0, 1, 3, 20))))
        assert group.read_topics() == read_by_members(group)
        assert group.subscribed_topics() == sorted(read_by_members(group))
        assert before is group or before.read_topics() == known, "a change of the copy is none of the group"
    assert group._counts is not None


def test_a_new_member_costs_no_look_at_what_all_others_read() -> None:
    """Formerly a join read all subscriptions three times: the join of the 200th member with 1,000 topics took 30 ms."""
    group = ShareGroup("g")
    for number in range(30):
        group.set_member(f"m{number}", facts(number))
    assert set(group.read_topics()) == set(NAMES)
    change = group.copy()
    Subscription.looks = 0
    change.set_member("late", facts(3, 19))
    assert change.subscribed_topics() == sorted(NAMES)
    assert Subscription.looks == 1, "at its own"
    change.remove_member("m3")
    assert change.subscribed_topics() == sorted(NAMES) and Subscription.looks == 2


def test_nothing_is_counted_where_members_read_the_same() -> None:
    group = ShareGroup("g")
    for number in range(100):
        group.set_member(f"m{number}", facts(number % (COUNTED_SUBSCRIPTIONS - 1)))
        assert group.read_topics() == read_by_members(group)
    assert group._counts is None
