"""What a console notes of groups between two looks."""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.client.core.group_admin import GroupDescription, GroupMember, ListedGroup
from ottla.console.group_history import CHANGES_MAX, POINTS_MAX, GroupHistory


def listed(name: str, state: str) -> ListedGroup:
    return ListedGroup(name, "consumer", state, "Classic", 0)


def described(**partitions: int) -> GroupDescription:
    members = tuple(
        GroupMember(name, None, name, "host", tuple(TopicPartition("t", number) for number in range(count)))
        for name, count in partitions.items()
    )
    return GroupDescription("g", "Classic", "Stable", "consumer", "range", 0, members)


def test_changes_of_states_are_noted_once() -> None:
    history = GroupHistory()
    for at_s, state in enumerate(("Stable", "Stable", "PreparingRebalance", "Stable")):
        history.note(at_s, [listed("g", state), listed("other", "Empty")], {})
    assert [(one.at_s, one.before, one.after) for one in history.changes_of("g")] == [
        (3, "PreparingRebalance", "Stable"), (2, "Stable", "PreparingRebalance"),
    ]  # fmt: skip
    assert history.changes_of("other") == []


def test_members_that_come_and_partitions_that_move_are_noted() -> None:
    history = GroupHistory()
    for at_s, group in enumerate((described(a=3), described(a=3), described(a=2, b=1), described(a=1, b=2), described())):
        history.note_members(at_s, group)
    assert [(one.at_s, one.what, one.before, one.after) for one in history.changes_of("g")] == [
        (4, "members", "2 members with 2, 1 partitions", "0 members"),
        (3, "assignment", "2 members with 2, 1 partitions", "2 members with 2, 1 partitions"),
        (2, "members", "1 member with 3 partitions", "2 members with 2, 1 partitions"),
    ]


def test_the_lag_of_a_group_is_kept_while_it_is_listed_and_everything_is_bounded() -> None:
    history = GroupHistory()
    for at_s in range(2 * POINTS_MAX):
        history.note(at_s, [listed("g", str(at_s % 2))], {"g": 7 * at_s})
    times, lags = history.lag_of("g")
    assert times == list(range(POINTS_MAX, 2 * POINTS_MAX)) and lags == [7 * at_s for at_s in times]
    for at_s in range(2 * CHANGES_MAX):
        history.note(at_s, [listed("g", str(at_s % 2))], {})
    assert len(history.changes_of("g")) == CHANGES_MAX and history.lag_of("g") == ([], [])
