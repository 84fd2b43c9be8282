"""`ottla wire`: frames explained from digits, files and captures; anything else is an error of one line."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from shutil import which

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.analysis.frames import about, key_of, split_frames
from ottla.analysis.span_messages import note_of, walk_batch, walk_message
from ottla.analysis.spans import SpanReader, as_moment, as_text
from ottla.base.errors import ApiError, WireError
from ottla.cli.inspect.hex_text import from_digits
from ottla.wire.apis import APIS
from ottla.wire.batch_header import stamp_crc
from ottla.wire.codec import encoder
from ottla.wire.framing import write_request, write_response
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.records import Record, encode_batch
from ottla.wire.schema import Message
from tests.cli.conftest import Ottla
from tests.cli.inspect.packet_captures import BROKER, CLIENT, SYN, Segment, ethernet, pcap
from tests.cli.inspect.segment_files import batch
from tests.wire.samples import message_versions, sample

HEARTBEAT = write_request(12, 4, 7, "me", encoder(HeartbeatRequest, 4)(HeartbeatRequest(group_id="g", member_id="m")))
HEARTBEAT_ANSWER = bytes(write_response(HeartbeatResponse, 4)(HeartbeatResponse(error_code=25), 7))


def test_a_request_names_its_api(offline: Ottla) -> None:
    result = offline("wire", HEARTBEAT.hex())
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == f"Heartbeat request, version 4, correlation id 7, {len(HEARTBEAT)} bytes"
    assert lines[1].startswith("  Heartbeat: a member")
    assert "4-5  00 0c" in lines[3]
    assert lines[3].endswith("api_key = 12  (Heartbeat)")
    assert any(line.endswith('group_id = "g"') for line in lines)


def test_a_request_without_its_size(offline: Ottla) -> None:
    result = offline("wire", HEARTBEAT[4:].hex(), "-o", "json")
    (frame,) = result.json()["frames"]
    assert (frame["api"], frame["version"], frame["kind"], frame["problem"]) == ("Heartbeat", 4, "request", None)
    assert b"".join(bytes.fromhex(span["data"]) for span in frame["spans"]) == HEARTBEAT[4:]


def test_several_frames_one_after_the_other(offline: Ottla) -> None:
    assert [end - start for start, end in split_frames(HEARTBEAT * 3)] == [len(HEARTBEAT)] * 3
    result = offline("wire", (HEARTBEAT * 3).hex(), "--brief")
    assert len(result.out.splitlines()) == 3


def test_an_answer_needs_the_words_of_its_request(offline: Ottla) -> None:
    digits = HEARTBEAT_ANSWER.hex()
    result = offline("wire", digits, "--response", "--api", "heartbeat", "--version", "4")
    assert result.code == 0
    assert result.out.splitlines()[0] == f"Heartbeat response, version 4, correlation id 7, {len(HEARTBEAT_ANSWER)} bytes"
    assert "error_code = 25  (UNKNOWN_MEMBER_ID)" in result.out
    assert offline("wire", digits, "--response").code == 2
    assert offline("wire", digits, "--response", "--api", "heartbeat", "--version", "9").code == 2
    assert offline("wire", digits, "--version", "4").code == 2
    unknown = offline("wire", digits, "--response", "--api", "heartbet", "--version", "4")
    assert (unknown.code, unknown.err) == (2, "error: no API 'heartbet'; did you mean 'Heartbeat'?\n")


def test_records_in_a_fetch_answer(offline: Ottla) -> None:
    data = batch(5, 1000) + batch(6, 1001)[:-4]
    partition = PartitionData(partition_index=0, high_watermark=9, records=data)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    result = offline("wire", bytes(write_response(FetchResponse, 11)(answer, 1)).hex(), "--response", "--api", "1", "--version", "11")
    assert result.code == 0
    assert 'value = "value"' in result.out
    assert "incomplete batch" in result.out


def test_an_answer_in_the_oldest_form(offline: Ottla) -> None:
    """A broker that lacks the version of ApiVersions that was asked for answers in version 0."""
    answer = bytes(write_response(ApiVersionsResponse, 0)(ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18)]), 1))
    result = offline("wire", answer.hex(), "--response", "--api", "ApiVersions", "--version", "4")
    assert result.code == 0
    assert "error_code = 35  (UNSUPPORTED_VERSION)" in result.out


@pytest.mark.parametrize("name", ["digits.txt", "raw.bin", "dump.txt"])
def test_files(offline: Ottla, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    dump = "".join(f"{at:08x}: {HEARTBEAT[at : at + 16].hex(' ', 2):<39}  ....\n" for at in range(0, len(HEARTBEAT), 16))
    path.write_bytes({"digits.txt": HEARTBEAT.hex(":").encode() + b"\n", "raw.bin": HEARTBEAT + b"", "dump.txt": dump.encode()}[name])
    result = offline("wire", path, "--brief")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Heartbeat request, version 4")


def test_standard_input(offline: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(HEARTBEAT.hex().encode())))
    assert offline("wire", "--brief").out.startswith("Heartbeat request")


def _recording(*segments: Segment) -> bytes:
    return pcap([ethernet(segment) for segment in segments])


def _conversation() -> bytes:
    versions = write_request(18, 0, 6, "me", encoder(ApiVersionsRequest, 0)(ApiVersionsRequest()))
    asked = versions + HEARTBEAT
    answered = bytes(write_response(ApiVersionsResponse, 0)(ApiVersionsResponse(), 6)) + HEARTBEAT_ANSWER
    return _recording(
        Segment(CLIENT, BROKER, 0, b"", SYN),
        Segment(CLIENT, BROKER, 1, asked[:9]),
        Segment(CLIENT, BROKER, 10, asked[9:]),
        Segment(BROKER, CLIENT, 1, answered[:30]),
        Segment(BROKER, CLIENT, 31, answered[30:]),
    )


def test_a_capture_matches_answers_with_requests(offline: Ottla, tmp_path: Path) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(_conversation())
    result = offline("wire", path, "--brief")
    assert result.code == 0
    titles = [line.split("  ")[-1].partition(", correlation")[0] for line in result.out.splitlines()]
    assert titles == [
        "ApiVersions request, version 0",
        "Heartbeat request, version 4",
        "ApiVersions response, version 0",
        "Heartbeat response, version 4",
    ]
    assert "10.0.0.1:50000 -> 10.0.0.2:9092" in result.out
    only = offline("wire", path, "--api", "Heartbeat", "-o", "json")
    assert [frame["kind"] for frame in only.json()["frames"]] == ["request", "response"]
    by_port = offline("wire", path, "--brief", "--port", "9092")
    assert by_port.out == result.out
    assert offline("wire", path, "--port", "1").code == 1


def test_a_capture_that_began_in_the_middle(offline: Ottla, tmp_path: Path) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(_recording(Segment(CLIENT, BROKER, 1, HEARTBEAT), Segment(BROKER, CLIENT, 1, HEARTBEAT_ANSWER)))
    assert [line.split("  ")[-1].split(",")[0] for line in offline("wire", path, "--brief").out.splitlines()] == [
        "Heartbeat request",
        "Heartbeat response",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello", "is text, but not hexadecimal digits"),
        (HEARTBEAT[:-3], "may not be|needs|are left|version"),
        (b"\0\0\0\x0a\x7f\xff" + bytes(8), "there is no API 32767"),
        (HEARTBEAT[:3] + bytes([HEARTBEAT[3] + 1]) + HEARTBEAT[4:] + b"\0", "1 bytes are left after the last field"),
        (_recording(Segment(CLIENT, BROKER, 1, b"GET / HTTP/1.1\r\n\r\n")), "no frame of the protocol"),
    ],
)
def test_what_is_no_frame(offline: Ottla, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "frame"
    path.write_bytes(content)
    result = offline("wire", path)
    assert result.code == 1
    assert re.search(message, result.err)
    assert result.err.count("\n") == 1


def test_a_problem_in_json_is_in_the_one_object(offline: Ottla) -> None:
    result = offline("wire", HEARTBEAT[4:-2].hex(), "-o", "json")
    assert result.code == 1
    (frame,) = result.json()["frames"]
    assert frame["problem"]


def test_neither_digits_nor_a_file(offline: Ottla) -> None:
    result = offline("wire", "no-such-file.pcap")
    assert (result.code, result.err) == (2, "error: 'no-such-file.pcap' is neither hexadecimal digits nor a file that exists\n")


def test_names_and_sentences_of_every_api() -> None:
    assert key_of("list-offsets") == key_of("ListOffsets") == key_of("2") == 2
    assert key_of("nothing") is None
    assert key_of("9999") is None
    assert all(len(about(key)) > 10 and "\n" not in about(key) for key in APIS)


# Pasted bytes: the output of the usual programs, and literals


DUMPERS = (
    "od -A x -t x1", "od -A x -t x1z", "od", "od -b", "od -x", "od -t x1", "od -A d -t x1", "od -A d", "od -A x",
    "xxd", "xxd -p", "xxd -i", "hexdump -C", "hexdump",
)  # fmt: skip
"""Only od is everywhere; what the others print stands in the rows below too."""
LONG = bytes(range(40)) + bytes(64) + b"|12  34|\n\x00\xff*"


@pytest.mark.parametrize(
    "text",
    [
        "00 0a ff",
        "00:0A:FF",
        "0x00 0x0a 0xff",
        "0x00, 0x0a, 0xff",
        '"\\x00\\x0a\\xff"',
        r"b'\x00\n\xff'",
        '"\\x00\\n\\xff"',
        "unsigned char f[] = {\n  0x00, 0x0a,\n  0xff\n};\nunsigned int f_len = 3;\n",
        "00000000: 000a ff                                  ...",
        "00000000  00 0a ff                                          |...|",
        "00000000  00 0a ff                                          |...|\n00000003\n",
        "000000 00 0a ff\n000003\n",
        "0000000 0a00 00ff\n0000003\n",
        "0x0000:  000a ff",
        "0000000 005000 000377\n0000003\n",
        "0000000 000 012 377\n0000003\n",
    ],
)
def test_layouts_of_digits(text: str) -> None:
    assert from_digits(text) == b"\0\x0a\xff"


CUT = "0000000 000022\n0000020 000377\n0000021\n"


@pytest.mark.parametrize("text", ["", "0", "xyz", "00 0g", "b'x", "b'\\xz'", "0000: 00\n0005: 00\n", "*", "{}", CUT])
def test_what_is_no_digits(text: str) -> None:
    assert from_digits(text) is None


@pytest.mark.parametrize("command", [command for command in DUMPERS if which(command.split()[0]) is not None])
@pytest.mark.parametrize("data", [LONG, LONG[:-1], b"\x00\x12"])
def test_what_programs_print_is_read_back(command: str, data: bytes, tmp_path: Path) -> None:
    program, *options = command.split()
    file = tmp_path / "frame"
    file.write_bytes(data)
    found = subprocess.run([program, *options, str(file)], capture_output=True, text=True, check=True)
    assert from_digits(found.stdout) == data


@given(st.binary(min_size=1, max_size=80))
def test_python_writes_what_is_read(data: bytes) -> None:
    assert from_digits(repr(data)) == data
    assert from_digits(data.hex(" ")) == data


@given(st.text(max_size=200))
def test_any_text_is_bytes_or_nothing(text: str) -> None:
    assert isinstance(from_digits(text), bytes | None)


# The slow reader with positions agrees with the compiled decoders for every message in every version, and every byte has a name


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


@pytest.mark.parametrize(
    ("codec", "message"),
    [(0, "the batch at 1000 ends at 1081, its records at 1071"), (1, "the batch at 1000 has 10 unpacked bytes after its last record")],
)
def test_bytes_after_the_last_record_of_a_batch(codec: int, message: str) -> None:
    data = encode_batch([Record(number, 0, b"k", b"vv") for number in range(2)], codec=codec)
    data[57:61] = (1).to_bytes(4, "big")
    stamp_crc(data, 0, len(data))
    with pytest.raises(WireError, match=message):
        walk_batch(SpanReader(data, base=1000))


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
