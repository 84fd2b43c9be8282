"""Explains frames of the protocol: the header and body of a request or response as spans.

The header of a request has the API key and version. A response has neither, so the caller gives both; in a capture the request with the
same correlation id has them. If a frame cannot be explained to its end, `Frame.problem` has the reason, and the spans end before the
unexplained bytes. Bytes behind the last field have a span `left_over`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.analysis.span_messages import walk_message
from ottla.analysis.spans import Span, SpanReader, span_objects
from ottla.base.errors import WireError
from ottla.wire.apis import API_NAMES, APIS
from ottla.wire.framing import API_VERSIONS, FRAME_SIZE_BYTES, has_client_id, has_flexible_response_header, is_flexible, load, module_name
from ottla.wire.primitives import Buffer

FRAME_BYTES_MAX = 1 << 28
"""The largest frame that is explained, in bytes: 256 MiB. Also the limit of the input."""


class Frame:
    """An explained frame. `problem` is empty, or says why the frame could not be explained to its end."""

    def __init__(self, is_response: bool, spans: list[Span], size: int) -> None:
        self.is_response, self.spans, self.size = is_response, spans, size
        self.api_key = self.version = self.correlation_id = -1
        self.problem = ""

    @property
    def title(self) -> str:
        kind = "response" if self.is_response else "request"
        name = API_NAMES.get(self.api_key, f"key {self.api_key}")
        return f"{name} {kind}, version {self.version}, correlation id {self.correlation_id}, {self.size} bytes"


class SeenFrame(NamedTuple):
    """A frame with its time and endpoints in a capture; `place` is empty without a capture."""

    frame: Frame
    place: str


def key_of(text: str) -> int | None:
    """Returns the key of an API named by number or by name (`list-offsets`, `ListOffsets` or `list_offsets`). None for an unknown API."""
    if text.isdecimal():
        return int(text) if int(text) in APIS else None
    plain = re.sub("[^a-z]", "", text.lower())
    return next((key for key, name in API_NAMES.items() if name.lower() == plain), None)


def about(key: int) -> str:
    """Returns a description of an API: the first paragraph of the docstring of its message module, without the full stop."""
    text = importlib.import_module(module_name(key)).__doc__ or ""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).rstrip(".")


def split_frames(data: Buffer) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of each frame with its size field. From the first size that does not fit, the rest of the data is one frame."""
    position, end = 0, len(data)
    while position < end:
        size = int.from_bytes(data[position : position + FRAME_SIZE_BYTES], "big", signed=True)
        if end - position < FRAME_SIZE_BYTES or not 0 < size <= end - position - FRAME_SIZE_BYTES:
            yield position, end
            return
        yield position, position + FRAME_SIZE_BYTES + size
        position += FRAME_SIZE_BYTES + size


def looks_like_request(data: Buffer) -> bool:
    """Returns whether a frame begins with a known API key and a version up to one above the highest known."""
    start = _body_start(data)
    if len(data) - start < 8:
        return False
    key = int.from_bytes(data[start : start + 2], "big", signed=True)
    version = int.from_bytes(data[start + 2 : start + 4], "big", signed=True)
    return key in APIS and 0 <= version <= APIS[key].highest + 1


def explain_request(data: Buffer, base: int = 0) -> Frame:
    """Explains a request, with or without its size field. `base` is added to the shown positions."""
    frame, reader = _begun(data, base, is_response=False)
    try:
        key = frame.api_key = reader.fixed("api_key", "h", lambda found: API_NAMES.get(found, "no such API"))
        version = frame.version = reader.fixed("api_version", "h")
        frame.correlation_id = reader.fixed("correlation_id", "i", "the response has the same number")
        if key not in APIS:
            raise WireError(f"there is no API {key}; a response needs --response with --api and --version")
        if has_client_id(key, version):
            length = reader.fixed("client_id_length", "h", lambda found: "null" if found == -1 else "")
            if length >= 0:
                reader.octets("client_id", length)
        if is_flexible(key, version):
            reader.uvarint("header_tagged_fields")
        _walk_body(reader, frame)
    except WireError as error:
        frame.problem = str(error)
    return frame


def explain_response(data: Buffer, key: int, version: int, base: int = 0) -> Frame:
    """Explains the response to a request of this key and version."""
    frame, reader = _begun(data, base, is_response=True)
    frame.api_key, frame.version = key, version
    try:
        frame.correlation_id = reader.fixed("correlation_id", "i", "of the request that is answered")
        if key == API_VERSIONS and bytes(data[reader.position : reader.position + 2]) == b"\0\x23":
            frame.version = 0  # a broker without the requested version answers in version 0 (KIP-511)
        if has_flexible_response_header(key, frame.version):
            reader.uvarint("header_tagged_fields")
        _walk_body(reader, frame)
    except WireError as error:
        frame.problem = str(error)
    return frame


def _begun(data: Buffer, base: int, *, is_response: bool) -> tuple[Frame, SpanReader]:
    """Returns a frame without header and body, and a reader at the header. Reads the size field if there is one."""
    reader = SpanReader(data, base=base)
    if _body_start(data):
        reader.fixed("size", "i", "bytes that follow")
    return Frame(is_response, reader.spans, len(data)), reader


def _walk_body(reader: SpanReader, frame: Frame) -> None:
    key, version = frame.api_key, frame.version
    lowest, highest = APIS[key].lowest, APIS[key].highest
    if not lowest <= version <= highest:
        raise WireError(f"{API_NAMES[key]} has versions {lowest} to {highest}, not {version}")
    walk_message(reader, load(key)[1 if frame.is_response else 0], version)
    if reader.left:
        left = reader.left
        reader.octets("left_over", left)
        raise WireError(f"{left} bytes are left after the last field")


def _body_start(data: Buffer) -> int:
    """Returns the position of the header: 4 if the data begins with a size field that fits the data, else 0."""
    size = int.from_bytes(data[:FRAME_SIZE_BYTES], "big", signed=True)
    return FRAME_SIZE_BYTES if len(data) > FRAME_SIZE_BYTES and size == len(data) - FRAME_SIZE_BYTES else 0


def frame_object(frame: Frame) -> dict[str, Any]:
    """Returns a frame as a JSON object. Its fields are in `spans`."""
    return {
        "kind": "response" if frame.is_response else "request",
        "api": API_NAMES.get(frame.api_key),
        "api_key": frame.api_key,
        "version": frame.version,
        "correlation_id": frame.correlation_id,
        "size": frame.size,
        "problem": frame.problem or None,
        "spans": span_objects(frame.spans),
    }
