"""Attacks by groups of many members: what they subscribe to, and what it costs to give them their partitions."""

from __future__ import annotations

from typing import Any

from ottla.wire.framing import load
from ottla.wire.messages import create_topics
from ottla.wire.schema import Request
from tests.hostile.attacks import Target, attack
from tests.hostile.attacks_growth import make_topic, send_many, wait_for_coordinators

MEMBERS = 300
ASSIGNS_AT_ONCE = "group.consumer.assignment.interval.ms=0"


def make_topics(target: Target, count: int, partitions: int, prefix: str = "topic") -> None:
    for first in range(0, count, 1000):
        topics = [
            create_topics.CreatableTopic(name=f"{prefix}-{number}", num_partitions=partitions, replication_factor=1)
            for number in range(first, min(first + 1000, count))
        ]
        target.client.ask(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=120_000), 7)


def member(group: str, number: int, **fields: Any) -> Request:
    """The heartbeat by which a member of a consumer group joins."""
    made: Request = load(68)[0](
        group_id=group, member_id=f"member-{number}", member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=[], **fields
    )
    return made


@attack("300 members of a consumer group, each with a regular expression of its own, and 5,000 topics")
def many_expressions(target: Target) -> None:
    make_topics(target, 5000, 1)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    send_many(target, ((member("large", number, subscribed_topic_regex=f"(topic|other{number})-.*"), 1) for number in range(MEMBERS)))
    make_topic(target, "one-more", 1)
    target.hold(20)
    send_many(target, ((member("large", number, subscribed_topic_regex=f"(topic|other{number})-.*"), 1) for number in range(20)))


@attack("300 members of a consumer group that subscribe to other halves of 200 topics of 10 partitions", ASSIGNS_AT_ONCE)
def unequal_subscriptions(target: Target) -> None:
    make_topics(target, 200, 10)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    requests = []
    for number in range(MEMBERS):
        names = [f"topic-{(number * 7 + topic) % 200}" for topic in range(100)]
        requests.append((member("large", number, subscribed_topic_names=names), 0))
    send_many(target, requests)


@attack("2,000 members of a consumer group that join and leave, and 5,000 partitions", ASSIGNS_AT_ONCE)
def large_group(target: Target) -> None:
    make_topic(target, "wide", 5000)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    send_many(target, ((member("large", number, subscribed_topic_names=["wide"]), 0) for number in range(2000)))
    leave = load(68)[0]
    send_many(target, ((leave(group_id="large", member_id=f"member-{number}", member_epoch=-1), 0) for number in range(2000)))


@attack("200 members of a share group that subscribe to 2,000 topics", "group.share.assignment.interval.ms=0")
def large_share_group(target: Target) -> None:
    make_topics(target, 2000, 1)
    wait_for_coordinators(target, 0, "x")
    names = [f"topic-{number}" for number in range(2000)]
    target.begin()
    beat = load(76)[0]
    send_many(target, ((beat(group_id="share", member_id=f"m{number}", subscribed_topic_names=names), 1) for number in range(200)))
