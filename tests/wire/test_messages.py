"""Every message in every version: round trips, comparisons with an independent codec (kio) and with bytes made by Kafka's own classes, and
damaged frames."""

from __future__ import annotations

import datetime
import enum
import importlib
import re
import uuid
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.base.errors import WireError
from ottla.wire.apis import APIS
from ottla.wire.codec import decoder, encoder, encoder_parts
from ottla.wire.messages import attach_records, produce, stage_records
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue, OffsetCommitValue
from ottla.wire.messages.headers import RequestHeader
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.transaction_records import TransactionLogValue
from ottla.wire.schema import Data, Field, Message, Request, Response, Struct, StructType
from tests.wire.samples import all_messages, message_versions, sample, versions

MESSAGES = all_messages()
messages = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


def test_every_api_has_its_two_messages_and_nothing_is_lost() -> None:
    kinds = [cls.__mro__[1].__name__ for cls in MESSAGES]
    assert {cls.API_KEY for cls in MESSAGES if issubclass(cls, Request)} == set(APIS)
    assert {cls.API_KEY for cls in MESSAGES if issubclass(cls, Response)} == set(APIS)
    assert {kind: kinds.count(kind) for kind in kinds} == {"Request": 100, "Response": 100, "Data": 14, "RecordKey": 25, "RecordValue": 25}


@messages
def test_samples_of_every_version_survive_a_round_trip(cls: type[Message]) -> None:
    random = Random(cls.__name__)
    for version in versions(cls):
        for _ in range(4):
            message = sample(cls, version, random)
            encoded = encoder(cls, version)(message)
            assert decoder(cls, version)(encoded, 0) == (message, len(encoded))
            assert decoder(cls, version)(memoryview(b"\xff\xff" + encoded), 2) == (message, len(encoded) + 2)
            assert b"".join(encoder_parts(cls, version)(message)) == encoded


@given(st.sampled_from(message_versions()), st.randoms(use_true_random=False))
def test_any_message_survives_a_round_trip(of: tuple[type[Message], int], random: Random) -> None:
    cls, version = of
    message = sample(cls, version, random)
    encoded = encoder(cls, version)(message)
    assert decoder(cls, version)(encoded, 0) == (message, len(encoded))


@messages
def test_defaults_survive_a_round_trip(cls: type[Message]) -> None:
    for version in versions(cls):
        encoded = encoder(cls, version)(cls())
        assert decoder(cls, version)(encoded, 0) == (cls(), len(encoded))


# Damage


@messages
def test_every_truncation_is_a_wire_error(cls: type[Message]) -> None:
    random = Random(cls.__name__)
    for version in versions(cls):
        encoded = encoder(cls, version)(sample(cls, version, random))
        decode = decoder(cls, version)
        cuts = range(len(encoded)) if len(encoded) < 40 else sorted(random.sample(range(len(encoded)), 30))
        for cut in cuts:
            with pytest.raises(WireError):
                decode(encoded[:cut], 0)


@messages
def test_flipped_bytes_are_a_wire_error_or_another_message(cls: type[Message]) -> None:
    random = Random(cls.__name__)
    for version in versions(cls):
        decode, encode = decoder(cls, version), encoder(cls, version)
        for _ in range(8):
            encoded = bytearray(encode(sample(cls, version, random)))
            if not encoded:
                break
            for _ in range(random.choice((1, 1, 3))):
                encoded[random.randrange(len(encoded))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            try:
                message, end = decode(encoded, 0)
            except WireError:
                continue
            assert end <= len(encoded)
            again = encode(message)
            assert encode(decode(again, 0)[0]) == again


@given(st.sampled_from(message_versions()), st.binary(max_size=300))
def test_junk_is_a_wire_error_or_a_message(of: tuple[type[Message], int], junk: bytes) -> None:
    cls, version = of
    try:
        message, end = decoder(cls, version)(junk, 0)
    except WireError:
        return
    assert isinstance(message, cls)
    assert end <= len(junk)


# Comparison with an independent codec


def judged_versions(cls: type[Message]) -> list[tuple[int, str]]:
    """Returns the versions of a message that kio has, with the import paths of kio's classes."""
    kind = EntityType.request if issubclass(cls, Request) else EntityType.response if issubclass(cls, Response) else EntityType.data
    name = re.sub("(Request|Response)$", "", cls.__name__)
    name = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("KRaft", "K_Raft")).lower()
    found = []
    for version in versions(cls):
        paths: dict[Any, str] = dict(schema_name_map.get(name, {}).get(version, {}))
        if kind in paths:
            found.append((version, paths[kind]))
    return found


def judge_at(path: str) -> type[Any]:
    """Imports a class of kio."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def plain(value: Any) -> Any:
    """Converts a value of kio's richer types to the number or bytes that are sent."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return [plain(getattr(value, name)) for name in value.__dataclass_fields__ if not name.startswith("__")]
    return value


def is_ours(field: Field) -> bool:
    """Whether a field is a tagged field of our own. kio refuses such fields; only our own brokers and tools get them. Kafka's own tags have
    small numbers."""
    return field.tag is not None and field.tag > 100


def clear_ours(value: Any) -> None:
    for item in value if isinstance(value, list) else ():
        clear_ours(item)
    for field in value.__fields__ if isinstance(value, Struct) else ():
        if is_ours(field):
            setattr(value, field.name, [] if field.kind == "array" else field.default)
        else:
            clear_ours(getattr(value, field.name))


def ours(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        fields = [field for field in value.__fields__ if field.is_in(version) and not is_ours(field)]
        return [ours(getattr(value, field.name), version) for field in fields]
    if isinstance(value, list):
        return [ours(item, version) for item in value]
    return None if value == bytes(16) else value  # kio has None for the uuid of zeroes


JUDGED = [cls for cls in MESSAGES if issubclass(cls, Request | Response | Data) and judged_versions(cls)]


def test_the_judge_knows_nearly_all_apis() -> None:
    apis = {cls.API_KEY for cls in JUDGED if issubclass(cls, Request)} & {cls.API_KEY for cls in JUDGED if issubclass(cls, Response)}
    assert len(apis) >= 80


@pytest.mark.parametrize("cls", JUDGED, ids=lambda cls: cls.__name__)
def test_an_independent_codec_agrees_both_ways(cls: type[Message]) -> None:
    random = Random(cls.__name__)
    for version, path in judged_versions(cls):
        judge = judge_at(path)
        read, write = entity_reader(judge), entity_writer(judge)
        for _ in range(3):
            message = sample(cls, version, random)
            clear_ours(message)
            encoded = encoder(cls, version)(message)
            theirs, size = read(encoded, 0)
            assert size == len(encoded)
            assert plain(theirs) == ours(message, version)
            out = BytesIO()
            write(out, theirs)
            assert decoder(cls, version)(out.getvalue(), 0) == (message, len(out.getvalue()))


# Declarations


def nested_structs(cls: type[Struct]) -> list[type[Struct]]:
    found = [cls]
    for field in cls.__fields__:
        if isinstance(field.of, StructType):
            found += nested_structs(field.of)
    return found


PYTHON_TYPES = {"boolean": "bool", "uuid": "Uuid", "string": "str", "octets": "bytes", "records": "Records", "f64": "float"}


@messages
def test_annotations_say_what_the_codec_makes(cls: type[Message]) -> None:
    for struct in nested_structs(cls):
        for field in struct.__fields__:
            element = field.element if field.kind == "array" else field
            kind = element.struct.__name__ if element.kind == "nested" else PYTHON_TYPES.get(element.kind, "int")
            kind = f"list[{kind}]" if field.kind == "array" else kind
            kind += " | None" if field.nullable_since is not None else ""
            assert struct.__annotations__[field.name] == kind, (struct, field.name)
            assert field.default is not None or field.nullable_since is not None, (struct, field.name)


# Bytes worked out by hand, or written by Kafka's own classes


def test_produce_request_9_by_hand() -> None:
    message = ProduceRequest(
        acks=-1,
        timeout_ms=1500,
        topic_data=[produce.TopicProduceData(name="t1", partition_data=[produce.PartitionProduceData(index=3, records=b"abc")])],
    )
    # null id, acks, timeout, 1 topic "t1", 1 partition 3, 3 bytes of records, and the three empty tag sections
    assert encoder(ProduceRequest, 9)(message) == bytes.fromhex("00 ffff 000005dc 02 03 7431 02 00000003 04 616263 00 00 00")
    assert encoder(ProduceRequest, 3)(message) == bytes.fromhex("ffff ffff 000005dc 00000001 0002 7431 00000001 00000003 00000003 616263")


def test_produce_response_10_with_tagged_fields_by_hand() -> None:
    partition = produce.PartitionProduceResponse(
        index=1, error_code=6, base_offset=-1, current_leader=produce.LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    )
    message = produce.ProduceResponse(
        responses=[produce.TopicProduceResponse(name="t", partition_responses=[partition])],
        node_endpoints=[produce.NodeEndpoint(node_id=2, host="h", port=9092)],
    )
    assert encoder(produce.ProduceResponse, 10)(message) == bytes.fromhex(
        "02 0274 02 00000001 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00"
        "01 00 09 00000002 00000009 00"  # one tag: number 0, nine bytes
        "00 00000000"
        "01 00 0d 02 00000002 0268 00002384 00 00"
    )


def test_a_client_asks_for_extensions_in_a_tagged_field_of_one_byte() -> None:
    asks = ApiVersionsRequest(client_software_name="c", client_software_version="1", ottla_extensions=0)
    assert encoder(ApiVersionsRequest, 3)(asks) == bytes.fromhex("0263 0231 01 a09c01 01 00")
    plain = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    assert encoder(ApiVersionsRequest, 3)(plain) == bytes.fromhex("0263 0231 00")
    assert encoder(ApiVersionsRequest, 2)(asks) == b""


def test_stage_and_attach_by_hand() -> None:
    part = stage_records.StagePartition(index=3, chunk=1, records=b"abc")
    topic = stage_records.StageTopic(name="t", partitions=[part])
    staged = stage_records.StageRecordsRequest(batch_token=b"0123456789abcdef", attempt_id=7, topics=[topic])
    assert encoder(stage_records.StageRecordsRequest, 0)(staged) == bytes.fromhex(
        "30313233343536373839616263646566 0000000000000007 02 0274 02 00000003 00000001 04616263 00 00 00"
    )
    chunk = attach_records.StagedChunk(attempt_id=7, chunk=1, records=2, length=3, crc=0xFFFFFFFF)
    manifest = attach_records.AttachPartition(index=3, base_sequence=4, chunks=[chunk])
    attached = attach_records.AttachRecordsRequest(
        transactional_id="x", producer_id=5, producer_epoch=1, acks=-1, timeout_ms=9, batch_token=b"0123456789abcdef",
        topics=[attach_records.AttachTopic(name="t", partitions=[manifest])],
    )  # fmt: skip
    assert encoder(attach_records.AttachRecordsRequest, 0)(attached) == bytes.fromhex(
        "0278 0000000000000005 0001 ffff 00000009 30313233343536373839616263646566 02 0274 02 00000003 00000004"
        "02 0000000000000007 00000001 00000002 00000003 ffffffff 00 00 00 00"
    )
    answered = attach_records.AttachPartitionResult(index=3, error_code=20000, error_message="gone")
    response = attach_records.AttachRecordsResponse(topics=[attach_records.AttachTopicResult(name="t", partitions=[answered])])
    assert encoder(attach_records.AttachRecordsResponse, 0)(response) == bytes.fromhex(
        "00000000 02 0274 02 00000003 4e20 05676f6e65 ffffffffffffffff 00 00 00"
    )


def test_metadata_request_of_all_topics_is_null_since_1_and_empty_in_0() -> None:
    assert encoder(MetadataRequest, 0)(MetadataRequest()) == bytes(4)
    assert encoder(MetadataRequest, 1)(MetadataRequest(topics=None)) == b"\xff\xff\xff\xff"
    assert encoder(MetadataRequest, 9)(MetadataRequest(topics=None)) == bytes.fromhex("00 01 00 00 00")


def test_heartbeat_and_header_by_hand() -> None:
    heartbeat = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    assert encoder(HeartbeatRequest, 3)(heartbeat) == bytes.fromhex("0001 67 00000007 0001 6d ffff")
    assert encoder(HeartbeatRequest, 4)(heartbeat) == bytes.fromhex("0267 00000007 026d 00 00")
    header = RequestHeader(request_api_key=12, request_api_version=4, correlation_id=5, client_id="c")
    assert encoder(RequestHeader, 1)(header) == bytes.fromhex("000c 0004 00000005 0001 63")
    assert encoder(RequestHeader, 2)(header) == bytes.fromhex("000c 0004 00000005 0001 63 00")


def test_defaults_are_those_of_kafka() -> None:
    golden = Path(__file__).parent.parent / "golden" / "message_defaults.txt"
    lines = [line.split() for line in golden.read_text(encoding="ascii").splitlines() if not line.startswith("#")]
    classes = {cls.__name__: cls for cls in MESSAGES}
    assert len(lines) > 680
    for name, version, encoded in lines:
        cls = classes[name]
        assert encoder(cls, int(version))(cls()).hex() == encoded.replace("-", ""), (name, version)


def test_records_that_kafka_wrote() -> None:
    """The hex was written by the classes of Apache Kafka 4.3.0."""
    log = TransactionLogValue()
    assert encoder(TransactionLogValue, 0)(log).hex() == "0" * 70
    log = TransactionLogValue(previous_producer_id=5, next_producer_epoch=3, client_transaction_version=2)
    assert encoder(TransactionLogValue, 1)(log).hex() == (
        "000000000000000000000000000000010000000000000000000000000000000003000800000000000000050202000203020003"
    )
    member = ConsumerGroupMemberMetadataValue()
    assert encoder(ConsumerGroupMemberMetadataValue, 0)(member).hex() == "010101010101ffffffff0100"
    member = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert encoder(ConsumerGroupMemberMetadataValue, 0)(member).hex() == "010101010101ffffffff0101000100"
    member = ConsumerGroupMemberMetadataValue(classic_member_metadata=ClassicMemberMetadata(session_timeout_ms=7))
    assert encoder(ConsumerGroupMemberMetadataValue, 0)(member).hex() == "010101010101ffffffff0101000701000000070100"
    offset = OffsetCommitValue(offset=1, metadata="x")
    assert encoder(OffsetCommitValue, 1)(offset).hex() == "00000000000000010001780000000000000000ffffffffffffffff"
    assert encoder(OffsetCommitValue, 3)(offset).hex() == "0000000000000001ffffffff0001780000000000000000"
