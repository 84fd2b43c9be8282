"""Attacks by the content of batches: wrong lengths in compressed data, malformed records, very many keys and segments."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from ottla.wire.messages import list_offsets, produce
from ottla.wire.records import CODEC_GZIP, CODEC_LZ4, CODEC_SNAPPY, CODEC_ZSTD, HEADER, BatchHeader, Record, encode_batch, stamp_crc
from tests.clients.broker_process import eventually
from tests.hostile.attacks import Target, attack
from tests.hostile.attacks_growth import make_topic, send_many
from tests.hostile.attacks_input import create, produce_frame, put

NOW_MS = 1_700_000_000_000


def packed(codec: int, section: bytes, count: int = 100_000, *, lie_ms: int = 0) -> bytes:
    """Returns a batch whose records are the compressed bytes `section`."""
    header = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, NOW_MS, NOW_MS + lie_ms, -1, -1, -1, count)
    batch = bytearray(HEADER.size) + section
    HEADER.pack_into(batch, 0, 0, len(batch) - 12, *header[2:])
    stamp_crc(batch, 0, len(batch))
    return bytes(batch)


def gzipped(data: bytes) -> bytes:
    maker = zlib.compressobj(9, wbits=31)
    return maker.compress(data) + maker.flush()


def lying_sections() -> list[tuple[int, bytes]]:
    """Yields compressed sections that contain less or more than their header claims, or end too early."""
    from cramjam import lz4, zstd

    record = b"\x0e\0\0\0\2k\0\0"
    whole = bytes(zstd.compress(record * 2_000_000, 3))
    huge_window = struct.pack("<I", 0xFD2FB528) + bytes([0x00, 0x88]) + bytes([0x03, 0xFF, 0xFF]) * 300
    return [
        (CODEC_ZSTD, whole[: len(whole) // 2]),
        (CODEC_ZSTD, huge_window),
        (CODEC_ZSTD, bytes(zstd.compress(b"\xfe\xff\xff\xff\x0f" * 1_000_000, 3))),
        (CODEC_GZIP, gzipped(b"") * 40_000),
        (CODEC_GZIP, gzipped(bytes(64 << 20))),
        (CODEC_LZ4, bytes(lz4.compress(record * 2_000_000))[:-1000]),
        (CODEC_SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(100)),
        (CODEC_SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + struct.pack(">i", 5) + b"\xff\xff\xff\x7f\0" * 1),
    ]


@attack("Produce of batches whose compression lies, of four codecs, to a compacted topic, 10 times each")
def lying_compression(target: Target) -> None:
    create(target, "compacted", **{"cleanup.policy": "compact"})
    frames = [produce_frame(target, "compacted", packed(codec, section)) for codec, section in lying_sections()]
    target.begin()
    target.send(*frames * target.part(10))


@attack("ListOffsets by time over batches whose compression lies, 20 times")
def look_up_lying_compression(target: Target) -> None:
    create(target, "lies")
    for codec, section in lying_sections():
        put(target, "lies", packed(codec, section, lie_ms=1_000_000))
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=NOW_MS + 500_000)
    frame = target.request(2, 7, replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name="lies", partitions=[asked])])
    target.begin()
    target.send(*[frame] * target.part(20))


@attack("20,000 segments of one record each")
def many_segments(target: Target) -> None:
    make_topic(target, "rolling", 1, **{"segment.bytes": "1048576", "segment.ms": "1"})
    eventually(lambda: put(target, "rolling", one_record(0)) == 0)
    target.begin()
    send_many(target, ((produce_of("rolling", one_record(number)), 9) for number in target.numbers(20_000)))


def one_record(number: int) -> bytes:
    """Returns a batch of one record whose timestamp is one second later than the previous one's, so that each record begins a segment that
    is already old.
    """
    return bytes(encode_batch([Record(0, NOW_MS + number * 1000, b"k", b"v", ())]))


def produce_of(topic: str, records: bytes) -> Any:
    data = produce.PartitionProduceData(index=0, records=memoryview(records))
    topics = [produce.TopicProduceData(name=topic, partition_data=[data])]
    return produce.ProduceRequest(acks=1, timeout_ms=120_000, topic_data=topics)


@attack(
    "compaction of 100 MB of different keys and of batches whose compression lies",
    "log.cleaner.backoff.ms=100",
    "log.cleaner.min.cleanable.ratio=0.01",
)
def hostile_compaction(target: Target) -> None:
    make_topic(target, "keys", 1, **{"segment.bytes": "1048576", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"})
    eventually(lambda: put(target, "keys", one_record(0)) == 0)
    for codec, section in lying_sections():
        put(target, "keys", packed(codec, section))
    for number in target.numbers(110):
        records = [Record(0, NOW_MS, f"{number}-{index}".encode() * 10, b"", ()) for index in range(8000)]
        assert put(target, "keys", bytes(encode_batch(records, codec=CODEC_ZSTD))) == 0
    alter: Any = target.client
    target.begin()
    from ottla.wire.messages import incremental_alter_configs as configs

    setting = configs.AlterableConfig(name="cleanup.policy", config_operation=0, value="compact")
    resource = configs.AlterConfigsResource(resource_type=2, resource_name="keys", configs=[setting])
    alter.ask(configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    target.hold(target.part(2000))
