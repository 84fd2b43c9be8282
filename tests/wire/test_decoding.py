"""Decoding of hostile bytes: each refusal names the field, no stated length alone causes an allocation, and tagged fields follow the
protocol's rules."""

from __future__ import annotations

import tracemalloc
from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from ottla.base.errors import WireError
from ottla.wire import decoding
from ottla.wire.codec import bounded_decoder, decoder, encoder, step_decoder
from ottla.wire.decoding import compile_decoder, holds_records
from ottla.wire.messages import describe_producers
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.group_records import ConsumerGroupMemberMetadataValue
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from ottla.wire.schema import Message
from tests.wire.samples import all_messages, sample


def check_refused(cls: type[Message], version: int, frame: str, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decoder(cls, version)(bytes.fromhex(frame), 0)


def test_nulls_where_none_is_allowed() -> None:
    check_refused(HeartbeatRequest, 4, "00 00000001 026d 00 00", "group_id may not be null")
    check_refused(HeartbeatRequest, 3, "ffff 00000001 00016d ffff", "group_id may not be null")
    check_refused(MetadataRequest, 0, "ffffffff", "topics may not be null")
    check_refused(ProduceRequest, 9, "00 0001 00000001 00 00", "topic_data may not be null")
    check_refused(MetadataRequest, 9, "02 00 00 01 00 00 00", "name may not be null")
    check_refused(FetchRequest, 12, "00" * 37, "may not be null")


def test_lengths_below_null() -> None:
    check_refused(HeartbeatRequest, 3, "fffe 00000001 00016d ffff", "group_id may not be null")
    check_refused(HeartbeatRequest, 3, "000167 00000001 00016d fffe", "group_instance_id has length -2; the only negative length is -1")
    check_refused(MetadataRequest, 1, "fffffffe", "topics has length -2; the only negative length is -1")
    check_refused(ProduceRequest, 3, "ffff 0001 00000001 00000001 000174 00000001 00000000 fffffffe", "records has length -2")


def test_lengths_beyond_the_frame() -> None:
    check_refused(HeartbeatRequest, 3, "7fff 67", "a HeartbeatRequest")
    check_refused(HeartbeatRequest, 4, "7f 67", "not a HeartbeatRequest")
    check_refused(
        ProduceRequest, 3, "ffff 0001 00000001 00000001 000174 00000001 00000000 7fffffff", "the frame ends inside a ProduceRequest"
    )
    check_refused(JoinGroupRequest, 5, "000167 00000000 00000000 00016d ffff 000163 00000001 000170 7fffffff", "the frame ends inside")
    check_refused(HeartbeatRequest, 4, "0267 00000001 02", "not a HeartbeatRequest")


def test_counts_beyond_the_frame() -> None:
    check_refused(MetadataRequest, 1, "7fffffff", "topics claims 2147483647 elements, which do not fit")
    check_refused(MetadataRequest, 9, "ffffffff0f 00 00 00", "topics claims 4294967294 elements")
    check_refused(WriteTxnMarkersRequest, 1, "02 0000000000000001 0001 01 02 0274 06 00000000 00", "partition_indexes claims 5 elements")


def test_varints_and_strings_that_are_too_long() -> None:
    check_refused(HeartbeatRequest, 4, "ffffffffff01" + "00" * 40, "more than 32 bits")
    check_refused(HeartbeatRequest, 4, "81800200" + "61" * 40, "longer than 32767")
    check_refused(HeartbeatRequest, 4, "80", "not a HeartbeatRequest")


def test_text_that_is_not_utf_8() -> None:
    check_refused(HeartbeatRequest, 3, "0001ff 00000001 00016d ffff", "not a HeartbeatRequest: 'utf-8' codec")
    check_refused(ProduceRequest, 9, "03c328 0001 00000001 01 00", "not a ProduceRequest: 'utf-8' codec")


# ApiVersionsResponse 3 with no APIs: error, empty array, throttle time; then its tags 0 (features), 1 (epoch), 2, 3
TAGS = "0000 01 00000000 "


def test_known_tags_are_read_and_unknown_ones_skipped() -> None:
    frame = bytes.fromhex(TAGS + "04 00 08 02 0266 0001 0003 00 01 08 0000000000000007 03 01 01 8f01 03 aabbcc")
    message, end = decoder(ApiVersionsResponse, 3)(frame, 0)
    assert end == len(frame)
    assert message.supported_features[0].max_version == 3
    assert (message.finalized_features_epoch, message.finalized_features, message.zk_migration_ready) == (7, [], True)


def test_broken_tags() -> None:
    check_refused(ApiVersionsResponse, 3, TAGS + "02 01 08 0000000000000007 00 01 01", "tag 0 stands after tag 1")
    check_refused(ApiVersionsResponse, 3, TAGS + "02 03 01 01 03 01 01", "tag 3 stands after tag 3")
    check_refused(ApiVersionsResponse, 3, TAGS + "01 09 05 aa", "tag 9 claims 5 bytes, the frame has 1 more")
    check_refused(ApiVersionsResponse, 3, TAGS + "01 03 02 01 00", "zk_migration_ready does not fill")
    check_refused(ApiVersionsResponse, 3, TAGS + "01 01 07 0000000000000007", "finalized_features_epoch does not fill")
    check_refused(HeartbeatRequest, 4, "0267 00000001 026d 00 02 05 00 05 00", "tag 5 stands after tag 5")
    check_refused(HeartbeatRequest, 4, "0267 00000001 026d 00 ffffffff0f", "a section of 4294967295 tags")


def test_many_tags_are_counted_by_a_long_varint() -> None:
    tags = b"".join(bytes([0x80 | tag & 127, tag >> 7, 0]) for tag in range(128, 328))
    frame = bytes.fromhex(TAGS) + b"\xc8\x01" + tags
    assert decoder(ApiVersionsResponse, 3)(frame, 0) == (ApiVersionsResponse(), len(frame))


def test_more_tags_than_any_message_has_are_refused() -> None:
    """Formerly two million tags in a header or a struct took a second."""
    tags = b"".join(bytes([0x80 | tag & 127, tag >> 7, 0]) for tag in range(128, 1129))
    count = b"\xe9\x07"
    check_refused(ApiVersionsResponse, 3, TAGS + (count + tags).hex(), "a section of 1001 tags")
    check_refused(HeartbeatRequest, 4, "0267 00000001 026d 00 " + (count + tags).hex(), "a section of 1001 tags")


def test_null_structs_in_line_and_in_a_tag() -> None:
    request = StreamsGroupHeartbeatRequest(user_endpoint=None)
    assert decoder(StreamsGroupHeartbeatRequest, 0)(encoder(StreamsGroupHeartbeatRequest, 0)(request), 0)[0] == request
    member = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert decoder(ConsumerGroupMemberMetadataValue, 0)(encoder(ConsumerGroupMemberMetadataValue, 0)(member), 0)[0] == member


def test_records_are_a_slice_of_the_frame() -> None:
    frame = bytearray.fromhex("00 0001 00000001 02 0274 02 00000000 04 616263 00 00 00")
    message, _ = decoder(ProduceRequest, 9)(frame, 0)
    records = message.topic_data[0].partition_data[0].records
    assert type(records) is memoryview
    frame[frame.index(b"abc")] = ord("x")
    assert bytes(records) == b"xbc"


@pytest.mark.parametrize("size", [1, 126, 127, 128, 16382, 16383, 16384, 2_100_000])
def test_records_of_every_length_of_a_length(size: int) -> None:
    partition = PartitionProduceData(records=bytes(size))
    message = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    assert decoder(ProduceRequest, 9)(encoder(ProduceRequest, 9)(message), 0)[0] == message


def test_only_messages_with_records_are_read_from_views() -> None:
    assert holds_records(FetchResponse, 4)
    assert holds_records(ProduceRequest, 13)
    assert not holds_records(FetchRequest, 13)
    assert not holds_records(MetadataResponse, 12)


def test_claims_allocate_nothing() -> None:
    """The message states as many elements as the frame could have, but has none of them."""
    frame = bytes.fromhex("000f4240") + bytes.fromhex("7fff") * 600_000
    decode = decoder(MetadataRequest, 0)
    tracemalloc.start()
    with pytest.raises(WireError):
        decode(frame, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * len(frame)


# The bound on the objects of large messages


def test_the_other_forms_read_the_same() -> None:
    random = Random(1)
    for cls in all_messages():
        version = cls.VERSIONS[1]
        message = sample(cls, version, random)
        encoded = encoder(cls, version)(message)
        expected = (message, len(encoded))
        assert compile_decoder(cls, version, objects_max=1000)(encoded, 0) == expected
        assert bounded_decoder(cls, version, 2000)(encoded, 0) == expected
        read, end = finished(step_decoder(cls, version)(memoryview(encoded), 0))
        assert (read, end) == expected


def finished(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as over:
            return over.value


def test_numbers_count_against_the_bound_and_come_in_steps() -> None:
    """Fixed-width arrays: two million numbers in 8 MB were 1.2 GiB of objects."""
    topic = describe_producers.TopicRequest(name="t", partition_indexes=list(range(100_000)))
    request = describe_producers.DescribeProducersRequest(topics=[topic])
    encoded = memoryview(encoder(describe_producers.DescribeProducersRequest, 0)(request))
    assert len(list(step_decoder(describe_producers.DescribeProducersRequest, 0)(encoded, 0))) > 4
    with pytest.raises(decoding.ManyObjects):
        bounded_decoder(describe_producers.DescribeProducersRequest, 0, 2000)(encoded, 0)
    with pytest.raises(WireError, match="partition_indexes claims 100000"):
        compile_decoder(describe_producers.DescribeProducersRequest, 0, objects_max=20_000)(bytes(encoded), 0)


def test_many_objects_come_in_steps() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=str(number)) for number in range(5000)])
    steps = step_decoder(MetadataRequest, 12)(memoryview(encoder(MetadataRequest, 12)(request)), 0)
    assert sum(1 for _ in steps) >= 5000 // decoding.ELEMENTS_PER_STEP


def test_more_elements_than_a_message_may_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "OBJECTS_MAX", 20)
    decode = compile_decoder(MetadataRequest, 1)
    assert len(decode(bytes.fromhex("00000014") + bytes.fromhex("000174") * 20, 0)[0].topics) == 20
    with pytest.raises(WireError, match="topics claims 21 elements; with them the message has more objects"):
        decode(bytes.fromhex("00000015") + bytes.fromhex("000174") * 21, 0)


def test_nested_elements_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "OBJECTS_MAX", 20)
    decode = compile_decoder(FetchRequest, 12)

    def two_topics(partitions: int) -> FetchRequest:
        return FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()] * partitions) for _ in range(2)])

    request = two_topics(9)
    assert decode(encoder(FetchRequest, 12)(request), 0)[0] == request
    with pytest.raises(WireError, match="partitions claims 10 elements; with them"):
        decode(encoder(FetchRequest, 12)(two_topics(10)), 0)
