"""Frames and headers: compared with bytes written by hand, with the declarations of the messages, and with an independent codec; and broken
headers."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as JudgeHeader1
from kio.schema.request_header.v2.header import RequestHeader as JudgeHeader2
from kio.serial import entity_writer

from ottla.base.errors import WireError
from ottla.wire import framing
from ottla.wire.apis import APIS
from ottla.wire.codec import encoder, encoder_parts
from ottla.wire.framing import (
    has_flexible_response_header,
    is_flexible,
    load,
    read_request_header,
    read_response_header,
    request_header_end,
    response_header,
    skip_tags,
    write_request,
    write_response,
)
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatResponse
from tests.wire.samples import sample

CLIENT_IDS = st.one_of(st.none(), st.text(max_size=40))


def test_the_table_needs_no_message() -> None:
    probe = "import sys, ottla.wire.framing; print([name for name in sys.modules if name.startswith('ottla.wire.messages')])"
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_flexible_versions() -> None:
    assert [is_flexible(0, version) for version in (3, 8, 9, 13)] == [False, False, True, True]
    assert not is_flexible(17, 1)
    assert not is_flexible(1234, 5)
    assert has_flexible_response_header(0, 9)
    assert not has_flexible_response_header(18, 3)


def test_request_headers_by_hand() -> None:
    version_1 = bytes.fromhex("0000 0008 0000002a 0003 616263 ffff")
    assert read_request_header(version_1) == (0, 8, 42, "abc", 13)
    version_2 = bytes.fromhex("0000 0009 0000002a 0003 616263 00 ffff")
    assert read_request_header(memoryview(version_2)) == (0, 9, 42, "abc", 14)
    with_tags = bytes.fromhex("0000 0009 0000002a ffff 01 00 02 aabb ffff")
    assert read_request_header(with_tags) == (0, 9, 42, None, 15)
    assert read_request_header(b"\xee" + version_1, 1) == (0, 8, 42, "abc", 14)


def test_controlled_shutdown_0_has_no_client_id() -> None:
    frame = bytes.fromhex("0007 0000 00000005 00000001")
    assert read_request_header(frame) == (7, 0, 5, None, 8)
    assert write_request(7, 0, 5, "ignored", b"") == b"\0\0\0\x08" + frame[:8]
    assert read_request_header(write_request(7, 1, 5, "c", b"")[4:]) == (7, 1, 5, "c", 11)


def test_an_unknown_key_is_read_for_the_caller_to_refuse() -> None:
    assert read_request_header(bytes.fromhex("7fff 7fff 00000001 ffff")) == (32767, 32767, 1, None, 10)


@given(st.sampled_from(sorted(APIS)), st.integers(0, 20), st.integers(-(2**31), 2**31 - 1), CLIENT_IDS)
def test_request_headers_survive_and_an_independent_codec_writes_the_same(
    key: int, version: int, correlation_id: int, client_id: str | None
) -> None:
    start = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big", signed=True)
    header = start + request_header_end(key, version, client_id)
    expected = None if (key, version) == (7, 0) else client_id
    assert read_request_header(header + b"body") == (key, version, correlation_id, expected, len(header))
    frame = write_request(key, version, correlation_id, client_id, b"body")
    assert frame == (len(header) + 4).to_bytes(4, "big") + header + b"body"
    if (key, version) != (7, 0):
        judge = JudgeHeader2 if is_flexible(key, version) else JudgeHeader1
        out = BytesIO()
        values = {"request_api_key": key, "request_api_version": version, "correlation_id": correlation_id, "client_id": client_id}
        entity_writer(judge)(out, judge(**values))  # type: ignore[arg-type]
        assert out.getvalue() == header


@pytest.mark.parametrize("frame", ["", "0000", "0000 0008 0000002a 0003 6162", "0000 0008 0000002a fffe", "0000 0008 0000002a 0001 ff"])
def test_broken_request_headers_are_refused(frame: str) -> None:
    with pytest.raises(WireError):
        read_request_header(bytes.fromhex(frame))


MANY_TAGS = "e907" + "".join(f"{0x80 | tag & 127:02x}{tag >> 7:02x}00" for tag in range(128, 1129))


@pytest.mark.parametrize("tags", ["", "01", "01 00 05 aa", "02 01 00 01 00", "ffffffffff01", MANY_TAGS])
def test_broken_header_tags_are_refused(tags: str) -> None:
    with pytest.raises(WireError):
        read_request_header(bytes.fromhex("0000 0009 0000002a ffff" + tags))
    with pytest.raises(WireError):
        skip_tags(bytes.fromhex(tags), 0)


@given(st.binary(max_size=60))
def test_junk_is_a_wire_error_or_a_header_within_the_frame(junk: bytes) -> None:
    try:
        end = read_request_header(junk)[-1]
    except WireError:
        return
    assert end <= len(junk)


def test_response_frames_by_hand() -> None:
    heartbeat = HeartbeatResponse(error_code=27)
    assert write_response(HeartbeatResponse, 0)(heartbeat, 5) == bytes.fromhex("00000006 00000005 001b")
    assert write_response(HeartbeatResponse, 4)(heartbeat, 5) == bytes.fromhex("0000000c 00000005 00 00000000 001b 00")
    # The header of the answer to ApiVersions is never flexible, its body is.
    assert write_response(ApiVersionsResponse, 3)(ApiVersionsResponse(), 6) == bytes.fromhex("0000000c 00000006 0000 01 00000000 00")


def test_responses_whole_and_in_parts_are_the_same_and_can_be_read() -> None:
    random = Random(3)
    for key in APIS:
        cls = load(key)[1]
        version = cls.VERSIONS[1]
        message = sample(cls, version, random)
        frame = write_response(cls, version)(message, -7)
        parts = encoder_parts(cls, version)(message)
        pack, header_bytes = response_header(key, version)
        assert frame == pack(sum(map(len, parts)) + header_bytes, -7) + b"".join(parts)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, body = read_response_header(key, version, frame, 4)
        assert correlation_id == -7
        assert frame[body:] == encoder(cls, version)(message)


def test_broken_response_headers_are_refused() -> None:
    with pytest.raises(WireError):
        read_response_header(12, 0, b"\0\0\0")
    with pytest.raises(WireError):
        read_response_header(12, 4, b"\0\0\0\1")
    assert read_response_header(18, 3, b"\0\0\0\1") == (1, 4)


def test_a_writer_of_frames_is_made_once() -> None:
    assert write_response(HeartbeatResponse, 4) is write_response(HeartbeatResponse, 4)
    assert framing.module_name(23) == "ottla.wire.messages.offset_for_leader_epoch"
