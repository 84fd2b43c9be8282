"""The codec, the handler and the measured cost of one API version."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from typing import Any

from ottla.base.errors import WireError
from ottla.base.ports import Part
from ottla.handlers.served_apis import ServedApi
from ottla.server.execution.splitting import PARTS_AT_ONCE, items_of
from ottla.server.monitoring.histogram import new_buckets
from ottla.wire.codec import bounded_decoder, decoder, element_writer, encoder_parts, spliced_writer, step_decoder, step_writer
from ottla.wire.decoding import holds_records
from ottla.wire.framing import is_flexible, load, response_header, write_response

OBJECTS_AT_ONCE_MAX = 2000
"""A request of more than `plain_bytes_max` bytes with more objects than this is decoded in steps; this many take some milliseconds. A
request that can be cut into pieces has another limit, twice the elements of a piece, unless its answer is much larger than the request
(`is_amplified`)."""
PLAIN_BYTES_MAX = 4096
ANY_BYTES = 1 << 31
JOINED_BYTES_MAX = 1 << 20
"""Answers with more bytes are sent in the pieces that the encoder made."""
PLAIN_BYTES_MAX_OF_ITEMS = 512
"""`plain_bytes_max` of requests that can be cut into pieces and have a `parked_factor` above 1: a smaller request is decoded without
counting its objects. For other requests it is `PLAIN_BYTES_MAX`."""


class Route:
    """The compiled codec, the handler and the cost of one (key, version)."""

    def __init__(self, api: ServedApi, version: int, handle: Callable[..., Any]) -> None:
        key = api.key
        request_class, response_class = load(key)
        self.key = key
        self.version = version
        self.api_name = api.name
        self.may_have_stray_bytes = api.may_have_stray_bytes
        self.parked_factor = api.parked_factor
        self.is_change = api.is_change
        self.handle = handle
        self.decode: Callable[[memoryview, int], tuple[Any, int]] = decoder(request_class, version)
        self.write = write_response(response_class, version)
        self.encode_parts = encoder_parts(response_class, version) if api.has_file_slices else None
        self._pack_header, self._header_bytes = response_header(key, version)
        self.has_request_tags = is_flexible(key, version)
        self.has_throttle_time = any(field.name == "throttle_time_ms" for field in response_class.__fields__)
        self.items = items_of(key, version)
        self.is_amplified = self.items is not None and self.items.is_amplified
        self.has_records = holds_records(request_class, version)
        """Whether the decoded request has views of its frame, which the next frame overwrites."""
        is_small_work = self.items is None or api.parked_factor == 1
        self.plain_bytes_max = PLAIN_BYTES_MAX if is_small_work else PLAIN_BYTES_MAX_OF_ITEMS
        self.nanoseconds = 0
        self.cost_ns = 0
        """The moving average of the time that a request of this API version takes, in nanoseconds; 0 if it is below `CHEAP_NS`."""
        self.parked_nanoseconds = 0
        # Histograms in nanoseconds: requests answered immediately; work on requests answered later; wait for these answers.
        self.immediate = new_buckets()
        self.deferred = new_buckets()
        self.waited = new_buckets()

    @property
    def count(self) -> int:
        return sum(self.immediate) + sum(self.deferred)

    # Codecs that only large requests use are compiled at the first large request.

    @cached_property
    def bounded_decoder(self) -> Callable[[memoryview, int], tuple[Any, int]]:
        items = self.items
        objects_max = OBJECTS_AT_ONCE_MAX if items is None or items.is_amplified else 2 * items.at_once
        return bounded_decoder(load(self.key)[0], self.version, objects_max)

    @cached_property
    def step_decoder(self) -> Callable[[memoryview, int], Generator[None, None, tuple[Any, int]]]:
        return step_decoder(load(self.key)[0], self.version)

    @cached_property
    def element_writer(self) -> Callable[[list[Any], list[Any]], Iterator[None]]:
        assert self.items is not None
        return element_writer(load(self.key)[1], self.version, self.items.response)

    @cached_property
    def _spliced_writer(self) -> Callable[[Any, int, list[Any], list[Any]], None]:
        assert self.items is not None
        return spliced_writer(load(self.key)[1], self.version, self.items.response)

    @cached_property
    def step_writer(self) -> Callable[[Any, list[Any], list[Any]], Iterator[None]]:
        return step_writer(load(self.key)[1], self.version)

    def check_end(self, end: int, size: int) -> None:
        """Raises `WireError` for bytes behind the end of a request, because client and broker then disagree about its format. Routes with
        `may_have_stray_bytes` allow such bytes."""
        if end != size and not self.may_have_stray_bytes:
            raise WireError(f"{size - end} bytes behind the end of a {self.api_name} request")

    def framed(self, pieces: list[Any], correlation_id: int) -> list[Part]:
        """Returns the frame of an encoded answer. File slices are kept as separate parts."""
        size = sum(map(len, pieces))
        pieces.insert(0, self._pack_header(size + self._header_bytes, correlation_id))
        return pieces if size > JOINED_BYTES_MAX or self.encode_parts is not None else [b"".join(pieces)]

    def frame_in_steps(self, response: Any, correlation_id: int) -> Generator[None, None, list[Part]]:
        """Encodes an answer in steps, and returns its frame."""
        parts: list[Any] = []
        pieces: list[Any] = []
        for _ in self.step_writer(response, parts, pieces):
            if len(parts) >= PARTS_AT_ONCE:
                pieces.append(b"".join(parts))
                parts.clear()
            yield
        if parts:
            pieces.append(b"".join(parts))
        return self.framed(pieces, correlation_id)

    def spliced_frame(self, shell: Any, count: int, written: list[Any], correlation_id: int) -> list[Part]:
        """Returns the frame of an answer whose elements are already encoded (`written`). `shell` has the answer's other fields."""
        pieces: list[Any] = []
        self._spliced_writer(shell, count, written, pieces)
        return self.framed(pieces, correlation_id)

    def encode(self, response: Any, correlation_id: int) -> list[Part]:
        """Returns the frame of an answer in parts: one piece of bytes or, for Fetch and ShareFetch, also file slices. Returns no parts for
        None, which means that the client wants no answer."""
        if response is None:
            return []
        if self.encode_parts is None:
            return [self.write(response, correlation_id)]
        parts: list[Part] = self.encode_parts(response)
        header = self._pack_header(sum(map(len, parts)) + self._header_bytes, correlation_id)
        parts[0] = header + parts[0]  # type: ignore[operator]
        return parts
