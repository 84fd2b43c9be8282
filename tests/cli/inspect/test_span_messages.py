"""The slow reader with positions agrees with the compiled decoders for every message in every version, and every byte has a name."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, WireError
from ottla.cli.inspect.span_messages import note_of, walk_message
from ottla.cli.inspect.spans import SpanReader, as_moment, as_text
from ottla.wire.codec import encoder
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.schema import Message
from tests.wire.samples import message_versions, sample


def _encoded(cls: type[Message], version: int, seed: int) -> bytes:
    return encoder(cls, version)(sample(cls, version, Random(seed)))


@pytest.mark.parametrize("part", range(8))
def test_every_byte_of_every_message_is_named_once(part: int) -> None:
    for number, (cls, version) in enumerate(message_versions()):
        if number % 8 != part:
            continue
        data = _encoded(cls, version, number)
        reader = SpanReader(data)
        try:
            walk_message(reader, cls, version)
        except WireError as error:
            assert "record" in str(error) or "batch" in str(error), (cls, version)  # samples have arbitrary bytes as records
            continue
        assert b"".join(span.data for span in reader.spans if not span.is_unpacked) == data, (cls, version)


def test_values_and_notes() -> None:
    reader = SpanReader(encoder(HeartbeatResponse, 4)(HeartbeatResponse(throttle_time_ms=5, error_code=27)))
    walk_message(reader, HeartbeatResponse, 4)
    found = {span.name: (span.value, span.note) for span in reader.spans}
    assert found["throttle_time_ms"] == (5, "")
    assert found["error_code"] == (27, "REBALANCE_IN_PROGRESS")


def test_null_where_none_may_be() -> None:
    reader = SpanReader(b"\0")
    with pytest.raises(WireError, match="group_id may not be null"):
        walk_message(reader, HeartbeatRequest, 4)
    assert [span.name for span in reader.spans] == ["group_id_length"]


@given(st.binary(max_size=200), st.integers(0, 10_000))
def test_any_bytes_end_in_a_wire_error_or_in_spans(data: bytes, seed: int) -> None:
    choices = message_versions()
    cls, version = choices[seed % len(choices)]
    reader = SpanReader(data)
    try:
        walk_message(reader, cls, version)
    except (WireError, ApiError):
        pass
    named = b"".join(span.data for span in reader.spans if not span.is_unpacked)
    assert data.startswith(named)


def test_a_count_that_no_frame_can_hold_is_refused_before_anything_is_read() -> None:
    with pytest.raises(WireError, match="claims 2000000000 elements"):
        walk_message(SpanReader(b"\xff\xff\xff\xff\0\0\0\0\x77\x35\x94\x00"), ProduceRequest, 3)


def test_words_for_numbers() -> None:
    assert note_of("acks", "i16", -1) == "all in-sync replicas"
    assert note_of("timestamp", "i64", -2) == "earliest"
    assert note_of("start_timestamp_ms", "i64", 0) == "1970-01-01T00:00:00.000Z"
    assert note_of("error_code", "i16", 999) == "unknown error"
    assert as_moment(-1) == "none"
    assert as_moment(1 << 62) == ""


@pytest.mark.parametrize(
    ("data", "text"), [(b"abc", '"abc"'), (b"", '""'), (b"\xff\0", "0xff00"), (b"a\n", "0x610a"), (b"x" * 130, f'"{"x" * 120}"...')]
)
def test_bytes_as_people_read_them(data: bytes, text: str) -> None:
    assert as_text(data) == text
