"""Attacks by received bytes: small batches that are large when decompressed, frames that are never completed, and clients that never read
answers.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import threading
import time
from collections.abc import Callable

from ottla.wire.messages import api_versions, create_topics, fetch, list_offsets, offset_commit, produce
from ottla.wire.records import CODEC_ZSTD, HEADER, BatchHeader, encode_varint, stamp_crc
from tests.clients.broker_process import eventually
from tests.hostile.attacks import Target, attack

RECORDS = 4_000_000
OPEN_CONNECTIONS = 600
WIDE = 2000
OFFSETS_PER_BATCH = 100
FRAME_BYTES = 1_000_000
"""The size that an unfinished frame announces: that of an ordinary large batch."""
SMALL_FRAME_BYTES = 65_000
"""The same of a frame that gets no buffer of its own."""


@functools.cache
def bomb(count: int = RECORDS, *, timestamp_ms: int = 1_700_000_000_000, lie_ms: int = 0) -> bytes:
    """Returns a compressed batch of `count` records whose eight bytes are equal except for the offsets: a few kilobytes for a million
    records.
    """
    from cramjam import zstd

    block = 1 << 14
    parts = []
    for start in range(0, count, block):
        for index in range(start, min(start + block, count)):
            body = b"\0\0" + encode_varint(index) + b"\2k\0\0"
            parts.append(encode_varint(len(body)) + body)
    packed = bytes(zstd.compress(b"".join(parts), 19 if count < RECORDS else 3))
    return finish(packed, count, timestamp_ms, lie_ms)


def finish(packed: bytes, count: int, timestamp_ms: int, lie_ms: int) -> bytes:
    header = BatchHeader(0, 0, -1, 2, 0, CODEC_ZSTD, count - 1, timestamp_ms, timestamp_ms + lie_ms, -1, -1, -1, count)
    batch = bytearray(HEADER.size) + packed
    HEADER.pack_into(batch, 0, 0, len(batch) - 12, *header[2:])
    stamp_crc(batch, 0, len(batch))
    return bytes(batch)


@functools.cache
def zeros(count: int = RECORDS, *, timestamp_ms: int = 1_700_000_000_000, lie_ms: int = 0) -> bytes:
    """Returns a batch of 3 kB that claims to have `count` records of eight bytes. All of them have offset 0, which only a check of every
    record can find.
    """
    from cramjam import zstd

    return finish(bytes(zstd.compress(b"\x0e\0\0\0\2k\0\0" * count, 3)), count, timestamp_ms, lie_ms)


def create(target: Target, name: str, partitions: int = 1, **configs: str) -> None:
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1,
        configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )  # fmt: skip
    answer = target.client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    assert not answer.topics[0].error_code, answer
    eventually(lambda: put(target, name, finish_one()) == 0)


def finish_one() -> bytes:
    return bomb(1)


def produce_frame(target: Target, topic: str, batch: bytes) -> bytes:
    data = produce.PartitionProduceData(index=0, records=memoryview(batch))
    topics = [produce.TopicProduceData(name=topic, partition_data=[data])]
    return target.request(0, 9, acks=1, timeout_ms=120_000, topic_data=topics)


def put(target: Target, topic: str, batch: bytes) -> int:
    data = produce.PartitionProduceData(index=0, records=memoryview(batch))
    request = produce.ProduceRequest(acks=1, timeout_ms=120_000, topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])])
    return int(target.client.ask(request, 9).responses[0].partition_responses[0].error_code)


@attack("Produce of 4 million records of a future time in a few kilobytes")
def produce_of_the_future(target: Target) -> None:
    create(target, "plain")
    frame = produce_frame(target, "plain", zeros(timestamp_ms=4_000_000_000_000))
    target.begin()
    target.send(frame)


@attack("Produce of 4 million records in a few kilobytes to a compacted topic, 5 times")
def produce_to_a_compacted_topic(target: Target) -> None:
    create(target, "compacted", **{"cleanup.policy": "compact"})
    frame = produce_frame(target, "compacted", zeros())
    target.begin()
    target.send(*[frame] * 5)


@attack("Produce of 32 MiB in a few kilobytes to a topic with a codec, 80 times")
def produce_to_a_topic_with_a_codec(target: Target) -> None:
    create(target, "packed", **{"compression.type": "lz4"})
    frame = produce_frame(target, "packed", zeros())
    target.begin()
    target.send(*[frame] * target.part(80))
    target.hold(100)


@attack("ListOffsets by time over 4 batches of 4 million records that lie about their time, twice", not_on_kafka="refuses the batches")
def look_up_lying_batches(target: Target) -> None:
    create(target, "lies")
    for _ in range(4):
        assert put(target, "lies", zeros(lie_ms=1_000_000)) == 0
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=1_700_000_500_000)
    frame = target.request(2, 7, replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name="lies", partitions=[asked])])
    target.begin()
    target.send(frame)
    target.send(frame)


@attack("600 connections that have sent 17 kB of a frame each, and an honest one that sends 100 kB in pieces")
def half_sent_frames(target: Target) -> None:
    create(target, "plain")
    start = struct.pack(">i", FRAME_BYTES) + bytes(17_000)
    target.begin()
    silent = [target.connect() for _ in target.numbers(OPEN_CONNECTIONS)]
    for client in silent:
        client.send(start)
    send_in_pieces(target, produce_frame(target, "plain", bytes(bomb(1)) + bytes(100_000)))


@attack(
    "558 connections that drip a frame of 65 kB, and an honest one that sends 100 kB in pieces, of a broker that may use 64 MiB",
    "ottla.memory.max.bytes=67108864",
    not_on_kafka="has no such bound",
)
def dripping_frames(target: Target) -> None:
    create(target, "plain")
    start = struct.pack(">i", SMALL_FRAME_BYTES) + bytes(SMALL_FRAME_BYTES - 5_000)
    target.begin()
    holders = [target.connect() for _ in target.numbers(558)]  # they use up the memory for unfinished requests

    def drip(data: bytes) -> None:
        for holder in holders:
            with contextlib.suppress(OSError):  # the broker has dropped it
                holder.send(data)

    drip(start)
    send_in_pieces(target, produce_frame(target, "plain", bytes(bomb(1)) + bytes(100_000)), lambda: drip(b"x"))


@attack(
    "300 connections that send 500 kB of a frame and connect anew all the time, and an honest one that sends 100 kB in pieces, of a broker"
    " that may use 64 MiB",
    "ottla.memory.max.bytes=67108864",
    not_on_kafka="has no such bound",
)
def renewed_crowd(target: Target) -> None:
    create(target, "plain")
    target.begin()
    stop = threading.Event()
    crowd = threading.Thread(target=_send_and_connect_anew, args=(target.port, target.part(300), stop), name="crowd")
    crowd.start()
    try:
        for _ in target.numbers(3):
            send_in_pieces(target, produce_frame(target, "plain", bytes(bomb(1)) + bytes(100_000)))
    finally:
        stop.set()
        crowd.join()


def _send_and_connect_anew(port: int, count: int, stop: threading.Event) -> None:
    start = struct.pack(">i", FRAME_BYTES) + bytes(500_000)
    while not stop.is_set():
        with contextlib.ExitStack() as peers:
            for _ in range(count):
                with contextlib.suppress(OSError):  # the broker has closed it, or does not read from it now
                    peer = peers.enter_context(socket.create_connection(("127.0.0.1", port), 10))
                    peer.settimeout(0.05)
                    peer.sendall(start)


def send_in_pieces(target: Target, frame: bytes, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Sends a frame slowly, as over a slow network. Any answer, even a refusal, shows that the connection was not closed."""
    client = target.connect()
    client.ask(api_versions.ApiVersionsRequest(), 0)  # as every client does
    for at in range(0, len(frame), 4_000):
        client.send(frame[at : at + 4_000])
        time.sleep(0.1)
        meanwhile()
    assert client.receive() is not None, "the honest client was dropped"


@attack("2,000 connections that hold 105 kB of a frame each")
def many_half_sent_frames(target: Target) -> None:
    start = struct.pack(">i", FRAME_BYTES) + bytes(105_000)
    target.begin()
    for _ in target.numbers(2000):
        try:
            target.connect().send(start)
        except OSError:
            pass  # the broker may drop it
    target.hold(400)


@attack("6,000 connections that send 64 KiB of a frame each, then 40 kB more")
def second_pieces_of_frames(target: Target) -> None:
    """Sends frames in two pieces while the memory for requests is nearly full. In an earlier version the second piece made a frame's buffer
    four times as large.
    """
    clients = [target.connect() for _ in target.numbers(6000)]
    target.begin()
    for piece in (struct.pack(">i", FRAME_BYTES) + bytes((64 << 10) - 4), bytes(40_000)):
        for client in clients:
            client.socket.settimeout(0.02)
            with contextlib.suppress(OSError):  # the broker has closed it, or does not read from it now
                client.socket.sendall(piece)
    target.hold(400)


@attack("300 connections that ask for 10,000 small answers each and never read")
def never_read(target: Target) -> None:
    frame = target.request(18, 3, client_software_name="a" * 100, client_software_version="1")
    target.begin()
    for _ in target.numbers(300):
        send_and_never_read(target, frame * 500, 20)
    target.hold(200)


@attack("300 connections that ask for 10 answers of 2 MB each and never read")
def never_read_large_answers(target: Target) -> None:
    create(target, "wide", partitions=WIDE)
    offsets = [
        offset_commit.OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="m" * 4000)
        for number in range(500)
    ]
    for first in range(0, len(offsets), OFFSETS_PER_BATCH):
        topic = offset_commit.OffsetCommitRequestTopic(name="wide", partitions=offsets[first : first + OFFSETS_PER_BATCH])
        commit = offset_commit.OffsetCommitRequest(group_id="large", topics=[topic])
        eventually(lambda commit=commit: not any(found.error_code for found in target.client.ask(commit, 8).topics[0].partitions))
    frame = target.request(9, 7, group_id="large", topics=None)
    target.begin()
    for _ in target.numbers(300):
        send_and_never_read(target, frame * 10, 1)
    target.hold(200)


@attack("100 connections of 20 fetches each that wait for 2,000 partitions")
def wait_for_many_partitions(target: Target) -> None:
    create(target, "wide", partitions=WIDE)
    partitions = [fetch.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000) for number in range(1, WIDE)]
    topics = [fetch.FetchTopic(topic="wide", partitions=partitions)]
    waiting = target.request(1, 12, max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    target.begin()
    for _ in target.numbers(100):
        send_and_never_read(target, waiting * 20, 1)
    target.hold(200)


def send_and_never_read(target: Target, data: bytes, times: int) -> None:
    peer = target.connect_with_a_small_window()
    peer.settimeout(0.05)
    try:
        for _ in range(times):
            peer.sendall(data)
    except OSError:
        pass  # the broker does not read any more, or has closed the connection
