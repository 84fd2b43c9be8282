"""Attacks by groups with many members, long subscriptions and expensive assignments, and by share sessions with many partitions."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.uuids import uuid_to_text
from ottla.wire.codec import encoder
from ottla.wire.framing import load
from ottla.wire.messages import create_topics, join_group, metadata, share_fetch
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.schema import Request
from tests.clients.broker_process import eventually
from tests.clients.wire_client import WireClient, error_codes
from tests.hostile.attacks import Target, attack
from tests.hostile.attacks_growth import make_topic, send_many, wait_for_coordinators

MEMBERS = 300
MEMBER = uuid_to_text(bytes(15) + b"\1")
ASSIGNS_AT_ONCE = "group.consumer.assignment.interval.ms=0"


def make_topics(target: Target, count: int, partitions: int, prefix: str = "topic") -> None:
    for first in range(0, count, 1000):
        topics = [
            create_topics.CreatableTopic(name=f"{prefix}-{number}", num_partitions=partitions, replication_factor=1)
            for number in range(first, min(first + 1000, count))
        ]
        target.client.ask(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=120_000), 7)


def member(group: str, number: int, **fields: Any) -> Request:
    """Returns the heartbeat by which a member of a consumer group joins."""
    made: Request = load(68)[0](
        group_id=group, member_id=f"member-{number}", member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=[], **fields
    )
    return made


@attack("300 members of a consumer group, each with a regular expression of its own, and 5,000 topics")
def many_expressions(target: Target) -> None:
    make_topics(target, target.part(5000), 1)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    send_many(target, (with_an_expression(number) for number in target.numbers(MEMBERS)))
    make_topic(target, "one-more", 1)
    target.hold(20)
    send_many(target, (with_an_expression(number) for number in range(20)))


def with_an_expression(number: int) -> tuple[Request, int]:
    return member("large", number, subscribed_topic_regex=f"(topic|other{number})-.*"), 1


@attack("300 members of a consumer group that subscribe to other halves of 200 topics of 10 partitions", ASSIGNS_AT_ONCE)
def unequal_subscriptions(target: Target) -> None:
    make_topics(target, 200, 10)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    requests = []
    for number in target.numbers(MEMBERS):
        names = [f"topic-{(number * 7 + topic) % 200}" for topic in range(100)]
        requests.append((member("large", number, subscribed_topic_names=names), 0))
    send_many(target, requests)


@attack("2,000 members of a consumer group that join and leave, and 5,000 partitions", ASSIGNS_AT_ONCE)
def large_group(target: Target) -> None:
    make_topic(target, "wide", target.part(5000))
    wait_for_coordinators(target, 0, "x")
    target.begin()
    send_many(target, ((member("large", number, subscribed_topic_names=["wide"]), 0) for number in target.numbers(2000)))
    leave = load(68)[0]
    send_many(target, ((leave(group_id="large", member_id=f"member-{number}", member_epoch=-1), 0) for number in target.numbers(2000)))


@attack("200 members of a share group that subscribe to 2,000 topics", "group.share.assignment.interval.ms=0")
def large_share_group(target: Target) -> None:
    make_topics(target, target.part(2000), 1)
    wait_for_coordinators(target, 0, "x")
    names = [f"topic-{number}" for number in range(2000)]
    target.begin()
    beat = load(76)[0]
    send_many(target, ((beat(group_id="share", member_id=f"m{number}", subscribed_topic_names=names), 1) for number in target.numbers(200)))


@attack("200 members of a share group that subscribe to other halves of 2,000 topics", "group.share.assignment.interval.ms=0")
def unequal_share_group(target: Target) -> None:
    make_topics(target, target.part(2000), 1)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    beat, requests = load(76)[0], []
    for number in target.numbers(200):
        names = [f"topic-{(number * 7 + place) % 2000}" for place in range(1000)]
        requests.append((beat(group_id="share", member_id=f"m{number}", subscribed_topic_names=names), 1))
    send_many(target, requests)


@attack("1,000 members of a consumer group that subscribe to other halves of 1,000 topics of 10 partitions", ASSIGNS_AT_ONCE)
def many_unequal_subscriptions(target: Target) -> None:
    make_topics(target, target.part(1000), 10)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    send_many(target, ((member("large", number, subscribed_topic_names=half_of_topics(number)), 0) for number in target.numbers(1000)))


def half_of_topics(number: int) -> list[str]:
    return [f"topic-{(number * 7 + place) % 1000}" for place in range(500)]


@attack("a consumer group of one regular expression, then another, and 10,000 topics", ASSIGNS_AT_ONCE)
def one_expression(target: Target) -> None:
    make_topics(target, target.part(10_000), 1)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    for number in range(20):
        send_many(target, [(member("large", 0, subscribed_topic_regex=f"topic-.*{number}.*9"), 1)])
    target.hold(50)


@attack("regular expressions of consumer groups that backtrack, and 2,000 topics of 245 letters")
def expressions_that_backtrack(target: Target) -> None:
    make_topics(target, target.part(2000), 1, "a" * 240)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    for number, pattern in enumerate((r"\b(a?){900}b", "(a+)+$", "(a|a)*b", "(a?){100}a{100}.*", "(.*)*(.*)*(.*)*b", r"(\w+\s?)*z")):
        send_many(target, ((member(f"group-{number}", one, subscribed_topic_regex=pattern), 1) for one in target.numbers(20)))


@attack("100 members of a consumer group that subscribe to 5,000 topics each that are not there", ASSIGNS_AT_ONCE)
def topics_that_are_not_there(target: Target) -> None:
    wait_for_coordinators(target, 0, "x")
    target.begin()
    for number in target.numbers(100):
        names = [f"t{number}-{topic}" for topic in range(5000)]
        send_many(target, [(member("large", number, subscribed_topic_names=names), 0)])


@attack(
    "3 members of a share group of a topic of 10,000 partitions", "group.share.assignment.interval.ms=0",
    not_on_kafka="refuses to create the topic",
)  # fmt: skip
def wide_share_group(target: Target) -> None:
    make_topic(target, "wide", target.part(10_000))
    wait_for_coordinators(target, 0, "x")
    target.begin()
    beat = load(76)[0]
    for number in range(3):
        send_many(target, [(beat(group_id="share", member_id=f"m{number}", subscribed_topic_names=["wide"]), 1)])
    target.hold(50)


@attack("JoinGroup of 50 members whose subscriptions name 35,000 topics each")
def wide_subscriptions(target: Target) -> None:
    wait_for_coordinators(target, 0, "x")
    names = [f"topic-{number}" for number in range(35_000)]
    subscription = b"\0\1" + encoder(ConsumerProtocolSubscription, 1)(ConsumerProtocolSubscription(topics=names))
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=subscription)
    target.begin()
    for _ in target.numbers(50):
        joining = join_group.JoinGroupRequest(
            group_id="wide", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type="consumer", protocols=[protocol]
        )
        client = target.connect()
        client.send(client.frame(joining, 3))
    target.hold(200)


@attack("DescribeGroups of one group of 800 kB, 1,000 times in a request, 5 times")
def describe_one_group(target: Target) -> None:
    wait_for_coordinators(target, 0, "x")
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(400_000))
    joining = join_group.JoinGroupRequest(
        group_id="large", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type="consumer", protocols=[protocol, protocol]
    )
    assert not target.client.ask(joining, 3).error_code
    flood = target.request(15, 5, groups=["large"] * 1000)
    target.begin()
    for _ in range(5):
        assert target.send(flood) != [None]


@attack("60 share sessions of 5,000 partitions each, in as many groups, and one of 5,001 partitions")
def large_share_sessions(target: Target) -> None:
    """Opens share sessions with more partitions than all sessions together may have, than one session may have, and than the memory for
    share partitions allows.
    """
    make_topic(target, "wide", target.part(5000))
    topic_id = target.client.ask(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="wide")]), 12).topics[0].topic_id
    wait_for_coordinators(target, 0, "x")
    target.begin()
    for number in target.numbers(60):
        group, client = f"group-{number}", target.connect()
        assert not client.ask(load(76)[0](group_id=group, member_id=MEMBER, subscribed_topic_names=["wide"]), 1).error_code
        request = share_fetch_of(group, topic_id, target.part(5000))
        open_until_settled(client, request, needs_all=number == 0)
    refused = target.connect().ask(share_fetch_of("one-more", topic_id, 5001), 1)
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED, refused.error_code
    target.hold(200)


def open_until_settled(client: WireClient, request: Request, *, needs_all: bool) -> None:
    """Opens a share session again and again, until all its partitions can be read or the session is refused. Without `needs_all` it also
    stops when no further partition becomes readable, because the memory for states is full.
    """
    failing = [-1]

    def is_settled() -> bool:
        answer = client.ask(request, 1)
        failing.append(sum(map(bool, error_codes(answer))))
        if answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED or not failing[-1]:
            return True
        return not needs_all and failing[-1] == failing[-2]

    eventually(is_settled, 120)


def share_fetch_of(group: str, topic_id: bytes, partitions: int) -> share_fetch.ShareFetchRequest:
    """Returns the request that opens a share session of this number of partitions."""
    wanted = [share_fetch.FetchPartition(partition_index=number) for number in range(partitions)]
    return share_fetch.ShareFetchRequest(
        group_id=group, member_id=MEMBER, share_session_epoch=0, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20,
        max_records=100, batch_size=100, topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=wanted)],
    )  # fmt: skip
