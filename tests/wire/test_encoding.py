"""Encoding of messages: the values that are refused, and the fields that are not written."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest

from ottla.base.errors import ApiError
from ottla.wire.codec import decoder, element_writer, encoder, spliced_writer, step_writer
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData, ReplicaState
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.primitives import uvarint
from ottla.wire.schema import Message, StructType
from tests.wire.samples import all_messages, sample


def check_refused(message: Message, version: int, reason: str) -> None:
    with pytest.raises(ApiError, match=reason):
        encoder(type(message), version)(message)


def test_a_value_without_a_place_is_refused_and_one_at_its_default_is_not() -> None:
    check_refused(
        HeartbeatRequest(group_id="g", group_instance_id="i"), 2, "UNSUPPORTED_VERSION.*HeartbeatRequest version 2 .* group_instance_id"
    )
    check_refused(OffsetFetchRequest(groups=[OffsetFetchRequestGroup()]), 7, "groups")
    check_refused(FetchRequest(replica_state=ReplicaState(replica_id=1)), 14, "replica_state")
    assert encoder(FetchRequest, 14)(FetchRequest(replica_state=ReplicaState())) == encoder(FetchRequest, 14)(FetchRequest())


def test_a_value_inside_an_element_is_refused_too() -> None:
    partition = PartitionData(diverging_epoch=EpochEndOffset(epoch=3))
    check_refused(
        FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 11, "PartitionData version 11 .* diverging_epoch"
    )


def test_an_ignorable_value_without_a_place_is_dropped() -> None:
    message = ApiVersionsResponse(throttle_time_ms=9, finalized_features_epoch=4)
    assert encoder(ApiVersionsResponse, 0)(message) == bytes(6)


def test_null_is_refused_by_versions_that_have_none() -> None:
    check_refused(MetadataRequest(topics=None), 0, "null topics")
    check_refused(OffsetFetchRequest(topics=None), 1, "null topics")
    with pytest.raises(AssertionError, match="may not be null"):
        encoder(HeartbeatRequest, 4)(HeartbeatRequest(group_id=None))  # type: ignore[arg-type]


def test_numbers_out_of_range_are_a_bug_that_shows() -> None:
    with pytest.raises(struct.error):
        encoder(HeartbeatRequest, 4)(HeartbeatRequest(generation_id=2**31))


def test_tagged_fields_are_written_in_the_order_of_their_tags_and_only_when_set() -> None:
    request = BrokerHeartbeatRequest(cordoned_log_dirs=[], offline_log_dirs=[b"0123456789abcdef"])
    head = "00000000 ffffffffffffffff 0000000000000000 00 00"
    assert encoder(BrokerHeartbeatRequest, 2)(request) == bytes.fromhex(head + "02 00 11 02") + b"0123456789abcdef" + b"\x01\x01\x01"
    assert encoder(BrokerHeartbeatRequest, 2)(BrokerHeartbeatRequest()) == bytes.fromhex(head + "00")


@pytest.mark.parametrize("version", [1, 12])
@pytest.mark.parametrize("length", [0, 1, 2, 126, 127, 128, 129, 16383, 16384, 20000])
def test_arrays_of_fixed_width_at_the_edges_of_their_counts(version: int, length: int) -> None:
    partition = MetadataResponsePartition(leader_id=7, replica_nodes=list(range(length)), isr_nodes=[1, 2, 3])
    message = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])])
    encoded = encoder(MetadataResponse, version)(message)
    count = uvarint(length + 1) if version == 12 else struct.pack(">i", length)
    assert count + struct.pack(f">{length}i", *range(length)) in encoded
    assert decoder(MetadataResponse, version)(encoded, 0)[0] == message


def test_strings_beyond_the_protocols_limit_are_refused() -> None:
    encoder(HeartbeatRequest, 4)(HeartbeatRequest(group_id="x" * 32767))
    for version in (3, 4):
        check_refused(HeartbeatRequest(group_id="x" * 32768), version, "INVALID_REQUEST")


def test_a_message_without_fields_in_a_version_is_empty() -> None:
    assert encoder(ApiVersionsResponse, 0)(ApiVersionsResponse()) == bytes(6)
    assert encoder(AssignReplicasToDirsRequest, 0)(AssignReplicasToDirsRequest()) == bytes.fromhex("00000000 ffffffffffffffff 01 00")


def test_the_forms_in_steps_write_the_same() -> None:
    random = Random(2)
    for cls in all_messages():
        version = cls.VERSIONS[1]
        message = sample(cls, version, random)
        encoded = encoder(cls, version)(message)
        parts: list[Any] = []
        out: list[Any] = []
        assert list(step_writer(cls, version)(message, parts, out))
        assert b"".join(out + parts) == encoded
        for field in cls.__fields__:
            elements = getattr(message, field.name)
            if not field.is_in(version) or field.is_tagged(version) or not isinstance(field.of, StructType) or not elements:
                continue
            if field.kind != "array":
                continue
            written: list[Any] = []
            assert list(element_writer(cls, version, field.name)(elements, written))
            setattr(message, field.name, [])
            spliced: list[Any] = []
            spliced_writer(cls, version, field.name)(message, len(elements), written, spliced)
            assert b"".join(spliced) == encoded, field.name
            setattr(message, field.name, elements)
