"""Attacks by the form of a request: very many tagged fields, arrays in arrays, and bodies that contain mostly names."""

from __future__ import annotations

import struct

from ottla.wire.messages import offset_fetch
from tests.hostile.attacks import Target, attack

TAGS = 2_000_000
NO_TAGS = b"\0"


def uvarint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def tags(count: int, first: int = 1_000) -> bytes:
    """Returns this number of unknown, empty tagged fields, in the order of their tags."""
    return uvarint(count) + b"".join(uvarint(tag) + b"\0" for tag in range(first, first + count))


def frame(key: int, version: int, header_tags: bytes, body: bytes) -> bytes:
    """Returns a request with a flexible header."""
    data = struct.pack(">hhih", key, version, 7, 4) + b"wire" + header_tags + body
    return struct.pack(">i", len(data)) + data


@attack("a header of 2 million tags, 5 times")
def tags_in_a_header(target: Target) -> None:
    flood = frame(18, 3, tags(target.part(TAGS)), b"\x05wire\x021" + NO_TAGS)
    target.begin()
    for _ in range(5):
        target.send(flood)


@attack("a body of 2 million tags, 5 times")
def tags_in_a_body(target: Target) -> None:
    flood = frame(18, 3, NO_TAGS, b"\x05wire\x021" + tags(target.part(TAGS)))
    target.begin()
    for _ in range(5):
        target.send(flood)


@attack("Metadata of 20,000 topics with 100 tags each, 3 times")
def tags_in_elements(target: Target) -> None:
    own = tags(100)
    names = [b"topic-%d" % number for number in target.numbers(20_000)]
    topics = b"".join(bytes(16) + uvarint(len(name) + 1) + name + own for name in names)
    flood = frame(3, 12, NO_TAGS, uvarint(len(names) + 1) + topics + b"\0\0" + NO_TAGS)
    target.begin()
    for _ in range(3):
        target.send(flood)


@attack("OffsetFetch of 100 groups of 200 topics of 20 partitions, 5 times in one read")
def arrays_in_arrays(target: Target) -> None:
    topics = [offset_fetch.OffsetFetchRequestTopics(name=f"t{number}", partition_indexes=list(range(20))) for number in range(200)]
    groups = [offset_fetch.OffsetFetchRequestGroup(group_id=f"g{number}", topics=topics) for number in range(100)]
    flood = target.request(9, 8, groups=groups)
    target.begin()
    target.send(*[flood] * 5)


@attack("arrays that say they have 2 billion elements, of 20 APIs, 100 times each")
def arrays_that_lie(target: Target) -> None:
    lies = [frame(key, version, NO_TAGS, b"\xff\xff\xff\xff\x07" * 3) for key, version in LYING]
    target.begin()
    for lie in lies:
        for _ in target.numbers(100):
            target.send(lie)


LYING = (
    (0, 9), (1, 12), (2, 7), (3, 12), (8, 8), (9, 8), (10, 4), (15, 5), (19, 7), (20, 6), (22, 4), (24, 4), (28, 3), (32, 4), (33, 2),
    (35, 2), (37, 2), (43, 2), (45, 0), (61, 0),
)  # fmt: skip
