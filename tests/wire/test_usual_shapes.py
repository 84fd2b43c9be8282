"""Messages of a usual shape are read as the general decoder reads them, and so are messages that are nearly of that shape."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.base.errors import WireError
from ottla.wire.codec import bounded_decoder, decoder, encoder
from ottla.wire.decoding import compile_decoder
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.schema import FIXED, Message
from tests.instructions import instructions
from tests.wire.samples import all_messages

USUAL = [(cls, version) for cls in all_messages() for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1) if cls.usual(version)]


def filled(struct: Any, version: int, random: Random, size: int) -> Any:
    """Sets the numbers of an example and of its arrays, and gives its texts and records another length."""
    for field in struct.__fields__:
        value = getattr(struct, field.name)
        if isinstance(value, list):
            for item in value:
                filled(item, version, random, size)
        elif field.kind in FIXED and field.is_in(version) and field.tag is None:
            setattr(struct, field.name, random.randbytes(16) if field.kind == "uuid" else random.choice([True, False, 1, 100]))
        elif value and field.kind == "string":
            setattr(struct, field.name, "ä" * min(size, 60))
        elif value and field.kind == "records":
            setattr(struct, field.name, random.randbytes(size))
    return struct


def outcome(decode: Callable[[Any, int], Any], frame: bytes) -> object:
    try:
        return decode(frame, 0)
    except WireError as error:
        return str(error)


@pytest.mark.parametrize(("cls", "version"), USUAL, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_usual_message_and_its_neighbours_are_read_as_by_the_general_decoder(cls: type[Message], version: int) -> None:
    usual, general = decoder(cls, version), compile_decoder(cls, version, objects_max=10_000)
    random = Random(version)
    for number, example in enumerate(cls.usual(version)):
        for size in (0, 1, 7, 126, 127, 200, 20_000):
            message = filled(cls.usual(version)[number], version, random, size)
            frame = encoder(cls, version)(message)
            assert usual(frame, 0) == general(frame, 0)
            assert usual(frame, 0)[0] == message
        frame = encoder(cls, version)(example)
        for at in range(len(frame)):
            for byte in {0, 1, 2, 3, 127, 128, 129, 255, random.randrange(256)}:
                changed = frame[:at] + bytes([byte]) + frame[at + 1 :]
                assert outcome(usual, changed) == outcome(general, changed), (at, byte)
            assert outcome(usual, frame[:at]) == outcome(general, frame[:at])
            assert outcome(usual, frame + bytes(at + 1)) == outcome(general, frame + bytes(at + 1))


def test_two_messages_share_nothing_that_may_be_changed() -> None:
    frame = encoder(FetchRequest, 18)(FetchRequest.usual(18)[0])
    decode = decoder(FetchRequest, 18)
    first, second = decode(frame, 0)[0], decode(frame, 0)[0]
    first.topics[0].partitions.append(None)
    first.forgotten_topics_data.append(None)
    assert second == FetchRequest.usual(18)[0]


@pytest.mark.parametrize(
    ("cls", "part"), [(FetchRequest, 0.5), (FetchResponse, 0.7), (ProduceRequest, 0.7), (OffsetCommitRequest, 0.7)]
)
def test_a_usual_message_takes_fewer_instructions(cls: type[Message], part: float) -> None:
    version = cls.VERSIONS[1]
    frame = memoryview(encoder(cls, version)(cls.usual(version)[-1]))
    usual, general = decoder(cls, version), bounded_decoder(cls, version, 2000)
    assert instructions(lambda: usual(frame, 0)) < part * instructions(lambda: general(frame, 0))
