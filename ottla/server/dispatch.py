"""From a request frame to the answer's bytes: header, decode, handler, encode.

A route is the compiled way of one (key, version); it is made at the first request of its kind, from the line of `requests/apis.py`. A key
or version outside the table closes the connection, save ApiVersions, which answers any version (error 35 in a body of version 0), so that
a newer client can find out what we speak. The keys of our extensions are outside for connections that have not asked for them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from struct import Struct
from typing import Any

from ottla.base.errors import WireError
from ottla.base.ports import Part
from ottla.requests.apis import ServedApi
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.levels import served
from ottla.server.connection import Connection
from ottla.server.histogram import new_buckets
from ottla.server.waiters import Waiters
from ottla.wire.codec import decoder, encoder_parts
from ottla.wire.framing import API_VERSIONS, has_client_id, is_flexible, load, response_head, write_response
from ottla.wire.primitives import read_skipped_tags

read_header = Struct(">hhih").unpack_from
HEADER_BYTES = 10
NO_TAGS = b"\0"
DECODED_FACTOR = 8
"""Roughly how much more room a request takes once decoded."""


class Route:
    """How one (key, version) is decoded, handled and encoded, and what it has cost so far."""

    __slots__ = (
        "api_name", "decode", "deferred", "encode_parts", "handle", "has_request_tags", "immediate", "key", "may_have_stray_bytes",
        "nanoseconds", "parked_factor", "parked_nanoseconds", "version", "waited", "write",
    )  # fmt: skip

    def __init__(self, api: ServedApi, version: int, handle: Callable[..., Any]) -> None:
        key = api.key
        request_class, response_class = load(key)
        self.key = key
        self.version = version
        self.api_name = api.name
        self.may_have_stray_bytes = api.may_have_stray_bytes
        self.parked_factor = 1 if api.is_dropped_when_parked else DECODED_FACTOR
        self.handle = handle
        self.decode: Callable[[memoryview, int], tuple[Any, int]] = decoder(request_class, version)
        self.write = write_response(response_class, version)
        self.encode_parts = encoder_parts(response_class, version) if api.has_file_slices else None
        self.has_request_tags = is_flexible(key, version)
        self.nanoseconds = 0
        self.parked_nanoseconds = 0
        # How many requests took a time of so many bits of nanoseconds: answered at once; worked on and answered later; until that answer.
        self.immediate = new_buckets()
        self.deferred = new_buckets()
        self.waited = new_buckets()

    @property
    def count(self) -> int:
        return sum(self.immediate) + sum(self.deferred)


class Dispatcher:
    """Executes the request frames of all connections."""

    def __init__(self, broker: Broker, waiters: Waiters) -> None:
        self._broker = broker
        self._waiters = waiters
        self.routes: dict[int, Route] = {}
        self._now_ns = broker.clock.nanoseconds
        self._last_ns = 0

    def before_batch(self) -> None:
        self._waiters.begin_batch()
        self._last_ns = self._now_ns()

    def after_batch(self) -> None:
        self._waiters.run()

    def flush_later(self, flush: Callable[[], None]) -> bool:
        return self._waiters.after_wakes(flush)

    def execute(self, connection: Connection, frame: memoryview) -> None:
        """Runs one request; its answer goes to the connection now or later. Raises `WireError` for a malformed one."""
        key, version, correlation_id, client_length = read_header(frame, 0)
        route = self.routes.get(key << 16 | version)
        if route is None:
            route = self._route(key, version)
        at = HEADER_BYTES + client_length if client_length > 0 else HEADER_BYTES
        if frame[8:at] != connection.client_id_bytes:
            self._name_client(connection, frame, client_length)
        if route.has_request_tags:
            at = at + 1 if frame[at : at + 1] == NO_TAGS else read_skipped_tags(frame, at)
        body, end = route.decode(frame, at)
        if end != len(frame) and not route.may_have_stray_bytes:
            # The two sides disagree about the message, so what was read may not be what was meant.
            raise WireError(f"{len(frame) - end} bytes behind the end of a {route.api_name} request")
        request = connection.contexts.get(version)
        if request is None:
            request = connection.contexts[version] = RequestContext(version, connection.client_id, connection.info)
        response = route.handle(self._broker, request, body)
        buckets = route.immediate
        if type(response) is Pending:
            buckets = self._answer_later(connection, route, correlation_id, response, len(frame))
        elif response is not None:
            if route.encode_parts is None:
                connection.answer_whole(route.write(response, correlation_id))
            else:
                connection.answer(self._encode(route, correlation_id, response))
        now_ns = self._now_ns()
        elapsed_ns = now_ns - self._last_ns
        buckets[elapsed_ns.bit_length()] += 1
        route.nanoseconds += elapsed_ns
        self._last_ns = now_ns

    def _answer_later(self, connection: Connection, route: Route, correlation_id: int, pending: Pending, size: int) -> list[int]:
        """Answers once the response is there; returns the buckets in which the request's own work is counted."""
        if pending.is_done:
            connection.answer(self._encode(route, correlation_id, pending.response))
            return route.immediate
        slot = connection.reserve(size * route.parked_factor)
        slot.abandon = pending.abandon
        started_ns, parked_ns = self._last_ns, self._now_ns()

        def answer(response: Any) -> None:
            now_ns = self._now_ns()
            route.parked_nanoseconds += now_ns - parked_ns
            route.waited[(now_ns - started_ns).bit_length()] += 1
            connection.fill(slot, self._encode(route, correlation_id, response))

        pending.then(answer)
        return route.deferred

    def _encode(self, route: Route, correlation_id: int, response: Any) -> list[Part]:
        """The answer's parts: one piece of bytes, or for Fetch also slices of files in their places."""
        if response is None:
            return []
        if route.encode_parts is None:
            return [route.write(response, correlation_id)]
        parts: list[Part] = route.encode_parts(response)
        parts[0] = response_head(route.key, route.version, correlation_id, sum(map(len, parts))) + parts[0]  # type: ignore[operator]
        return parts

    def _route(self, key: int, version: int) -> Route:
        """Makes the route of a kind of request that comes for the first time."""
        api = served(self._broker.config.ottla_advertise_level).get(key)
        if api is None:
            raise unknown_key(key)
        handle = importlib.import_module(f"ottla.handlers.{api.module}").handle
        if api.is_extension:
            handle = for_extended_connections(key, handle)
        if not api.min_version <= version <= api.max_version:
            if key != API_VERSIONS:
                raise WireError(f"version {version} of api key {key} is outside {api.min_version}..{api.max_version}")
            return unsupported_api_versions(api)
        route = Route(api, version, handle)
        if not has_client_id(key, version):
            # The one request without a client id: what was read as its length are the body's first bytes.
            decode = route.decode
            route.decode = lambda frame, _at: decode(frame, HEADER_BYTES - 2)
        self.routes[key << 16 | version] = route
        return route

    def _name_client(self, connection: Connection, frame: memoryview, length: int) -> None:
        """Remembers the client id, which is the same in every request of a connection."""
        end = HEADER_BYTES + max(length, 0)
        if length < -1 or end > len(frame):
            raise WireError(f"a client id of {length} bytes")
        try:
            connection.client_id = str(frame[HEADER_BYTES:end], "utf-8") if length >= 0 else None
        except UnicodeDecodeError as error:
            raise WireError("a client id that is not UTF-8") from error
        connection.client_id_bytes = bytes(frame[8:end])
        connection.contexts.clear()


def for_extended_connections(key: int, handle: Callable[..., Any]) -> Callable[..., Any]:
    """A handler of an extension: on a connection that has not asked for extensions its key is as unknown as any other."""

    def handle_if_asked(broker: Broker, request: RequestContext, body: Any) -> Any:
        if not request.connection.has_extensions:
            raise unknown_key(key)
        return handle(broker, request, body)

    return handle_if_asked


def unknown_key(key: int) -> WireError:
    return WireError(f"unknown api key {key}")


def unsupported_api_versions(api: ServedApi) -> Route:
    """The route for ApiVersions in an unknown version: whatever the body, the answer is error 35 in version 0."""
    from ottla.handlers.api_versions import handle_unsupported_version

    route = Route(api, 0, handle_unsupported_version)
    route.decode = lambda frame, _at: (None, len(frame))
    route.has_request_tags = False
    return route
