"""Attacks that make the broker remember many things: ids, offsets, groups, topics, names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.wire.framing import load
from ottla.wire.messages import create_acls, create_topics, delete_topics, find_coordinator, join_group, offset_commit
from ottla.wire.schema import Request
from tests.clients.broker_process import eventually
from tests.hostile.attacks import Target, attack

TEXT = "m" * 4000
IN_FLIGHT = 50


def make_topic(target: Target, name: str, partitions: int, **configs: str) -> None:
    settings = [create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = create_topics.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
    answer = target.client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert not answer.topics[0].error_code, answer


def wait_for_coordinators(target: Target, kind: int, name: str) -> None:
    request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
    eventually(lambda: not target.client.ask(request, 4).coordinators[0].error_code)


def send_many(target: Target, requests: Iterable[tuple[Request, int]]) -> list[bytes]:
    """Sends requests on one connection, a few in flight at a time. Returns the answers until the broker closes the connection."""
    client, answers, waiting = target.connect(), list[bytes](), 0
    try:
        for request, version in requests:
            client.send(client.frame(request, version))
            waiting += 1
            if waiting == IN_FLIGHT:
                for _ in range(IN_FLIGHT):
                    answers.append(client.receive() or b"")
                waiting = 0
        answers += [client.receive() or b"" for _ in range(waiting)]
    except OSError:
        pass  # the broker has closed it
    return answers


@attack("InitProducerId of 50,000 transactional ids of 1,000 letters")
def many_transactional_ids(target: Target) -> None:
    wait_for_coordinators(target, 1, "x")
    target.begin()
    init: Any = load(22)[0]
    ids = (f"{number:06}" + "x" * 994 for number in target.numbers(50_000))
    send_many(target, ((init(transactional_id=name, transaction_timeout_ms=60_000), 4) for name in ids))


@attack("OffsetCommit of 4 kB of metadata for 2,000 partitions in 80 groups")
def large_offsets(target: Target) -> None:
    make_topic(target, "wide", 2000)
    wait_for_coordinators(target, 0, "x")
    target.begin()
    send_many(target, ((commit(f"group-{group}", first), 8) for group in target.numbers(80) for first in range(0, 2000, 100)))


def commit(group: str, first: int) -> offset_commit.OffsetCommitRequest:
    """Returns a commit of offsets for a hundred partitions, by a consumer that is not a group member."""
    offsets = [
        offset_commit.OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata=TEXT)
        for number in range(first, first + 100)
    ]
    topic = offset_commit.OffsetCommitRequestTopic(name="wide", partitions=offsets)
    return offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])


@attack("JoinGroup of 5,000 groups with 100 kB of protocols each")
def many_classic_groups(target: Target) -> None:
    wait_for_coordinators(target, 0, "x")
    target.begin()
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(100_000))
    send_many(
        target,
        (
            (
                join_group.JoinGroupRequest(
                    group_id=f"group-{number}", session_timeout_ms=300_000, rebalance_timeout_ms=300_000, protocol_type="consumer",
                    protocols=[protocol],
                ), 3,
            )
            for number in target.numbers(5000)
        ),
    )  # fmt: skip


@attack("ConsumerGroupHeartbeat and ShareGroupHeartbeat of 11,000 groups with 100 topics of 200 letters each")
def many_new_groups(target: Target) -> None:
    wait_for_coordinators(target, 0, "x")
    names = [f"{number}".rjust(200, "t") for number in range(100)]
    target.begin()
    consumer, share = load(68)[0], load(76)[0]
    beat: dict[str, Any] = {"member_id": "m", "subscribed_topic_names": names}
    send_many(
        target,
        (
            (share(group_id=f"share-{number}", **beat), 1)
            if number % 2
            else (consumer(group_id=f"group-{number}", rebalance_timeout_ms=1000, topic_partitions=[], **beat), 0)
            for number in target.numbers(11_000)
        ),
    )


@attack("ApiVersions of 1,500 connections that name 32 kB of client software and as much of its version")
def long_software_names(target: Target) -> None:
    frame = target.request(18, 3, client_software_name="n" * 32_000, client_software_version="v" * 32_000)
    target.begin()
    for _ in target.numbers(1500):
        client = target.connect()
        client.send(frame)
        client.receive()
    target.hold(200)


@attack("CreateTopics and DeleteTopics of a topic of 5,000 partitions, 3 times")
def create_and_delete(target: Target) -> None:
    target.begin()
    for number in range(3):
        make_topic(target, f"again-{number}", target.part(5000))
        state = delete_topics.DeleteTopicState(name=f"again-{number}")
        target.client.ask(delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=60_000), 6)


@attack(
    "CreateAcls of 50,000 rules",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)
def many_rules(target: Target) -> None:
    target.begin()
    for first in range(0, target.part(50_000), 2500):
        creations = [
            create_acls.AclCreation(
                resource_type=2, resource_name=f"topic-{number}", resource_pattern_type=3, principal=f"User:{number}", host="*",
                operation=3, permission_type=3,
            )
            for number in range(first, first + 2500)
        ]  # fmt: skip
        target.client.ask(create_acls.CreateAclsRequest(creations=creations), 3)


@attack(
    "CreateTopics of 1,000 partitions at a time until it is refused, of a broker that may use 64 MiB",
    "ottla.memory.max.bytes=67108864",
    not_on_kafka="has no such bound",
)
def as_many_partitions_as_there_may_be(target: Target) -> None:
    target.begin()
    for number in range(1000):
        topic = create_topics.CreatableTopic(name=f"wide-{number}", num_partitions=1000, replication_factor=1)
        answer = target.client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        if answer.topics[0].error_code:
            assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION, answer
            return
    raise AssertionError("nothing was refused")
