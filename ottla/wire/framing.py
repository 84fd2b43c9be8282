"""Reads and writes the size and the header before each request and response.

A request: int32 size, int16 key, int16 version, int32 correlation id, then (header version 1) the client id with an int16 length, and
(version 2, when the body is flexible) a tag section. A response: int32 size, int32 correlation id, and a tag section when the body is
flexible. There are two exceptions. ControlledShutdown 0 has no client id. The header of the ApiVersions response is never flexible, because
a client that asked for a version that the broker does not have must be able to read it. `apis.py` has the flexible versions.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

from ottla.base.errors import WireError
from ottla.wire.apis import APIS, KEYS
from ottla.wire.codec import writer
from ottla.wire.primitives import encode_string, read_skipped_tags
from ottla.wire.schema import VERSION_MAX, Buffer, Request, Response

FRAME_SIZE_BYTES = 4

API_VERSIONS = KEYS["ApiVersions"]

_CLIENT_ID_SINCE = {key: api.client_id_since for key, api in APIS.items()}
# The first flexible version by key. An API without flexible versions has one more than the highest possible version.
_FIRST_FLEXIBLE = {key: VERSION_MAX + 1 if api.flexible_since is None else api.flexible_since for key, api in APIS.items()}

_read_request_start = struct.Struct(">hhih").unpack_from
REQUEST_START_BYTES = 8
"""Bytes of a request's key, version and correlation id."""
pack_request_start = struct.Struct(">ihhi").pack
"""Packs the size of a request's frame, the key, the version and the correlation id."""
_stamp_response = struct.Struct(">ii").pack_into
_read_int32 = struct.Struct(">i").unpack_from
_read_int32_and_byte = struct.Struct(">iB").unpack_from


def is_flexible(key: int, version: int) -> bool:
    """Whether a version of an API has compact lengths and tags. False for keys that do not exist."""
    return version >= _FIRST_FLEXIBLE.get(key, VERSION_MAX + 1)


def has_client_id(key: int, version: int) -> bool:
    """Whether the header of a request has a client id. True for keys that do not exist."""
    return version >= _CLIENT_ID_SINCE.get(key, 0)


def module_name(key: int) -> str:
    return "ottla.wire.messages." + APIS[key].module


@cache
def load(key: int) -> tuple[type[Request], type[Response]]:
    """Returns the classes of an API's request and response. Imports their module."""
    module = importlib.import_module(module_name(key))
    name = APIS[key].name
    return cast("type[Request]", getattr(module, name + "Request")), cast("type[Response]", getattr(module, name + "Response"))


# Requests, as the broker reads them


def read_request_header(buffer: Buffer, offset: int = 0) -> tuple[int, int, int, str | None, int]:
    """Returns (key, version, correlation id, client id, offset of the body) of the request whose header begins at `offset`, after the size.
    Raises `WireError` if the bytes are not a header.

    The header of an unknown key is read as not flexible; the caller refuses the request anyway.
    """
    try:
        key, version, correlation_id, length = _read_request_start(buffer, offset)
        if not has_client_id(key, version):
            return key, version, correlation_id, None, offset + 8
        end = offset + REQUEST_START_BYTES + 2  # and the length of the client id
        if length >= 0:
            start = end
            end += length
            client_id = str(buffer[start:end], "utf-8")
            if end > len(buffer):
                raise WireError("the frame ends inside the client id")
        else:
            client_id = None
            if length != -1:
                raise WireError(f"a client id cannot have {length} bytes")
        if version < _FIRST_FLEXIBLE.get(key, VERSION_MAX + 1):
            return key, version, correlation_id, client_id, end
        return key, version, correlation_id, client_id, skip_tags(buffer, end)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"not a request header: {error}") from None


@lru_cache(maxsize=256)
def header_reader(client_id_bytes: int) -> Callable[[Buffer], tuple[Any, ...]]:
    """Returns a function that reads headers whose client id takes `client_id_bytes`, including its length. It returns (kind, correlation
    id, bytes of the client id), where kind is key and version as one number, and raises `struct.error` for a shorter frame. A connection
    usually needs only one such function, because its requests have the same client id."""
    return struct.Struct(f">ii{client_id_bytes}s").unpack_from


def skip_tags(buffer: Buffer, offset: int) -> int:
    """Returns the offset after the tag section at `offset`. Its tags are ignored: the protocol defines none for headers."""
    if offset < len(buffer) and buffer[offset] == 0:
        return offset + 1
    end = read_skipped_tags(buffer, offset)
    if end > len(buffer):
        raise WireError("the frame ends inside the header's tags")
    return end


# Responses, as the broker writes them

ResponseT = TypeVar("ResponseT", bound=Response)

_response_writers: dict[tuple[int, int], Any] = {}


def has_flexible_response_header(key: int, version: int) -> bool:
    return key != API_VERSIONS and is_flexible(key, version)


def write_response(cls: type[ResponseT], version: int) -> Callable[[ResponseT, int], bytearray]:
    """Returns a function (response, correlation id) -> the frame, which begins with its size. Callers on the hot path keep the function,
    because each call here costs a look-up.
    """
    write_frame = _response_writers.get((cls.API_KEY, version))
    if write_frame is None:
        write = writer(cls, version)
        head = bytes(9 if has_flexible_response_header(cls.API_KEY, version) else 8)

        def write_frame(response: ResponseT, correlation_id: int) -> bytearray:
            parts: list[Any] = [head]
            write(response, parts)
            frame = bytearray().join(parts)
            _stamp_response(frame, 0, len(frame) - 4, correlation_id)
            return frame

        _response_writers[cls.API_KEY, version] = write_frame
    return write_frame


def response_header(key: int, version: int) -> tuple[Callable[[int, int], bytes], int]:
    """Returns a function (size of the frame, correlation id) -> size and header of a response that is sent in parts
    (`codec.encoder_parts`), and the number of bytes of the header, which the size includes."""
    if has_flexible_response_header(key, version):
        return struct.Struct(">iix").pack, 5
    return struct.Struct(">ii").pack, 4


# Requests as a client writes them, responses as it reads them


def write_request(key: int, version: int, correlation_id: int, client_id: str | None, body: Buffer) -> bytes:
    """Returns the frame of a request, which begins with its size."""
    header_end = request_header_end(key, version, client_id)
    size = REQUEST_START_BYTES + len(header_end) + len(body)
    return b"".join((pack_request_start(size, key, version, correlation_id), header_end, body))


def request_header_end(key: int, version: int, client_id: str | None) -> bytes:
    """Returns the bytes of a request's header behind the correlation id. They are the same in all requests of a connection with this key
    and version."""
    if not has_client_id(key, version):
        return b""
    if client_id is None:
        name = b"\xff\xff"
    else:
        data = encode_string(client_id)
        name = len(data).to_bytes(2, "big") + data
    return name + b"\0" if is_flexible(key, version) else name


def read_response_header(key: int, version: int, buffer: Buffer, offset: int = 0) -> tuple[int, int]:
    """Returns (correlation id, offset of the body) of the response to a request of this key and version. Raises `WireError` if the bytes
    are not a header.
    """
    return response_header_reader(key, version)(buffer, offset)


def response_header_reader(key: int, version: int) -> Callable[[Buffer, int], tuple[int, int]]:
    """Returns `read_response_header` for one key and version: a function (buffer, offset) -> (correlation id, offset of the body)."""
    return _read_flexible_header if has_flexible_response_header(key, version) else _read_plain_header


def _read_plain_header(buffer: Buffer, offset: int) -> tuple[int, int]:
    try:
        return _read_int32(buffer, offset)[0], offset + 4
    except struct.error as error:
        raise WireError(f"not a response header: {error}") from None


def _read_flexible_header(buffer: Buffer, offset: int) -> tuple[int, int]:
    try:
        correlation_id, has_tags = _read_int32_and_byte(buffer, offset)
    except struct.error as error:
        raise WireError(f"not a response header: {error}") from None
    return correlation_id, skip_tags(buffer, offset + 4) if has_tags else offset + 5
