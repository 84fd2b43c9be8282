"""Messages of a usual shape are read as the general decoder reads them, and so are messages that are nearly of that shape."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.base.errors import WireError
from ottla.wire.codec import bounded_decoder, decoder, encoder
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.instructions import instructions


def a_fetch(version: int, replica_id: int) -> FetchRequest:
    partition = FetchPartition(partition=3, current_leader_epoch=4, fetch_offset=5, log_start_offset=1, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, session_id=7, session_epoch=8, topics=[FetchTopic(partitions=[partition])])
    request.topics[0].topic_id = b"0123456789abcdef"
    if version >= 15 and replica_id >= 0:
        partition.high_watermark = 5
        request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=9)
    return request


def outcome(decode: Callable[[Any, int], Any], frame: bytes) -> object:
    try:
        return decode(frame, 0)
    except WireError as error:
        return str(error)


@pytest.mark.parametrize("version", [12, 13, 17, 18])
@pytest.mark.parametrize("replica_id", [-1, 2])
def test_a_usual_fetch_and_its_neighbours_are_read_as_by_the_general_decoder(version: int, replica_id: int) -> None:
    usual, general = decoder(FetchRequest, version), bounded_decoder(FetchRequest, version, 2000)
    request = a_fetch(version, replica_id)
    if version == 12:
        request.topics[0].topic, request.topics[0].topic_id = "t", bytes(16)
    if version < 18:
        request.topics[0].partitions[0].high_watermark = FetchPartition().high_watermark
    frame = encoder(FetchRequest, version)(request)
    assert usual(frame, 0) == (request, len(frame))
    random = Random(version)
    for at in range(len(frame)):
        for byte in {0, 1, 2, 3, 127, 128, 255, random.randrange(256)}:
            changed = frame[:at] + bytes([byte]) + frame[at + 1 :]
            assert outcome(usual, changed) == outcome(general, changed), (at, byte)


def test_two_requests_share_nothing_that_may_be_changed() -> None:
    decode = decoder(FetchRequest, 18)
    frame = encoder(FetchRequest, 18)(a_fetch(18, 2))
    first, second = decode(frame, 0)[0], decode(frame, 0)[0]
    first.topics[0].partitions.append(FetchPartition())
    first.forgotten_topics_data.append(None)
    assert second == a_fetch(18, 2)


def test_a_usual_fetch_takes_less_than_half_of_the_instructions() -> None:
    frame = encoder(FetchRequest, 18)(a_fetch(18, 2))
    usual, general = decoder(FetchRequest, 18), bounded_decoder(FetchRequest, 18, 2000)
    assert instructions(lambda: usual(frame, 0)) < 0.5 * instructions(lambda: general(frame, 0))
