"""Hostile record batches (R1-R10 of `test_corpus.py`) get typed errors and are not appended, and the broker allocates no memory for sizes
that a header merely claims.

All of them are sent to two brokers. Both refuse a batch whose header or size is wrong (`ENVELOPES`). The broker with
`ottla.validate.records` also refuses batches with wrong records (`CONTENTS`). The other broker may store these, because it does not read
the records; then neither the broker nor readers of other data are harmed.
"""

from __future__ import annotations

import functools
import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import crc32c
import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages import create_topics, fetch, list_offsets
from ottla.wire.records import Record, encode_batch, encode_control_batch, encode_varint
from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.clients.sample_world import World
from tests.clients.wire_client import In, WireClient
from tests.hostile.conftest import RSS_GROWTH_BYTES_MAX, serve

Connect = Callable[[], WireClient]
OVERHEAD = 61
TERABYTE = struct.pack("<Q", 1 << 40)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
STRICT = "ottla.validate.records=true"

# The positions of the fields in a batch.
LENGTH, EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA = 8, 12, 16, 17, 21, 23
BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 27, 35, 43, 51, 53, 57


def good(count: int = 3, **options: Any) -> bytearray:
    return encode_batch([Record(0, 1_700_000_000_000, b"k", b"v", (("h", b"1"),))] * count, **options)


def signed(batch: bytes | bytearray) -> bytes:
    """Returns the batch with a correct checksum."""
    data = bytearray(batch)
    struct.pack_into(">I", data, CRC, crc32c.crc32c(bytes(data[ATTRIBUTES:])))
    return bytes(data)


def changed(at: int, form: str, value: int, **options: Any) -> bytes:
    """Returns a valid batch with one field changed and a correct checksum."""
    batch = good(**options)
    struct.pack_into(form, batch, at, value)
    return signed(batch)


def with_payload(payload: bytes, count: int = 1, codec: int = 0) -> bytes:
    """Returns a batch whose header claims this number of records, before any bytes."""
    batch = good(1)[:OVERHEAD] + payload
    struct.pack_into(">i", batch, LENGTH, len(batch) - 12)
    struct.pack_into(">h", batch, ATTRIBUTES, codec)
    struct.pack_into(">i", batch, LAST_DELTA, count - 1)
    struct.pack_into(">i", batch, COUNT, count)
    return signed(batch)


def record(body: bytes, length: int | None = None) -> bytes:
    return encode_varint(len(body) if length is None else length) + body


def body(*, offset_delta: int = 0, timestamp_delta: int = 0, key: bytes = b"\x01", value: bytes = b"\x01", headers: bytes = b"\0") -> bytes:
    """Returns a record's body; key, value and headers are given in wire format (0x01 is the length -1)."""
    return b"\0" + encode_varint(timestamp_delta) + encode_varint(offset_delta) + key + value + headers


def xerial(*chunks: bytes) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(chunks)


def legacy(magic: int) -> bytes:
    """Returns a message of magic 0 or 1, as clients before Kafka 0.11 sent it."""
    content = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1) if magic else b"") + struct.pack(">i", -1) + struct.pack(">i", 1) + b"v"
    return struct.pack(">qiI", 0, len(content) + 4, zlib.crc32(content)) + content


LZ4_FRAME = bytes(cramjam.lz4.compress(record(body())))
ENVELOPES: dict[str, bytes] = {
    "R1 length is more than there is": changed(LENGTH, ">i", 5000),
    "R1 length is less than there is": changed(LENGTH, ">i", 50),
    "R1 length is negative": changed(LENGTH, ">i", -1),
    "R1 length is zero": changed(LENGTH, ">i", 0),
    "R1 two batches": signed(good()) * 2,
    "R1 a batch and junk": signed(good()) + b"junk",
    "R1 half a header": signed(good())[:30],
    "R1 no bytes": b"",
    "R2 magic 0": legacy(0),
    "R2 magic 1": legacy(1),
    "R2 magic 3": changed(MAGIC, ">b", 3),
    "R2 magic -1": changed(MAGIC, ">b", -1),
    "R2 bad checksum": bytes(good()[:-1]) + b"x",
    "R2 checksum of nothing": bytes(good()[:CRC]) + bytes(4) + bytes(good()[ATTRIBUTES:]),
    "R3 count is more than the last offset": changed(COUNT, ">i", 9),
    "R3 count is negative": changed(COUNT, ">i", -1),
    "R3 count is zero, with bytes": changed(COUNT, ">i", 0),
    "R3 last offset is negative": changed(LAST_DELTA, ">i", -1),
    "R3 last offset is huge": changed(LAST_DELTA, ">i", 2**31 - 1),
    "R7 control batch of a client": bytes(encode_control_batch(1, 5, 0, 0, 1_700_000_000_000)),
    "R7 control bit alone": changed(ATTRIBUTES, ">h", 0x20),
    "R7 transactional without producer": changed(ATTRIBUTES, ">h", 0x10),
    "R7 sequence -1 with a producer": changed(PRODUCER_ID, ">q", 5),
    "R7 negative epoch with a producer": signed(good(producer_id=5, producer_epoch=-1, base_sequence=0)),
    "R8 codec 5": changed(ATTRIBUTES, ">h", 5),
    "R8 codec 7": changed(ATTRIBUTES, ">h", 7),
    "R9 gzip of nothing": with_payload(b"", codec=GZIP),
    "R9 zstd of nothing": with_payload(b"", codec=ZSTD),
    "R9 snappy of nothing": with_payload(b"", codec=SNAPPY),
    "R9 lz4 of nothing": with_payload(b"", codec=LZ4),
}  # fmt: skip
CONTENTS: dict[str, bytes] = {
    "R3 fewer records than counted": with_payload(record(body()), count=2),
    "R3 more records than counted": with_payload(record(body()) + record(body(offset_delta=1)), count=1),
    "R4 record of 2^31-1 bytes": with_payload(record(body(), 2**31 - 1)),
    "R4 record of 2^31-1 bytes in gzip": with_payload(gzip.compress(record(body(), 2**31 - 1)), codec=GZIP),
    "R4 record of -1 bytes": with_payload(record(body(), -1)),
    "R5 key length -2": with_payload(record(body(key=encode_varint(-2)))),
    "R5 key longer than the record": with_payload(record(body(key=encode_varint(1000) + b"k"))),
    "R5 value length -2": with_payload(record(body(value=encode_varint(-2)))),
    "R5 value longer than the record": with_payload(record(body(value=encode_varint(1 << 30)))),
    "R5 more headers than there is room": with_payload(record(body(headers=encode_varint(1 << 30)))),
    "R5 headers -1": with_payload(record(body(headers=encode_varint(-1)))),
    "R5 null header key": with_payload(record(body(headers=encode_varint(1) + encode_varint(-1) + encode_varint(-1)))),
    "R5 header value length -2": with_payload(record(body(headers=encode_varint(1) + encode_varint(1) + b"h" + encode_varint(-2)))),
    "R5 bytes behind the headers": with_payload(record(body() + b"xyz")),
    "R6 offsets with a gap": with_payload(record(body()) + record(body(offset_delta=2)), count=2),
    "R6 offsets that go back": with_payload(record(body(offset_delta=1)) + record(body()), count=2),
    "R6 endless varint": with_payload(record(b"\0" + b"\xff" * 12 + b"\0\x01\x01\0")),
    "R8 snappy xerial chunk of 2^32-1": with_payload(xerial(b"\xff\xff\xff\xff" + b"abc"), codec=SNAPPY),
    "R8 snappy xerial chunk of -8": with_payload(xerial(struct.pack(">i", -8) + b"abc"), codec=SNAPPY),
    "R8 snappy raw of 2^32-1": with_payload(b"\xff\xff\xff\xff\x0f" + b"\0abc", codec=SNAPPY),
    "R8 lz4 content size lies": with_payload(LZ4_FRAME[:4] + b"\x6c" + LZ4_FRAME[5:6] + TERABYTE + LZ4_FRAME[6:], codec=LZ4),
    "R8 zstd window of 2 GiB": with_payload(bytes.fromhex("28b52ffd00a8") + bytes(20), codec=ZSTD),
    "R8 zstd content size lies": with_payload(bytes.fromhex("28b52ffde0") + TERABYTE + bytes(20), codec=ZSTD),
    "R9 gzip cut in the middle": with_payload(gzip.compress(record(body(value=encode_varint(500) + bytes(500))))[:-12], codec=GZIP),
    "R9 lz4 broken in the middle": with_payload(LZ4_FRAME[:8] + b"\xff\xff" + LZ4_FRAME[10:], codec=LZ4),
    "R9 zstd junk": with_payload(b"\x28\xb5\x2f\xfd" + b"\xff" * 40, codec=ZSTD),
}  # fmt: skip


@pytest.fixture(scope="module", params=["opaque", "strict"])
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = [*SETTINGS, STRICT] if request.param == "strict" else SETTINGS
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings).start()
    yield process
    process.stop()


def produce(client: WireClient, world: World, topic: str, records: bytes, **fields: Any) -> int:
    request: Any = world.produce(In(9), topic, **fields)
    request.topic_data[0].partition_data[0].records = records
    code: int = client.ask(request, 9).responses[0].partition_responses[0].error_code
    return code


def new_topic(client: WireClient, world: World, **config: str) -> str:
    entries = [create_topics.CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in config.items()]
    request: Any = world.make_topic(7, world.fresh("topic"), configs=entries)
    assert client.ask(request, 7).topics[0].error_code == 0
    name: str = request.topics[0].name
    return name


def log_end(client: WireClient, topic: str) -> int:
    asked = list_offsets.ListOffsetsTopic(name=topic, partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)])
    end: int = client.ask(list_offsets.ListOffsetsRequest(replica_id=-1, topics=[asked]), 7).topics[0].partitions[0].offset
    return end


REFUSALS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@pytest.mark.parametrize("records", ENVELOPES.values(), ids=ENVELOPES)
def test_hostile_batches_are_refused_and_leave_nothing(connect: Connect, honest: World, records: bytes) -> None:
    client = connect()
    end = log_end(client, honest.topic)
    assert produce(client, honest, honest.topic, records) in REFUSALS
    assert log_end(client, honest.topic) == end
    assert produce(client, honest, honest.topic, signed(good())) == 0


@pytest.mark.parametrize("records", CONTENTS.values(), ids=CONTENTS)
def test_hostile_records_are_refused_or_harm_no_other_reader(
    attacked: BrokerProcess, connect: Connect, honest: World, records: bytes
) -> None:
    client = connect()
    topic = new_topic(client, honest)
    code = produce(client, honest, topic, records)
    assert code in REFUSALS or (code == 0 and STRICT not in attacked.settings)
    assert log_end(client, topic) == (struct.unpack_from(">i", records, COUNT)[0] if code == 0 else 0)
    assert produce(client, honest, topic, signed(good())) == 0
    assert looked_up(client, topic, 1_600_000_000_000) in {0, ErrorCode.INVALID_RECORD}
    assert looked_up(client, topic, -3) in {0, ErrorCode.INVALID_RECORD}
    fetched = fetch.FetchTopic(topic=topic, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    answer = client.ask(fetch.FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=1 << 20, topics=[fetched]), 12)
    stored = bytes(answer.responses[0].partitions[0].records)
    assert stored.endswith(signed(good())[ATTRIBUTES:]), "what comes behind it is served"


def looked_up(client: WireClient, topic: str, timestamp: int) -> int:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[partition])])
    code: int = client.ask(request, 7).topics[0].partitions[0].error_code
    return code


@functools.cache
def bombs() -> dict[str, bytes]:
    """Returns small compressed batches that decompress to gigabytes of zero bytes; they repeat one chunk."""
    chunk = bytes(1 << 20)
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    gzipped = b"".join(deflate.compress(chunk) for _ in range(256)) + deflate.flush()
    zstd_frame, lz4_frame = bytes(cramjam.zstd.compress(chunk)), bytes(cramjam.lz4.compress(bytes(4 << 20)))
    snappy_block = bytes(cramjam.snappy.compress_raw(chunk))
    piece = struct.pack(">i", len(snappy_block)) + snappy_block
    return {
        "gzip": with_payload(gzipped, codec=GZIP),
        "gzip in members": with_payload(gzip.compress(chunk) * 300, codec=GZIP),
        "zstd frames": with_payload(zstd_frame * 1024, codec=ZSTD),
        "lz4": with_payload(lz4_frame * 60, codec=LZ4),
        "snappy chunks": with_payload(xerial(*([piece] * 200)), codec=SNAPPY),
    }


@pytest.mark.parametrize("name", ["gzip", "gzip in members", "zstd frames", "lz4", "snappy chunks"])
def test_a_bomb_is_not_unpacked(attacked: BrokerProcess, connect: Connect, honest: World, name: str) -> None:
    """R8: if the topic has another codec, the broker has to decompress the batch, and must stop at its limit."""
    data = bombs()[name]
    client, before = connect(), attacked.rss_bytes()
    topic = new_topic(client, honest, compression_type="uncompressed")
    assert produce(client, honest, topic, data) in REFUSALS
    serve(honest)
    assert attacked.rss_bytes() - before < RSS_GROWTH_BYTES_MAX


@pytest.mark.parametrize("timestamp", [-2, -(2**63), 2**63 - 1])
def test_timestamps_out_of_the_world(connect: Connect, honest: World, timestamp: int) -> None:
    """R6: timestamps out of range are refused or stored, and look-ups by time still work."""
    client = connect()
    batch = good(1)
    struct.pack_into(">q", batch, BASE_TIMESTAMP, timestamp)
    struct.pack_into(">q", batch, MAX_TIMESTAMP, timestamp)
    topic = new_topic(client, honest)
    assert produce(client, honest, topic, signed(batch)) in {0, *REFUSALS}
    assert produce(client, honest, topic, signed(good())) == 0
    for asked_for in (0, -1, -3, 2**63 - 1):
        assert looked_up(client, topic, asked_for) == 0


def test_a_transaction_that_was_not_begun(connect: Connect, honest: World) -> None:
    """R7: a transactional batch is refused if the coordinator has no transaction, or if the producer id belongs to another producer."""
    client = connect()
    name, producer_id, epoch = honest.transaction()
    options = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0, "is_transactional": True}
    for transactional_id in (name, "somebody-else", None):
        code = produce(client, honest, honest.topic, signed(good(**options)), transactional_id=transactional_id)
        assert code in REFUSALS, transactional_id
    foreign = {**options, "producer_id": producer_id + 10_000}
    assert produce(client, honest, honest.topic, signed(good(**foreign)), transactional_id=name) in REFUSALS


def test_a_batch_larger_than_allowed(connect: Connect, honest: World) -> None:
    """R10: the size limit applies to the batch as it is sent."""
    client = connect()
    name = new_topic(client, honest)
    large = encode_batch([Record(0, 1, None, bytes(12_100_000))])
    assert produce(client, honest, name, bytes(large)) == ErrorCode.MESSAGE_TOO_LARGE
    small = encode_batch([Record(0, 1, None, bytes(12_100_000))], codec=GZIP)
    assert produce(client, honest, name, bytes(small)) == 0


def test_a_refusal_that_comes_late_closes_a_connection_that_awaits_no_answer(connect: Connect, honest: World) -> None:
    """With acks=0 the broker closes the connection if the worker finds, after the request was executed, records without keys for a
    compacted topic.
    """
    with connect() as client:
        topic = new_topic(client, honest, cleanup_policy="compact")
        request: Any = honest.produce(In(9), topic, acks=0)
        request.topic_data[0].partition_data[0].records = encode_batch([Record(0, 1_700_000_000_000, None, b"v")] * 3_000)
        client.send(client.frame(request, 9))
        assert client.receive() is None
    with connect() as client:
        assert log_end(client, topic) == 0
