"""`ottla wire`: frames explained from digits, files and captures; anything else is an error of one line."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from ottla.cli.inspect.frames import about, key_of, split_frames
from ottla.wire.apis import APIS
from ottla.wire.codec import encoder
from ottla.wire.framing import write_request, write_response
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.cli.conftest import Ottla
from tests.cli.inspect.packet_captures import BROKER, CLIENT, SYN, Segment, ethernet, pcap
from tests.cli.inspect.segment_files import batch

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
    (frame,) = json.loads(result.out)["frames"]
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
    assert [frame["kind"] for frame in json.loads(only.out)["frames"]] == ["request", "response"]
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
    (frame,) = json.loads(result.out)["frames"]
    assert frame["problem"]


def test_neither_digits_nor_a_file(offline: Ottla) -> None:
    result = offline("wire", "no-such-file.pcap")
    assert (result.code, result.err) == (2, "error: 'no-such-file.pcap' is neither hexadecimal digits nor a file that exists\n")


def test_names_and_sentences_of_every_api() -> None:
    assert key_of("list-offsets") == key_of("ListOffsets") == key_of("2") == 2
    assert key_of("nothing") is None
    assert key_of("9999") is None
    assert all(len(about(key)) > 10 and "\n" not in about(key) for key in APIS)
