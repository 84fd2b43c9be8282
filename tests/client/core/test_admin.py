"""Topics are described page by page, and a broker whose pages lead nowhere is not asked for ever. Lost answers are no errors."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.acls import AclOperation, ResourceType
from ottla.base.errors import ApiError, ErrorCode
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.acl_admin import allowed_operations
from ottla.client.core.admin import create_partitions, create_topic, delete_topics, describe_topics
from ottla.client.core.conversation import Ask
from ottla.client.errors import ConnectError
from ottla.wire.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tests.client.core.drive import ByHand
from tests.client.fake_broker import FakeBroker, HangUp

KEY = DescribeTopicPartitionsRequest.API_KEY
CREATE, DELETE = 19, 20
COORDINATOR, GROUPS = 10, 15


def page(topic: str, *indexes: int, following: tuple[str, int] | None = None, code: int = 0) -> DescribeTopicPartitionsResponse:
    partitions = [DescribeTopicPartitionsResponsePartition(partition_index=index, eligible_leader_replicas=[index]) for index in indexes]
    described = DescribeTopicPartitionsResponseTopic(name=topic, error_code=code, partitions=partitions)
    cursor = None if following is None else Cursor(topic_name=following[0], partition_index=following[1])
    return DescribeTopicPartitionsResponse(topics=[described], next_cursor=cursor)


def test_pages_are_joined_and_name_only_the_topics_that_are_left() -> None:
    pages = iter(
        [page("a", 0, 1, following=("a", 2)), page("a", 2, following=("b", 0)), page("b", code=3, following=("c", 0)), page("c", 0)]
    )
    with FakeBroker({KEY: lambda _body, _version: next(pages)}) as broker, Cluster(broker.address) as cluster:
        found = describe_topics(cluster, ["c", "a", "b"])
        asked = [([topic.name for topic in body.topics], body.cursor and body.cursor.partition_index) for body in broker.asked(KEY)]
    assert asked == [(["a", "b", "c"], None), (["a", "b", "c"], 2), (["b", "c"], 0), (["c"], 0)]
    assert {name: [part.eligible_leader_replicas for part in topic.partitions] for name, topic in found.items()} == {
        "a": [[0], [1], [2]],
        "c": [[0]],
    }


def test_a_topic_that_may_not_be_described_is_an_error() -> None:
    script: dict[int, Any] = {KEY: lambda _body, _version: page("a", code=29)}
    with FakeBroker(script) as broker, Cluster(broker.address) as cluster, pytest.raises(ApiError, match="'a'") as caught:
        describe_topics(cluster, ["a"])
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("following", [("a", 1), ("a", 0)])
def test_pages_that_go_in_a_circle_end(following: tuple[str, int]) -> None:
    pages = iter([page("a", 0, following=("a", 1)), page("a", 1, following=following)])
    goes_back = pytest.raises(ApiError, match="repeats a page of topics")
    with FakeBroker({KEY: lambda _body, _version: next(pages)}) as broker, Cluster(broker.address) as cluster, goes_back:
        describe_topics(cluster, ["a"])


def test_no_topics_are_no_request_and_a_broker_that_is_too_old_says_so() -> None:
    script: dict[int, Any] = {KEY: lambda _body, _version: page("a")}
    with FakeBroker(script) as broker, Cluster(broker.address) as cluster:
        assert describe_topics(cluster, []) == {} and broker.asked(KEY) == []
    with FakeBroker({}) as broker, Cluster(broker.address) as cluster, pytest.raises(ApiError) as caught:
        describe_topics(cluster, ["a"])
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


class Topics(FakeBroker):
    """A broker that creates and deletes topics, and closes the connection after the first of these requests took effect."""

    def __init__(self) -> None:
        super().__init__({CREATE: self._create, DELETE: self._delete})
        self.has_lost = False

    def _lose_first(self) -> None:
        if not self.has_lost:
            self.has_lost = True
            raise HangUp

    def _create(self, body: Any, _version: int) -> CreateTopicsResponse:
        (topic,) = body.topics
        exists = topic.name in self.topics
        self.topics.setdefault(topic.name, topic.num_partitions)
        self._lose_first()
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name, error_code=36 if exists else 0)])

    def _delete(self, body: Any, _version: int) -> DeleteTopicsResponse:
        (topic,) = body.topics
        exists = self.topics.pop(topic.name, None)
        self._lose_first()
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=topic.name, error_code=0 if exists else 3)])


def test_a_topic_that_a_lost_request_has_made_or_deleted_is_no_error() -> None:
    with Topics() as broker, Cluster(broker.address) as cluster:
        create_topic(cluster, "t", partitions=3)
        assert broker.topics == {"t": 3} and broker.has_lost
        with pytest.raises(ApiError, match="TOPIC_ALREADY_EXISTS"):
            create_topic(cluster, "t", partitions=3)
        broker.has_lost = False
        assert delete_topics(cluster, ["t"]) == {"t": None} and broker.topics == {}
        assert delete_topics(cluster, ["t"])["t"] is not None
        broker.topics["other"], broker.has_lost = 1, False
        with pytest.raises(ApiError, match="TOPIC_ALREADY_EXISTS"):  # somebody else's: it has other partitions
            create_topic(cluster, "other", partitions=3)


def test_a_check_made_no_topic_although_its_answer_was_lost() -> None:
    with Topics() as broker, Cluster(broker.address) as cluster:
        broker.topics["t"] = 3
        with pytest.raises(ApiError, match="TOPIC_ALREADY_EXISTS"):
            create_topic(cluster, "t", partitions=3, validate_only=True)
        assert broker.has_lost


@pytest.mark.parametrize("validate_only", [False, True])
def test_partitions_that_a_lost_request_has_added_are_no_error(validate_only: bool) -> None:
    leaders = {"t": [1]}
    lost = iter([True])

    def answer(ask: Ask) -> CreatePartitionsResponse:
        body: Any = ask.body
        (topic,) = body.topics
        code = 0 if topic.count > len(leaders["t"]) else ErrorCode.INVALID_PARTITIONS
        leaders["t"] = [1] * topic.count
        if next(lost, False):
            raise ConnectError("lost")
        return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t", error_code=code)])

    world = ByHand(answer, leaders=leaders)
    if validate_only:  # a check adds nothing, so these partitions are somebody else's
        with pytest.raises(ApiError, match="INVALID_PARTITIONS"):
            world.run(create_partitions(world.core, "t", 3, validate_only=True))
        return
    world.run(create_partitions(world.core, "t", 3))
    with pytest.raises(ApiError, match="INVALID_PARTITIONS"):
        world.run(create_partitions(world.core, "t", 3))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (ErrorCode.NONE, [AclOperation.READ]),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, []),
        (ErrorCode.GROUP_ID_NOT_FOUND, None),
        (ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_the_allowed_operations_of_a_group_or_why_there_are_none(code: ErrorCode, found: list[AclOperation] | ErrorCode | None) -> None:
    group = DescribedGroup(error_code=code, group_id="g", authorized_operations=0 if code else 1 << AclOperation.READ)
    with FakeBroker({GROUPS: lambda _body, _version: DescribeGroupsResponse(groups=[group])}) as broker:
        broker.script[COORDINATOR] = broker.coordinator
        broker.versions[COORDINATOR] = (0, 4)
        with Cluster(broker.address) as cluster:
            if isinstance(found, ErrorCode):
                with pytest.raises(ApiError) as refusal:
                    allowed_operations(cluster, ResourceType.GROUP, "g")
                assert refusal.value.code is found
            else:
                assert allowed_operations(cluster, ResourceType.GROUP, "g") == found
