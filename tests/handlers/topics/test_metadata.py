"""Metadata: which topics are in the answer, with which errors, and which topics the request creates."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.base.types import GROUP_METADATA_TOPIC
from ottla.base.uuids import ZERO_UUID
from ottla.controller.api import NewTopic
from ottla.controller.membership import decide_brokers_changed
from ottla.handlers.context import Pending, RequestContext
from ottla.handlers.topics.metadata import handle
from ottla.security.acl import AclOperation
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.controller.cluster import Rules
from tests.fakes.answers import answer_of
from tests.handlers.admin_world import AdminWorld, DenyAll

ZERO = bytes(16)


def named(*names: str, **options: bool) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)


def errors(answer: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_brokers_and_topics(version: int) -> None:
    world = AdminWorld()
    world.cluster.create(NewTopic(name="a", num_partitions=2))
    answer = world.ask(named("a"), version)
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(0, "127.0.0.1", 9092)]
    (topic,) = answer.topics
    assert [(part.partition_index, part.leader_id, part.replica_nodes, part.isr_nodes) for part in topic.partitions] == [
        (0, 0, [0], [0]),
        (1, 0, [0], [0]),
    ]
    if version >= 1:
        assert answer.controller_id == 0
    if version >= 10:
        assert topic.topic_id == world.cluster.metadata.topic("a").topic_id  # type: ignore[union-attr]


def test_all_topics_and_none() -> None:
    world = AdminWorld()
    world.cluster.create("a", "b")
    assert len(world.ask(MetadataRequest(topics=None)).topics) == 2
    assert len(world.ask(MetadataRequest(topics=[]), 0).topics) == 2
    assert world.ask(MetadataRequest(topics=[]), 1).topics == []


def test_a_missing_topic_is_created_and_in_the_answer_at_once() -> None:
    config, _ = load(assignments=["num.partitions=3"])
    world = AdminWorld(config)
    answer = world.ask(named("b", "a", "b"))
    assert errors(answer) == {"b": 0, "a": 0}
    assert [len(topic.partitions) for topic in answer.topics] == [3, 3]


def test_an_internal_topic_is_created_as_such() -> None:
    world = AdminWorld()
    (topic,) = world.ask(named(GROUP_METADATA_TOPIC)).topics
    assert (topic.is_internal, len(topic.partitions)) == (True, 50)


@pytest.mark.parametrize(
    ("setting", "is_allowed_by_client"), [("auto.create.topics.enable=false", True), ("auto.create.topics.enable=true", False)]
)
def test_a_missing_topic_is_not_created_when_either_side_forbids_it(setting: str, is_allowed_by_client: bool) -> None:
    config, _ = load(assignments=[setting])
    world = AdminWorld(config)
    answer = world.ask(named("a", allow_auto_topic_creation=is_allowed_by_client))
    assert errors(answer) == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.cluster.metadata.topic("a") is None


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 250, "a\0b"])
def test_names_that_no_topic_can_have(name: str) -> None:
    """Such a name gets INVALID_TOPIC_EXCEPTION, and no topic is created."""
    assert errors(AdminWorld().ask(named(name))) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_name_that_collides_is_not_created() -> None:
    world = AdminWorld()
    world.cluster.create("a.b")
    assert errors(world.ask(named("a_b"))) == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_topics_by_id() -> None:
    world = AdminWorld()
    (made,) = world.cluster.create("a")
    known = MetadataRequestTopic(name=None, topic_id=made.topic_id)
    unknown = MetadataRequestTopic(name=None, topic_id=b"\1" * 16)
    answer = world.ask(MetadataRequest(topics=[known, unknown]))
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
        ("a", made.topic_id, 0),
        (None, b"\1" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("name", ["", "another"])
def test_an_id_wins_over_the_name_beside_it(name: str) -> None:
    """Java clients send an empty name, not null."""
    world = AdminWorld()
    (made,) = world.cluster.create("a")
    answer = world.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=made.topic_id)]))
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [("a", made.topic_id, 0)]


def test_topics_without_an_id_are_ignored_beside_one_that_has_an_id() -> None:
    """As in Kafka. Thus the broker does not create them either."""
    world = AdminWorld()
    (made,) = world.cluster.create("a")
    world.cluster.create("b")
    asked = [
        MetadataRequestTopic(name=name, topic_id=topic_id) for name, topic_id in (("b", ZERO_UUID), ("", made.topic_id), ("c", ZERO_UUID))
    ]
    answer = world.ask(MetadataRequest(topics=[*asked, *asked]))
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("a", 0)]
    assert world.cluster.metadata.topic("c") is None


def test_a_topic_with_neither_id_nor_name_is_refused() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    answer = world.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None), MetadataRequestTopic(name="a")]))
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(None, ErrorCode.INVALID_REQUEST), ("a", 0)]


@pytest.mark.parametrize("wrong", [MetadataRequestTopic(name="a", topic_id=b"\1" * 16), MetadataRequestTopic(name=None)])
def test_a_request_that_needs_ids_is_refused_whole_before_their_version(wrong: MetadataRequestTopic) -> None:
    world = AdminWorld()
    world.cluster.create("b")
    answer = world.ask(MetadataRequest(topics=[wrong, MetadataRequestTopic(name="b")]), 11)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
        (wrong.name or "", wrong.topic_id, ErrorCode.INVALID_REQUEST),
        ("b", bytes(16), ErrorCode.INVALID_REQUEST),
    ]


def test_a_partition_without_a_leader_is_leader_not_available() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    world.cluster.show(*decide_brokers_changed(world.cluster.metadata, [], [0], Rules()).changes)
    (topic,) = world.ask(named("a")).topics
    assert (topic.error_code, topic.partitions[0].error_code, topic.partitions[0].leader_id, topic.partitions[0].offline_replicas) == (
        0,
        ErrorCode.LEADER_NOT_AVAILABLE,
        -1,
        [0],
    )


@pytest.mark.parametrize(("leader", "isr"), [(0, (0,)), (0, (0, 7)), (-1, (7,))])
def test_version_0_leaves_out_replicas_on_brokers_that_are_gone(leader: int, isr: tuple[int, ...]) -> None:
    """Clients of version 0 look up each replica among the brokers of the answer. Later versions get all replicas, and no error."""
    world = AdminWorld()
    world.cluster.create("a")
    topic = world.cluster.cache.topic("a")
    assert topic is not None
    partition = replace(topic.partitions[0], leader=leader, replicas=(7, 0), isr=isr)
    world.cluster.cache._topics["a"] = replace(topic, partitions=(partition,))
    without_leader = ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else ErrorCode.NONE
    for version, code, replicas, in_sync in (
        (1, without_leader, [7, 0], list(isr)),
        (0, without_leader or ErrorCode.REPLICA_NOT_AVAILABLE, [0], [member for member in isr if member == 0]),
        (1, without_leader, [7, 0], list(isr)),
    ):
        for asked in (named("a"), MetadataRequest(topics=None if version else [])):
            (found,) = world.ask(asked, version).topics
            (part,) = found.partitions
            assert (found.error_code, part.error_code, part.leader_id) == (ErrorCode.NONE, code, leader)
            assert (part.replica_nodes, part.isr_nodes) == (replicas, in_sync)


def test_a_broker_without_the_clients_listener_is_left_out() -> None:
    world = AdminWorld()
    world.connection.listener = "OTHER"
    assert world.ask(named()).brokers == []


def test_what_may_not_be_seen() -> None:
    world = AdminWorld(authorizer=DenyAll((AclOperation.DESCRIBE, "a")))
    (made, hidden) = world.cluster.create("a", "b")
    assert errors(world.ask(named("a", "b", "c"))) == {
        "a": 0,
        "b": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "c": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert errors(world.ask(MetadataRequest(topics=None))) == {"a": 0}
    by_id = world.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=hidden.topic_id)]))
    assert errors(by_id) == {None: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert made.topic_id != hidden.topic_id


def test_creation_needs_its_own_right() -> None:
    may_see = DenyAll((AclOperation.DESCRIBE, "a"))
    assert errors(AdminWorld(authorizer=may_see).ask(named("a"))) == {"a": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    may_create = DenyAll((AclOperation.DESCRIBE, "a"), (AclOperation.CREATE, "a"))
    assert errors(AdminWorld(authorizer=may_create).ask(named("a"))) == {"a": 0}


def test_authorized_operations_are_answered_when_asked_and_not_cached() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    asked = world.ask(named("a", include_topic_authorized_operations=True, include_cluster_authorized_operations=True), 10)
    assert asked.topics[0].topic_authorized_operations & 1 << AclOperation.WRITE
    assert asked.cluster_authorized_operations & 1 << AclOperation.CLUSTER_ACTION
    assert world.ask(named("a"), 10).topics[0].topic_authorized_operations == -0x80000000
    absent = world.ask(named("no", include_topic_authorized_operations=True, allow_auto_topic_creation=False), 10)
    assert absent.topics[0].topic_authorized_operations == asked.topics[0].topic_authorized_operations, "what it might do if it were there"


def test_the_answer_follows_every_change_of_the_topic() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    before = world.ask(named("a")).topics[0]
    world.cluster.delete("a")
    world.cluster.create(NewTopic(name="a", num_partitions=4))
    after = world.ask(named("a")).topics[0]
    assert (len(before.partitions), len(after.partitions)) == (1, 4)
    assert before.topic_id != after.topic_id


class Suspects:
    """Replaces `cluster/suspects.py` for the handler."""

    def __init__(self, *brokers: int) -> None:
        self.brokers = list(brokers)
        self.waiting: list[tuple[Callable[[Collection[int]], bool], Callable[[], object]]] = []

    def call_when_over(self, is_over: Callable[[Collection[int]], bool], function: Callable[[], object]) -> None:
        self.waiting.append((is_over, function))


@pytest.mark.parametrize("asked", [MetadataRequest(topics=None), named("a")])
def test_an_answer_about_a_leader_that_may_have_just_died_waits(asked: MetadataRequest) -> None:
    world = AdminWorld()
    world.cluster.create("a")
    suspects = world.broker.suspects = Suspects(0)
    context = RequestContext(12, "test", world.connection)
    pending = answer_of(handle(world.broker, context, asked))
    assert isinstance(pending, Pending) and not pending.is_done
    assert not pending.is_change, "nothing will be created"
    ((is_over, function),) = suspects.waiting
    assert not is_over([0]) and is_over([]) and is_over([7])
    function()
    assert [topic.name for topic in pending.response.topics] == ["a"]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("is_allowed_by_client", [False, True])
def test_a_request_that_creates_is_a_change(waits: bool, is_allowed_by_client: bool) -> None:
    """A connection has no other request under way beside a change."""
    world = AdminWorld()
    world.cluster.create("a")
    world.broker.suspects = Suspects(0) if waits else None
    answer = handle(
        world.broker, RequestContext(12, "test", world.connection), named("a", "new", allow_auto_topic_creation=is_allowed_by_client)
    )
    assert isinstance(answer, Pending) == (waits or is_allowed_by_client)
    assert not isinstance(answer, Pending) or answer.is_change == is_allowed_by_client


def test_what_no_suspect_leads_is_answered_at_once() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    suspects = world.broker.suspects = Suspects(7)
    assert errors(world.ask(named("a"))) == {"a": 0}
    suspects.brokers = [0]
    assert world.ask(MetadataRequest(topics=[])).topics == [] and errors(world.ask(named("new"))) == {"new": 0}
    assert suspects.waiting == []
