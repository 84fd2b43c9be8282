"""DescribeFrames: returns the requests that a broker has executed lately, and their answers, as bytes. Ottla's extension.

The first request of a client begins the recording, and the broker records until some seconds after the last one. A pair of request and
answer gets its number when the answer is sent, so numbers have the order of the answers. A response has the pairs after the number `after`,
the oldest first. `request` and `response` have the first bytes of each frame, without its size field. Both are null for APIs that carry
secrets. `response` is also null without an answer.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i16, i32, i64, octets, string

NO_ANSWER_US = -1
"""`duration_us` of a request that gets no answer, such as a Produce with acks=0."""


class DescribeFramesRequest(Request):
    after: int = i64(default=-1)
    bytes_max: int = i32(default=1 << 20)
    """Bytes of frames in the answer. The answer has at least one pair if there is one."""


class FramePair(Struct):
    """A request and its answer. The sizes count the whole frame in bytes, without its size field."""

    number: int = i64()
    at_ms: int = i64()
    duration_us: int = i64()
    client: str = string()
    """Host and port."""
    listener: str = string()
    principal: str = string()
    client_id: str | None = string(nullable=True, default=None)
    api_key: int = i16()
    api_version: int = i16()
    correlation_id: int = i32()
    request_bytes: int = i32()
    response_bytes: int = i32()
    is_secret: bool = boolean()
    request: bytes | None = octets(nullable=True, default=None)
    response: bytes | None = octets(nullable=True, default=None)


class DescribeFramesResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    newest: int = i64(default=-1)
    """The highest number so far. It is below `after` if the broker was started again since."""
    lost: int = i64()
    """Pairs after `after` that are no longer in memory."""
    pairs: list[FramePair] = array(FramePair)
