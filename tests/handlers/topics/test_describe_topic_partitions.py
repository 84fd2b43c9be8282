"""DescribeTopicPartitions: all pages together have all partitions, whatever the size of a page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.controller.api import NewTopic
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tests.handlers.admin_world import AdminWorld, DenyAll


@pytest.fixture
def world() -> AdminWorld:
    made = AdminWorld()
    made.cluster.create(*(NewTopic(name=name, num_partitions=count) for name, count in (("b", 3), ("a", 2), ("c", 1))))
    return made


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 100])
@pytest.mark.parametrize("names", [[], ["c", "a", "b"]])
def test_pages(world: AdminWorld, limit: int, names: list[str]) -> None:
    found, cursor, pages = [], None, 0
    while True:
        topics = [TopicRequest(name=name) for name in names]
        page = world.ask(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor))
        found += [(topic.name, part.partition_index) for topic in page.topics for part in topic.partitions]
        assert sum(len(topic.partitions) for topic in page.topics) <= limit
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break
        assert pages < 10
    assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


def test_the_brokers_limit_holds_too() -> None:
    config, _ = load(assignments=["max.request.partition.size.limit=2"])
    world = AdminWorld(config)
    world.cluster.create(NewTopic(name="a", num_partitions=5))
    page = world.ask(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000))
    assert (len(page.topics[0].partitions), page.next_cursor.partition_index) == (2, 2)


def test_missing_topics_and_bad_names(world: AdminWorld) -> None:
    answer = world.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="no"), TopicRequest(name="a/b")]))
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "no": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize("limit", [1, 2000])
@pytest.mark.parametrize("cursor", [("b", -1), ("aa", 0), ("z", 0), ("", 0)])
def test_an_impossible_cursor_refuses_every_topic(world: AdminWorld, cursor: tuple[str, int], limit: int) -> None:
    """The cursor is before the first partition of a topic, or in a topic that the request does not name, wherever in the order of the
    names."""
    topics = [TopicRequest(name=name) for name in ("b", "missing", "a")]
    page = Cursor(topic_name=cursor[0], partition_index=cursor[1])
    answer = world.ask(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=page))
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(one.name, ErrorCode.INVALID_REQUEST) for one in topics]
    assert answer.next_cursor is None


def test_the_refusal_of_a_cursor_has_the_brokers_limit() -> None:
    config, _ = load(assignments=["max.request.partition.size.limit=2"])
    topics = [TopicRequest(name=f"t{number}") for number in range(5)]
    request = DescribeTopicPartitionsRequest(topics=topics, cursor=Cursor(topic_name="t0", partition_index=-1))
    assert [topic.name for topic in AdminWorld(config).ask(request).topics] == ["t0", "t1"]


def test_a_partition_without_a_leader_is_described_without_an_error() -> None:
    """Its replicas are what an operator wants to see. Metadata gives LEADER_NOT_AVAILABLE for such a partition, to clients that would use
    it."""
    world = AdminWorld()
    world.cluster.create(NewTopic(name="a", num_partitions=1))
    topic = world.cluster.cache.topic("a")
    assert topic is not None
    (led,) = world.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")])).topics[0].partitions
    assert (led.leader_id, led.eligible_leader_replicas, led.last_known_elr) == (0, [], [])
    leaderless = replace(topic, partitions=(replace(topic.partitions[0], leader=-1, isr=(), eligible=(0,), last_leader=3),))
    world.cluster.cache._topics["a"] = leaderless
    (part,) = world.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")])).topics[0].partitions
    assert (part.error_code, part.leader_id, part.isr_nodes, part.eligible_leader_replicas) == (0, -1, [], [0])
    assert part.last_known_elr == [3]


def test_a_cursor_whose_topic_is_gone(world: AdminWorld) -> None:
    world.cluster.delete("b")
    answer = world.ask(DescribeTopicPartitionsRequest(topics=[], cursor=Cursor(topic_name="b", partition_index=2)))
    assert [topic.name for topic in answer.topics] == ["c"]


def test_rights(world: AdminWorld) -> None:
    denied = AdminWorld(authorizer=DenyAll(), cluster=world.cluster)
    assert denied.ask(DescribeTopicPartitionsRequest(topics=[])).topics == []
    (named,) = denied.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")])).topics
    assert named.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_topics_that_are_not_there_fill_a_page_too(world: AdminWorld) -> None:
    """Formerly tens of thousands of missing topics were one answer, made in one turn of the loop."""
    wanted = [f"missing-{number}" for number in range(5)]
    found, cursor = [], None
    while len(found) < 5:
        topics = [TopicRequest(name=name) for name in wanted]
        page = world.ask(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2, cursor=cursor))
        assert 0 < len(page.topics) <= 2
        found += [topic.name for topic in page.topics]
        cursor = page.next_cursor
    assert found == wanted and cursor is None
