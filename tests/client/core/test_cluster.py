"""What a client does when brokers go: connections that broke while they were idle, leaders and coordinators that are gone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.addresses import Address
from ottla.client.core.cluster import GROUP, ClusterCore
from ottla.client.core.conversation import Ask, Conversation, Effect, Open
from ottla.client.core.operations import committed, create_topic, delete_records, describe_group, list_offsets
from ottla.client.errors import ConnectError, KafkaError
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribedGroup
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from ottla.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.client.core.drive import ByHand, FakeLink

PARTITIONS = [TopicPartition("t", number) for number in range(3)]


class Brokers:
    """Brokers that know offsets and coordinate groups; those in `cut` lose the connection with the next request."""

    def __init__(self) -> None:
        self.cut: list[str] = []
        self.coordinator = 3

    def __call__(self, ask: Ask) -> Any:
        link: Any = ask.link
        if link.address.host in self.cut:
            self.cut.remove(link.address.host)
            link.is_open = False
            raise ConnectError(f"{link.address} closed the connection")
        body: Any = ask.body
        if isinstance(body, ListOffsetsRequest):
            found = [ListOffsetsPartitionResponse(partition_index=one.partition_index, offset=7) for one in body.topics[0].partitions]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=found)])
        if isinstance(body, DeleteRecordsRequest):
            results = [DeleteRecordsPartitionResult(partition_index=0, low_watermark=7)]
            return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="t", partitions=results)])
        if isinstance(body, CreateTopicsRequest):
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="new")])
        if isinstance(body, ConsumerGroupDescribeRequest):
            return ConsumerGroupDescribeResponse(groups=[DescribedGroup(group_id="g", assignor_name="range")])
        if isinstance(body, FindCoordinatorRequest):
            where = Coordinator(key="g", node_id=self.coordinator, host=f"b{self.coordinator}", port=9092)
            return FindCoordinatorResponse(coordinators=[where])
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[])])


def ask_offsets(world: ByHand) -> list[int]:
    found = world.run(list_offsets(world.core, dict.fromkeys(PARTITIONS, -1)))
    return [found[partition].offset for partition in PARTITIONS]


def test_the_connections_to_all_brokers_may_have_broken_while_they_were_idle() -> None:
    brokers = Brokers()
    world = ByHand(brokers, leaders={"t": [1, 2, 3]})
    assert ask_offsets(world) == [7, 7, 7]
    brokers.cut = ["b1", "b2", "b3"]
    assert ask_offsets(world) == [7, 7, 7] and brokers.cut == []


def test_a_broker_that_always_hangs_up_is_not_asked_for_ever() -> None:
    brokers = Brokers()
    world = ByHand(brokers, leaders={"t": [1, 2, 3]})
    brokers.cut = ["b2"] * 100
    with pytest.raises(ConnectError, match="b2:9092 closed the connection"):
        ask_offsets(world)
    assert 90 < len(brokers.cut) < 100


def test_what_a_broker_led_and_coordinated_is_asked_for_again_when_it_is_gone() -> None:
    brokers = Brokers()
    world = ByHand(brokers, leaders={"t": [1, 2, 3]})
    assert ask_offsets(world) == [7, 7, 7]
    assert world.run(committed(world.core, "g")) == {}
    world.leaders, brokers.coordinator = {"t": [1, 2, 2]}, 2
    world.run(world.core.refresh([]))
    assert world.core.metadata.coordinators.get((GROUP, "g")) is None
    assert ask_offsets(world) == [7, 7, 7]
    assert world.run(committed(world.core, "g")) == {}
    assert world.core.metadata.coordinators[GROUP, "g"] == 2


class Few(ByHand):
    """Fewer brokers than the replicas of a new topic."""

    def metadata(self) -> MetadataResponse:
        found = super().metadata()
        found.topics = [MetadataResponseTopic(name="new", error_code=ErrorCode.INVALID_REPLICATION_FACTOR)]
        return found


def test_a_topic_that_cannot_be_created_by_writing_to_it_says_why() -> None:
    world = Few(Brokers())
    with pytest.raises(KafkaError, match=r"topic 'new' cannot be created: fewer brokers run than the brokers' default.replication.factor"):
        world.run(world.core.topic("new", auto_create=True))


class Dying(ByHand):
    """Broker 2 is the controller, unless it `is_dead`; then it refuses connections, and broker 3 is the controller."""

    is_dead = False

    def _perform(self, effect: Effect) -> Any:
        if self.is_dead and isinstance(effect, Open) and effect.address.host == "b2":
            raise ConnectError(f"cannot reach {effect.address}")
        return super()._perform(effect)

    def metadata(self) -> MetadataResponse:
        found = super().metadata()
        found.controller_id = 3 if self.is_dead else 2
        return found


@pytest.mark.parametrize(
    "call",
    [
        lambda core: list_offsets(core, {PARTITIONS[0]: -1}),
        lambda core: delete_records(core, {PARTITIONS[0]: 7}),
        lambda core: create_topic(core, "new"),
        lambda core: describe_group(core, "g"),
        lambda core: committed(core, "g"),
    ],
    ids=["list_offsets", "delete_records", "create_topic", "describe_group", "committed"],
)
def test_the_successors_of_a_broker_that_died_are_found(call: Callable[[ClusterCore], Conversation[Any]]) -> None:
    brokers = Brokers()
    brokers.coordinator = 2
    world = Dying(brokers, leaders={"t": [2]})
    world.run(call(world.core))
    for link in world.core._links.values():
        link.is_open = False  # type: ignore[misc]
    world.is_dead, world.leaders, brokers.coordinator = True, {"t": [3]}, 3
    with suppress(ConnectError):
        world.run(call(world.core))
    world.run(call(world.core))


def test_connections_that_are_refused_slowly_are_not_tried_beyond_the_deadline() -> None:
    """Each of twenty connections breaks after half a second; the deadline is one second."""

    def broken(_ask: Ask) -> Any:
        world.now_s += 0.5
        raise ConnectError("closed the connection")

    world = ByHand(broken, leaders={"t": [1]}, timeout_s=1.0)
    world.core._links = {Address(f"b{number}", 9092): FakeLink(Address(f"b{number}", 9092)) for number in range(20)}
    begin = world.now_s
    with pytest.raises(ConnectError):
        world.run(world.core.retrying(lambda: world.core.ask_broker(1, ListOffsetsRequest())))
    assert world.now_s - begin <= 1.5
