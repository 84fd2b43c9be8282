"""The requests about streams groups, encoded and decoded: rights, internal topics that the broker creates, feature levels, and
descriptions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.controller.api import NewTopic, TopicResult
from ottla.security.acl import AclOperation
from ottla.security.authorizer import AllowClients
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from tests.groups.streams.test_heartbeat import streams_world
from tests.handlers.admin_world import AdminWorld, DenyAll

READ, DESCRIBE, CREATE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.CREATE
TOPICS = ("t", "words", "totals")


class BrokerWorld:
    """A broker whose group coordinator is that of the transcript tests, and whose controller answers when the test says so."""

    def __init__(self, authorizer: Any = None, *settings: str) -> None:
        self.groups = streams_world()
        self.admin = AdminWorld(authorizer=authorizer if authorizer is not None else AllowClients())
        self.created: list[tuple[list[NewTopic], Any]] = []
        self.admin.broker = SimpleNamespace(
            config=load(assignments=settings)[0],
            authorizer=self.admin.broker.authorizer,
            groups=SimpleNamespace(host_of=lambda _group_id: self.groups.host),
            controller_link=SimpleNamespace(create_topics=lambda topics, _validate, done: self.created.append((topics, done))),
            quotas=None,
        )

    def ask(self, request: Any, version: int = 1) -> Any:
        return self.admin.ask(request, version)

    def settle(self) -> Any:
        """Lets a member join and send heartbeats until its group is stable. Returns the last answer."""
        answer = self.ask(beat())
        for _ in range(4):
            answer = self.ask(beat(answer.member_epoch))
        return answer

    def finish(self, error: ErrorCode = ErrorCode.NONE, message: str | None = None) -> list[NewTopic]:
        """Lets the controller answer the creation of topics. Returns those topics."""
        ((topics, done),) = self.created
        self.created.clear()
        if not error:
            self.groups.topics.counts.update({topic.name: topic.num_partitions for topic in topics})
            self.groups.machine.topics_changed()
        done([TopicResult(name=topic.name, error=error, message=message) for topic in topics])
        return topics


def topology(*sources: str, sinks: tuple[str, ...] = ("words",)) -> Topology:
    configs = [KeyValue(key="cleanup.policy", value="compact")]
    totals = TopicInfo(name="totals", replication_factor=1, topic_configs=configs)
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=list(sources or ("t",)), repartition_sink_topics=list(sinks)),
            Subtopology(subtopology_id="1", repartition_source_topics=[TopicInfo(name="words")], state_changelog_topics=[totals]),
        ],
    )


def beat(epoch: int = 0, member_id: str = "m", wanted: Topology | None = None, **fields: Any) -> StreamsGroupHeartbeatRequest:
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    if epoch == 0:
        request.rebalance_timeout_ms = 1_000
        request.topology = wanted or topology()
        request.process_id = "p"
        request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
    return request


def tasks(found: list[TaskIds]) -> dict[str, list[int]]:
    return {one.subtopology_id: one.partitions for one in found}


@pytest.mark.parametrize("version", range(2))
def test_internal_topics_are_created_and_tasks_given(version: int) -> None:
    world = BrokerWorld()
    first = world.ask(beat(), version)
    (status,) = first.status
    assert (status.status_code, status.status_detail) == (3, "Internal topics are missing: totals, words")
    again = world.ask(beat(first.member_epoch), version)
    assert len(world.created) == 1, "they are being created"
    totals, words = world.finish()
    assert (totals.name, totals.num_partitions, totals.replication_factor) == ("totals", 4, 1)
    assert totals.configs == {"cleanup.policy": "compact"}
    assert (words.name, words.num_partitions, words.replication_factor, words.configs) == ("words", 4, -1, {})
    ready = world.ask(beat(again.member_epoch), version)
    assert not ready.status and tasks(ready.active_tasks) == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    assert ready.standby_tasks == ready.warmup_tasks == []
    assert world.ask(beat(ready.member_epoch), version).active_tasks is None


def test_a_creation_that_fails_is_shown_and_tried_again() -> None:
    world = BrokerWorld()
    first = world.ask(beat())
    world.finish(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
    (status,) = world.ask(beat(first.member_epoch)).status
    failures = "; Creation failed: totals (too few brokers), words (too few brokers)."
    assert status.status_detail == f"Internal topics are missing: totals, words{failures}"
    world.finish()
    assert not world.ask(beat(first.member_epoch)).status


def test_internal_topics_need_the_right_to_create_them() -> None:
    reading = [(READ, "g"), *((DESCRIBE, topic) for topic in TOPICS)]
    world = BrokerWorld(DenyAll(*reading, (CREATE, "words")))
    (status,) = world.ask(beat()).status
    assert status.status_detail == "Internal topics are missing: totals, words; Unauthorized to CREATE on topics totals."
    assert [topic.name for topic in world.finish()] == ["words"]
    whole = BrokerWorld(DenyAll(*reading, (CREATE, "kafka-cluster")))
    whole.ask(beat())
    assert [topic.name for topic in whole.finish()] == ["totals", "words"]


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        ([(DESCRIBE, topic) for topic in TOPICS], ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ([(READ, "g"), (DESCRIBE, "t"), (DESCRIBE, "words")], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_member_needs_rights(allowed: list[tuple[AclOperation, str]], code: ErrorCode) -> None:
    world = BrokerWorld(DenyAll(*allowed))
    assert world.ask(beat()).error_code == code
    assert not world.groups.shard.groups


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (topology("__consumer_offsets"), "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited."),
        (topology("t", sinks=("a/b", "words")), "Topic names a/b are not valid topic names."),
    ],
)
def test_topics_that_no_topology_may_have(wanted: Topology, message: str) -> None:
    answer = BrokerWorld().ask(beat(wanted=wanted))
    assert (answer.error_code, answer.error_message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def test_tasks_are_reported_in_all_three_kinds_or_in_none() -> None:
    world = BrokerWorld()
    joined = world.ask(beat())
    assert world.ask(beat(joined.member_epoch, active_tasks=[])).error_code == ErrorCode.INVALID_REQUEST


def test_a_group_is_described() -> None:
    world = BrokerWorld()
    world.groups.topics.counts.update(words=4, totals=4)
    world.ask(beat(user_endpoint=Endpoint(host="h", port=7), client_tags=[KeyValue(key="zone", value="a")], rack_id="r"))
    joined = world.ask(beat())
    offset = TaskOffset(subtopology_id="1", partition=3, offset=77)
    world.ask(beat(joined.member_epoch, task_offsets=[offset], task_end_offsets=[]))
    (group,) = world.ask(StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)).groups
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 2, 2)
    assert (group.assignor_name, group.topology_description, group.authorized_operations > 0) == ("sticky", None, True)
    first, second = group.topology.subtopologies
    assert (group.topology.epoch, first.source_topics, first.repartition_sink_topics) == (0, ["t"], ["words"])
    assert [(topic.name, topic.partitions) for topic in second.repartition_source_topics + second.state_changelog_topics] == [
        ("words", 4),
        ("totals", 4),
    ]
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.process_id, member.topology_epoch, member.rack_id) == ("m", 2, "p", 0, "r")
    assert (member.user_endpoint.host, member.user_endpoint.port, member.client_tags[0].value) == ("h", 7, "a")
    assert tasks(member.assignment.active_tasks) == tasks(member.target_assignment.active_tasks) == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    assert member.task_offsets == [offset] or [(one.partition, one.offset) for one in member.task_offsets] == [(3, 77)]


@pytest.mark.parametrize(("version", "is_shown"), [(0, False), (1, True)])
def test_a_member_without_the_required_tags_gets_a_status(version: int, is_shown: bool) -> None:
    """The member gets its tasks all the same: as in Kafka 4.4, tasks are not placed by tags."""
    world = BrokerWorld()
    world.groups.topics.counts.update(words=4, totals=4)
    world.groups.shard.own_settings = lambda _group: {"streams.rack.aware.assignment.tags": ("zone", "cluster")}
    joined = world.ask(beat(client_tags=[KeyValue(key="cluster", value="a")]), version)
    remedy = "Configure them via 'client.tag.<tagKey>' in your Streams config."
    expected = [(6, f"Missing required client tags for rack-aware standby assignment: [zone]. {remedy}")]
    assert [(status.status_code, status.status_detail) for status in joined.status or ()] == expected * is_shown
    assert tasks(joined.active_tasks) == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    world.groups.shard.own_settings = lambda _group: {"streams.rack.aware.assignment.tags": ("cluster",)}
    again = world.ask(beat(joined.member_epoch), version)
    assert not again.status and again.member_epoch == joined.member_epoch + 1, "the setting makes a new epoch"


def test_a_group_that_is_not_there_or_may_not_be_seen_is_not_described() -> None:
    world = BrokerWorld()
    (missing,) = world.ask(StreamsGroupDescribeRequest(group_ids=["g"])).groups
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    denied = BrokerWorld(DenyAll((READ, "g"), (DESCRIBE, "g"), *((DESCRIBE, topic) for topic in TOPICS)))
    denied.ask(beat())
    denied.admin.broker.authorizer = DenyAll((DESCRIBE, "g"), (DESCRIBE, "t"))
    (hidden,) = denied.ask(StreamsGroupDescribeRequest(group_ids=["g"])).groups
    assert (hidden.error_code, hidden.members, hidden.topology) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [], None)


@pytest.mark.parametrize("setting", ["group.coordinator.rebalance.protocols=classic,consumer", "ottla.advertise.level=4.1"])
def test_a_broker_that_does_not_offer_streams_groups(setting: str) -> None:
    world = BrokerWorld(None, setting)
    assert world.ask(beat()).error_code == ErrorCode.UNSUPPORTED_VERSION
    (group,) = world.ask(StreamsGroupDescribeRequest(group_ids=["g"])).groups
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
