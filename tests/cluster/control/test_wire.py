"""The controller's messages, encoded and decoded: they arrive unchanged, in one part or many, and garbage is refused with an error code."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.cluster_metadata import BrokerMetadata, PartitionMetadata, TopicMetadata
from ottla.base.control_messages import ControlMessage, LeaderAndIsr, ReplicaRole, StoppedReplica, StopReplica, UpdateMetadata
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import INTERNAL_TOPICS
from ottla.cluster.control.inbox import ControlInbox
from ottla.cluster.control.receiver import ControlReceiver
from ottla.cluster.control.wire import ControlRequest, MessageParts, control_requests
from ottla.cluster.metadata_cache import MetadataCache
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from tests.controller.cluster import RecordingReplicas
from tests.wire.samples import sample

SENDER: dict[str, Any] = {"controller_id": 3, "controller_epoch": 7, "broker_epoch": 1 << 40}
REQUESTS: list[type[ControlRequest]] = [LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest]

ids = st.integers(0, 0x7FFFFFFF)
some_ids = st.lists(ids, max_size=4, unique=True).map(tuple)
names = st.one_of(st.sampled_from(sorted(INTERNAL_TOPICS)), st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True))
topic_ids = st.binary(min_size=16, max_size=16).filter(any)
configs = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)


def partitions(index: st.SearchStrategy[int]) -> st.SearchStrategy[PartitionMetadata]:
    return st.builds(
        PartitionMetadata, index=index, leader=st.one_of(st.just(-1), ids), leader_epoch=ids, replicas=some_ids, isr=some_ids,
        offline_replicas=some_ids, partition_epoch=ids, controller_epoch=ids, adding_replicas=some_ids, removing_replicas=some_ids,
        eligible=some_ids, last_leader=st.one_of(st.just(-1), ids),
    )  # fmt: skip


@st.composite
def topics(draw: st.DrawFn) -> TopicMetadata:
    name = draw(names)
    found = tuple(draw(partitions(st.just(index))) for index in range(draw(st.integers(0, 5))))
    return TopicMetadata(
        name=name, topic_id=draw(topic_ids), partitions=found, configs=draw(configs), is_internal=name in INTERNAL_TOPICS, version=draw(ids)
    )


brokers = st.builds(
    BrokerMetadata, broker_id=ids, rack=st.one_of(st.none(), st.text(max_size=5)), epoch=ids, is_clean=st.booleans(),
    endpoints=st.dictionaries(st.text(max_size=5), st.tuples(st.text(max_size=5), st.integers(0, 65_535)), max_size=3),
)  # fmt: skip
roles = st.builds(ReplicaRole, topic=names, topic_id=topic_ids, partition=partitions(ids), is_new=st.booleans(), configs=configs)
stopped = st.builds(StoppedReplica, topic=names, topic_id=topic_ids, partition=ids, leader_epoch=ids, is_deleted=st.booleans())
messages = st.one_of(
    st.builds(
        LeaderAndIsr,
        states=st.lists(roles, max_size=6),
        is_complete=st.booleans(),
        **{key: st.just(value) for key, value in SENDER.items()},
    ),
    st.builds(StopReplica, stopped=st.lists(stopped, max_size=6), **{key: st.just(value) for key, value in SENDER.items()}),
    st.builds(
        UpdateMetadata,
        topics=st.lists(topics(), max_size=4, unique_by=(lambda topic: topic.name, lambda topic: topic.topic_id)),
        brokers=st.lists(brokers, max_size=3, unique_by=lambda broker: broker.broker_id),
        removed=st.lists(st.tuples(names, topic_ids), max_size=4),
        is_complete=st.booleans(),
        **{key: st.just(value) for key, value in SENDER.items()},
    ),
)


def over_the_wire(request: ControlRequest) -> ControlRequest:
    version = type(request).VERSIONS[1]
    data = encoder(type(request), version)(request)
    decoded, end = decoder(type(request), version)(memoryview(data), 0)
    assert end == len(data)
    return decoded  # type: ignore[no-any-return]


@given(messages, st.sampled_from([1, 300, 1 << 20]))
def test_a_message_arrives_as_it_was_in_one_part_or_many(message: ControlMessage, part_bytes_max: int) -> None:
    parts = MessageParts()
    requests = list(map(over_the_wire, control_requests(message, 5, part_bytes_max)))
    for request in requests:
        parts.add(request)
    assert parts.message(requests[-1]) == message
    assert [request.part for request in requests] == list(range(len(requests)))
    assert [request.has_more_parts for request in requests] == [True] * (len(requests) - 1) + [False]
    assert {request.sequence for request in requests} == {5}


def large_metadata(count: int) -> UpdateMetadata:
    found = tuple(
        PartitionMetadata(index=index, leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=9)
        for index in range(count)
    )
    wide = TopicMetadata(name="wide", topic_id=b"\1" * 16, partitions=found, configs={"a": "b"})
    small = [TopicMetadata(name=f"small-{n}", topic_id=n.to_bytes(16, "big"), partitions=found[:1]) for n in range(1, 100)]
    removed = [(f"gone-{n}", bytes(15) + b"\7") for n in range(99)]
    return UpdateMetadata(topics=[wide, *small], brokers=[], is_complete=True, removed=removed, **SENDER)


@pytest.mark.parametrize("bytes_max", [20_000, 100_000])
def test_the_parts_of_a_large_message_stay_below_the_bound(bytes_max: int) -> None:
    requests = list(control_requests(large_metadata(3_000), 1, bytes_max))
    sizes = [len(encoder(UpdateMetadataRequest, 8)(request)) for request in requests]
    assert len(sizes) > 2 and max(sizes) <= bytes_max
    assert sum(sizes) > len(sizes) * bytes_max / 8, "parts are not needlessly small"


@given(st.sampled_from(REQUESTS), st.integers(0, 1 << 32))
def test_garbage_is_refused_by_a_code_or_carried_out(cls: type[ControlRequest], seed: int) -> None:
    """Whatever a peer sends, no assertion and no other exception follows, and the metadata cache stays consistent."""
    random = Random(seed)
    cache = MetadataCache()
    receiver = ControlReceiver(
        metadata=cache, replicas=RecordingReplicas(), broker_epoch=lambda: 0, on_broker_configs=lambda: None, on_roles_taken=lambda: None
    )
    inbox, answers = ControlInbox(receiver), list[ErrorCode]()
    inbox.take(next(control_requests(large_metadata(3), 0)), answers.append)
    for _ in range(3):
        request = sample(cls, cls.VERSIONS[1], random)
        request.controller_epoch, request.broker_epoch, request.sequence, request.part = 8, 1, -1, 0
        inbox.take(request, answers.append)
    assert len(answers) == 4
    for topic in cache.topics():
        assert cache.topic_by_id(topic.topic_id) == topic
        assert [partition.index for partition in topic.partitions] == list(range(len(topic.partitions)))
    assert cache.partition_count == sum(len(topic.partitions) for topic in cache.topics())


def metadata_request(**fields: Any) -> UpdateMetadataRequest:
    request = over_the_wire(next(control_requests(large_metadata(2), 1)))
    assert isinstance(request, UpdateMetadataRequest)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def test_what_no_controller_sends_is_refused() -> None:
    wrong: list[ControlRequest] = [metadata_request(controller_epoch=-1), metadata_request(controller_id=-5)]
    for name, value in (("topic_name", "../../etc"), ("topic_name", ""), ("topic_name", "small-1"), ("topic_id", bytes(16))):
        request = metadata_request()
        setattr(request.topic_states[0], name, value)
        wrong.append(request)
    same_id = metadata_request()
    same_id.topic_states[0].topic_id = same_id.topic_states[1].topic_id
    wrong.append(same_id)
    for name, number in (("partition_index", 1), ("partition_index", -1), ("leader", -7), ("replicas", [-1])):
        request = metadata_request()
        setattr(request.topic_states[0].partition_states[0], name, number)
        wrong.append(request)
    for request in wrong:
        with pytest.raises(ApiError) as refusal:
            MessageParts().add(request)
        assert refusal.value.code is ErrorCode.INVALID_REQUEST
