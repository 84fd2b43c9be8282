"""Members with equal subscriptions add little to the cost of a group, and subscriptions that no member has any more are forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.groups.commands import Caller, ConsumerHeartbeat, ShareHeartbeat
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.heartbeat import heartbeat
from ottla.groups.share.heartbeat import share_heartbeat
from ottla.machine.memory import CoordinatorMemory
from tests.groups.classic.coordinator import Coordinator
from tests.instructions import instructions
from tests.scenarios.groups_text import FixedTopics

NAMES = [f"topic-{number:03}" for number in range(100)]


@pytest.fixture
def coordinator() -> Coordinator:
    made = Coordinator(consumer_assignment_interval_ms=0, share_assignment_interval_ms=0)
    made.shard.topics = FixedTopics(dict.fromkeys(NAMES, 1))
    return made


def beat(coordinator: Coordinator, member: int, kind: type[Any] = ConsumerHeartbeat, **fields: Any) -> Any:
    caller = Caller("client", "/host")
    if kind is ConsumerHeartbeat and fields.get("member_epoch", 0) == 0:
        fields = {"owned": {}, "topics": None, "rebalance_timeout_ms": 60_000, **fields}
    command = kind(**{"group_id": "g", "caller": caller, "member_id": f"m{member}", "member_epoch": 0, **fields})
    answers: list[Any] = []
    handle: Any = heartbeat if kind is ConsumerHeartbeat else share_heartbeat
    coordinator.take(handle(coordinator.shard, command, answers.append, coordinator.now_ms))
    coordinator.now_ms += 1
    return answers[0] if answers else None


def group_of(coordinator: Coordinator) -> ConsumerGroup:
    group = coordinator.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


@pytest.mark.parametrize("kind", [ConsumerHeartbeat, ShareHeartbeat])
def test_a_join_costs_little_more_with_many_members_that_read_the_same(coordinator: Coordinator, kind: type[Any]) -> None:
    """Formerly a join cost time proportional to members times topics: 0.1 s with 200 members and 2,000 topics."""
    costs = []
    for member in range(80):
        costs.append(instructions(lambda member=member: beat(coordinator, member, kind, topics=list(NAMES))))  # type: ignore[misc]
    assert costs[79] - costs[20] < 59 * 3 * len(NAMES)
    facts = list(coordinator.shard.groups["g"].members.values())
    assert all(known.topics is facts[0].topics for known in facts)


def test_members_of_expressions_that_match_the_same_are_looked_at_together(coordinator: Coordinator) -> None:
    for member in range(20):
        assert not beat(coordinator, member, regex=f"(topic|other{member})-.*").error
    group = group_of(coordinator)
    first = group.regexes["(topic|other0)-.*"].topics
    assert first == tuple(NAMES) and all(resolved.topics is first for resolved in group.regexes.values())
    assert group.subscribed_topics() == NAMES and all(group.topics_of(facts) is first for facts in group.facts.values())


def test_all_expressions_of_a_group_are_matched_anew_when_there_is_another_topic(coordinator: Coordinator) -> None:
    for member in range(5):
        assert not beat(coordinator, member, regex=f"(topic|other{member})-.*").error
    group = group_of(coordinator)
    coordinator.shard.topics = FixedTopics(dict.fromkeys([*NAMES, "topic-new"], 1))
    coordinator.machine.topics_changed()
    answer = beat(coordinator, 0, member_epoch=group.position("m0").epoch)
    assert not answer.error, answer
    group = group_of(coordinator)
    assert all("topic-new" in resolved.topics for resolved in group.regexes.values())
    assert "topic-new" in group.subscribed_topics()


def test_forgetting_an_expression_costs_little_with_many_members_of_others(coordinator: Coordinator) -> None:
    """Formerly each expression of the group was searched for among all members, which took seconds with a few thousand members."""
    costs = []
    for count in (40, 80):
        for member in range(count - 40, count):
            assert not beat(coordinator, member, regex=f"(topic|other{member})-.*").error
        costs.append(instructions(lambda: beat(coordinator, 0, member_epoch=-1)))
        assert not beat(coordinator, 0, regex="(topic|other0)-.*").error
    assert costs[1] < 3 * costs[0]


def test_i46_what_expressions_match_is_bounded(coordinator: Coordinator) -> None:
    coordinator.shard.memory = CoordinatorMemory(20_000).share(coordinator.shard._sizes)
    codes = [beat(coordinator, member, regex=f"(topic|other{member})-.*").error for member in range(20)]
    assert codes[0] is ErrorCode.NONE and codes[-1] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 8 <= codes.count(ErrorCode.NONE) <= 9, "a member takes 1,500 bytes, the names that it matches 800"
