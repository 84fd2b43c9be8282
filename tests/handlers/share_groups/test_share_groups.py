"""The five requests about share groups, encoded and decoded: rights, the choice of the coordinator, feature levels, and the offsets of a
group."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.cluster_metadata import CONFIG_GROUP
from ottla.base.config import load
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.base.uuids import ZERO_UUID
from ottla.handlers.context import RequestContext
from ottla.handlers.share_groups import describe_share_group_offsets
from ottla.security.acl import AclOperation
from ottla.security.authorizer import AllowClients
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.fakes.peers import HeldPeers
from tests.handlers.admin_world import AdminWorld, DenyAll
from tests.scenarios.share_groups_world import World

READ, DELETE, DESCRIBE = AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE
T_ID = b"t".ljust(16, b"\0")
HIGH_WATERMARK, STABLE_END = 100, 60


class Partition:
    leader = object()

    def list_offset(self, _timestamp: int, isolation_level: int, _leader_epoch: int) -> tuple[int, int, int]:
        return -1, STABLE_END if isolation_level else HIGH_WATERMARK, 0


class BrokerWorld:
    """A broker whose group coordinator is that of the transcript tests. Topic t has 4 partitions; broker 7 leads the last one."""

    def __init__(self, authorizer: Any = None, *settings: str) -> None:
        self.groups = World()
        self.own: dict[str, str] = {}
        self.refusal: ErrorCode | None = None
        known = {"t": SimpleNamespace(topic_id=T_ID, partitions=[SimpleNamespace(leader=number) for number in (0, 0, 0, 7)])}
        self.peers = HeldPeers()
        self.admin = AdminWorld(authorizer=authorizer if authorizer is not None else AllowClients())
        self.closed: list[str] = []
        self.admin.broker = SimpleNamespace(
            broker_id=0,
            peers=self.peers,
            config=load(assignments=settings)[0],
            authorizer=self.admin.broker.authorizer,
            groups=SimpleNamespace(host_of=self._host_of),
            metadata=SimpleNamespace(topic=known.get, configs=lambda kind, _name: self.own if kind == CONFIG_GROUP else {}),
            partitions=SimpleNamespace(get=lambda _topic, index: Partition() if index < 3 else None),
            share_persister=self.groups.persister,
            share_partitions=SimpleNamespace(close_group=self._close_group),
        )

    def _close_group(self, group_id: str, done: Callable[[], object]) -> None:
        self.closed.append(group_id)
        done()

    def _host_of(self, _group_id: str) -> Any:
        if self.refusal is not None:
            raise ApiError(self.refusal)
        return self.groups.host

    def remember(self, partition: int, start: int, done: int, group: str = "g") -> None:
        key = SharePartitionKey(group, T_ID, partition)
        self.groups.persister.states[key] = ShareState(5, 2, start, done, (StateBatch(start, start, 2, 1),))


def beat(epoch: int = 3, topics: list[str] | None = None) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=epoch, subscribed_topic_names=topics)


def alter(topic: str = "t", group: str = "g") -> AlterShareGroupOffsetsRequest:
    partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=7)]
    return AlterShareGroupOffsetsRequest(
        group_id=group, topics=[AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    )


def forget(topic: str = "t", group: str = "g") -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic)])


def offsets(*topics: tuple[str, list[int]], group: str = "g") -> DescribeShareGroupOffsetsRequest:
    asked = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions) for name, partitions in topics]
    return DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked if topics else None)]
    )


def places(world: BrokerWorld, request: DescribeShareGroupOffsetsRequest, version: int = 1) -> list[tuple[str, int, int, int, int, int]]:
    group = world.admin.ask(request, version).groups[0]
    assert group.error_code == ErrorCode.NONE
    return [
        (topic.topic_name, one.partition_index, one.start_offset, one.leader_epoch, one.lag, one.error_code)
        for topic in group.topics
        for one in topic.partitions
    ]


def test_a_member_reports_and_is_described() -> None:
    world = BrokerWorld()
    world.groups.run("share a")
    answer = world.admin.ask(beat(topics=["t"]))
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (ErrorCode.NONE, 3, 5000)
    assert [(bytes(topic.topic_id), topic.partitions) for topic in answer.assignment.topic_partitions] == [(T_ID, [0, 1, 2, 3])]
    groups = world.admin.ask(ShareGroupDescribeRequest(group_ids=["g", "", "no"], include_authorized_operations=True)).groups
    assert [group.error_code for group in groups] == [ErrorCode.NONE, ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND]
    assert (groups[0].group_state, groups[0].assignor_name, groups[0].members[0].client_host) == ("Stable", "simple", "/test")
    assert groups[0].authorized_operations > 0 > groups[2].authorized_operations


def test_where_a_group_stands_and_how_much_is_before_it() -> None:
    world = BrokerWorld()
    world.groups.run("share a")
    world.remember(0, 40, 10)
    world.remember(1, 40, -1)
    expected = [("t", 0, 40, 2, 50, 0), ("t", 1, 40, 2, -1, 0), ("t", 2, -1, 0, -1, 0), ("t", 3, -1, 0, -1, 0)]
    assert places(world, offsets()) == expected, "lag is unknown where the count is, and where the group has not read"
    assert [place[4] for place in places(world, offsets(), version=0)] == [-1, -1, -1, -1]
    world.own["share.isolation.level"] = "read_committed"
    assert places(world, offsets(("t", [0])))[0][4] == STABLE_END - 40 - 10
    assert places(world, offsets(("t", [9]), ("u", [0]))) == [("t", 9, -1, 0, -1, 0), ("u", 0, -1, 0, -1, 0)]
    assert places(world, offsets(("t", [0]), group="no")) == [("t", 0, -1, 0, -1, 0)]
    assert places(world, offsets(group="no")) == []
    world.groups.persister.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert places(world, offsets(("t", [0]))) == [("t", 0, -1, 0, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)]


@pytest.mark.parametrize(("own", "isolation"), [({}, 0), ({"share.isolation.level": "read_committed"}, 1)])
def test_another_leader_is_asked_where_its_partition_ends(own: dict[str, str], isolation: int) -> None:
    world = BrokerWorld()
    world.own.update(own)
    world.groups.run("share a")
    for answer, lag in ((found_end(70), 20), (found_end(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), -1), (None, -1)):
        world.remember(3, 40, 10)
        request = RequestContext(1, "test", world.admin.connection)
        pending = describe_share_group_offsets.handle(world.admin.broker, request, offsets(("t", [3])))
        asked = world.peers.asked.pop()
        assert (asked.broker_id, asked.request) == (
            7,
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=3, timestamp=-1)])],
            ),
        )
        assert not pending.is_done
        asked.done(answer, 0 if answer is not None else ErrorCode.NETWORK_EXCEPTION)
        [one] = pending.response.groups[0].topics[0].partitions
        assert (one.start_offset, one.lag, one.error_code) == (40, lag, 0)


def found_end(offset: int, code: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(partition_index=3, offset=offset, error_code=code)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])


def test_offsets_are_altered_and_forgotten() -> None:
    world = BrokerWorld()
    answer = world.admin.ask(alter())
    assert [one.error_code for topic in answer.responses for one in topic.partitions] == [ErrorCode.NONE]
    assert places(world, offsets()) == [("t", 0, 7, 0, HIGH_WATERMARK - 7, 0)]
    answer = world.admin.ask(forget())
    assert [(bytes(topic.topic_id), topic.error_code) for topic in answer.responses] == [(T_ID, ErrorCode.NONE)]
    assert places(world, offsets()) == []
    assert world.closed == ["g", "g"], "the next fetch reads the stored state"
    for request in (alter(group=""), forget(group="")):
        assert world.admin.ask(request).error_code == ErrorCode.INVALID_GROUP_ID
    assert world.admin.ask(offsets(group="")).groups[0].error_code == ErrorCode.INVALID_GROUP_ID


ALL = (
    beat(),
    ShareGroupDescribeRequest(group_ids=["g"]),
    offsets(),
    alter(),
    forget(),
)


def codes(answer: Any) -> list[int]:
    return [group.error_code for group in answer.groups] if hasattr(answer, "groups") else [answer.error_code]


@pytest.mark.parametrize("request_", ALL, ids=lambda request: type(request).__name__)
def test_what_refuses_all(request_: Any) -> None:
    assert codes(BrokerWorld(DenyAll()).admin.ask(request_)) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    old = BrokerWorld(None, "ottla.advertise.level=4.1")
    assert codes(old.admin.ask(request_)) == [ErrorCode.UNSUPPORTED_VERSION]
    moved = BrokerWorld()
    moved.refusal = ErrorCode.NOT_COORDINATOR
    assert codes(moved.admin.ask(request_)) == [ErrorCode.NOT_COORDINATOR]


def test_topics_that_a_principal_may_not_see() -> None:
    world = BrokerWorld(DenyAll((DESCRIBE, "g"), (READ, "g"), (DELETE, "g")))
    world.groups.run("share a")
    assert world.admin.ask(beat(topics=["t"])).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    described = world.admin.ask(ShareGroupDescribeRequest(group_ids=["g"])).groups[0]
    assert (described.error_code, described.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert places(world, offsets()) == []
    assert places(world, offsets(("t", [0]))) == [("t", 0, -1, 0, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    world.groups.run("share a epoch=-1")
    altered = world.admin.ask(alter()).responses[0]
    assert (bytes(altered.topic_id), altered.partitions[0].error_code) == (ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert world.admin.ask(forget()).responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_nothing_asked_is_nothing_answered() -> None:
    world = BrokerWorld()
    assert world.admin.ask(ShareGroupDescribeRequest()).groups == world.admin.ask(DescribeShareGroupOffsetsRequest()).groups == []
