"""Executes request frames: header, decoding, handler, encoding of the answer.

A route (`route.py`) holds the compiled codec of one API version and its handler; it is made at the first request of that version. Large
requests run in time slices (`long_requests.py`); `scheduler.py` decides how long a connection may execute requests. A request with an API
key or version that is not served closes the connection. Exception: ApiVersions in an unknown version is answered with error 35 in a body of
version 0, so that a newer client learns the versions of this broker. The keys of Ottla's extensions are not served to connections that have
not asked for them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as StructError
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.base.identifiers import CLIENT_ID_CHARACTERS_MAX
from ottla.base.loop.guarded import call_guarded, guarded
from ottla.handlers.advertised_levels import served
from ottla.handlers.context import Broker, ConnectionInfo, ForwardedAnswer, Pending, RequestContext, Task
from ottla.handlers.served_apis import ServedApi
from ottla.server.connection import Connection
from ottla.server.execution.first_metadata import FirstMetadata
from ottla.server.execution.long_requests import FIRST_PIECE_NS, LongRequest, LongRequests, settled
from ottla.server.execution.route import ANY_BYTES, Route
from ottla.server.execution.scheduler import COSTLY_NS, Scheduler
from ottla.server.execution.splitting import has_many_items
from ottla.server.execution.waiters import Waiters
from ottla.server.memory.answer_memory import WAITING_REQUEST_BYTES, Slot
from ottla.server.memory.receive_buffer import SHARED_BYTES
from ottla.wire.decoding import ManyObjects
from ottla.wire.framing import API_VERSIONS, FRAME_SIZE_BYTES, has_client_id, header_reader, read_request_header
from ottla.wire.primitives import read_skipped_tags

if TYPE_CHECKING:
    from ottla.handlers.configs.tls_changes import TlsChanges
    from ottla.server.execution.forwarding import Forwarder
    from ottla.server.quotas.throttling import Throttling

read_least_header = header_reader(2)
read_kind = Struct(">i").unpack_from
read_key_and_version = Struct(">hh").unpack_from
read_length = Struct(">h").unpack_from
CLIENT_ID_AT = 8
CLIENT_ID_BYTES_KEPT = 4 * CLIENT_ID_CHARACTERS_MAX


class Dispatcher:
    """Executes the request frames of all connections."""

    def __init__(self, broker: Broker, waiters: Waiters, forwarder: Forwarder | None = None) -> None:
        """`forwarder` is None for a single broker."""
        self._broker = broker
        self._forwarder = forwarder
        self.first_metadata = FirstMetadata(broker.timers)
        self.flush_later = waiters.after_wakes
        self.routes: dict[int, Route] = {}  # by kind: key and version as one number
        self.long_requests = LongRequests(broker.clock, broker.timers)
        self.scheduler = Scheduler(broker.clock, broker.timers, self.long_requests.turns, waiters)
        self.now_ns = broker.clock.nanoseconds
        self.throttling: Throttling | None = None
        """None while no client has a quota."""
        self.tls_changes: TlsChanges | None = None
        """None if no listener has TLS."""
        self.execute: Callable[[Connection, memoryview], bool] = self._execute
        """Executes one request and gives the answer to the connection, now or later. Returns whether the time slice is over. Raises
        `WireError` for a malformed request. `FrameWatch` replaces this function while frames are recorded."""

    def limit(self, throttling: Throttling | None) -> None:
        """Charges requests to these quotas from now on; None while no client has a quota."""
        self.throttling = self.long_requests.throttling = throttling

    def owes(self, connection: Connection, frame: memoryview) -> bool:
        throttling = self.throttling
        connection.is_new = throttling is not None and throttling.throttle_new(connection, read_request_header(frame)[3])
        return connection.is_new

    def is_throttled(self, connection: Connection) -> bool:
        return self.throttling is not None and self.throttling.is_throttled(connection)

    def _execute(self, connection: Connection, frame: memoryview) -> bool:
        scheduler = self.scheduler
        try:
            kind, correlation_id, client_id_bytes = connection.read_header(frame)
        except StructError:  # The frame is shorter than the header of the last request.
            kind, correlation_id, client_id_bytes = read_least_header(frame)
        route = self.routes.get(kind)
        if route is None:
            route = self._route(*read_key_and_version(frame, 0))
        if client_id_bytes != connection.client_id_bytes:
            self._name_client(connection, frame)
        at, size = connection.header_bytes, len(frame)
        if route.has_request_tags:
            at = at + 1 if at < size and not frame[at] else read_skipped_tags(frame, at)
        request = connection.contexts.get(route.version)
        if request is None:
            request = connection.contexts[route.version] = RequestContext(route.version, connection.client_id, connection.info)
        try:
            body, end = (route.decode if size <= route.plain_bytes_max else route.bounded_decoder)(frame, at)
        except ManyObjects:
            return self._begin_long(connection, route, request, correlation_id, frame, at, None)
        if end != size:
            route.check_end(end, size)
        if route.is_amplified and has_many_items(body, route.items):
            return self._begin_long(connection, route, request, correlation_id, frame, at, body)
        response = route.handle(self._broker, request, body)
        if type(response) is GeneratorType:
            response = self.first_slice(route, response)
            if type(response) is GeneratorType:
                return self._begin_long(connection, route, request, correlation_id, frame, at, body, response)
        if self.throttling is not None:
            spent_ns = self.now_ns() - scheduler.last_ns
            self.throttling.charge(connection, route, request, response, size, spent_ns)
        buckets = route.immediate
        if type(response) is Pending:
            buckets = self._answer_later(connection, route, correlation_id, response, size)
        elif response is not None:
            if route.encode_parts is None:
                connection.answers.add_whole(route.write(response, correlation_id))
            else:
                connection.answers.add(route.encode(response, correlation_id))
        now_ns = self.now_ns()
        elapsed_ns = now_ns - scheduler.last_ns
        buckets[elapsed_ns.bit_length()] += 1
        route.nanoseconds += elapsed_ns
        scheduler.last_ns = now_ns
        if elapsed_ns > COSTLY_NS or connection.cost_ns or route.cost_ns:
            scheduler.measure(connection, route, elapsed_ns)
        return now_ns > scheduler.slice_end_ns

    def first_slice(self, route: Route, response: Any) -> Any:
        """Runs a task for `FIRST_PIECE_NS` or until the current time slice is over, whichever is shorter, but at least one step. Returns
        its result, or the task if it is not done. A task whose request has records runs to its end: they are views of a buffer that the
        next frame overwrites."""
        end_ns = min(self.scheduler.slice_end_ns, self.now_ns() + FIRST_PIECE_NS)
        task = settled(response)
        try:
            while True:
                next(task)
                if self.now_ns() >= end_ns and not route.has_records:
                    return task
        except StopIteration as end:
            return end.value

    def is_likely_costly(self, connection: Connection, frame: memoryview, at: int, size: int) -> bool:
        kind = read_kind(frame, at)[0]
        return self.scheduler.is_likely_costly(connection, self.routes.get(kind), kind, size)

    def _begin_long(
        self, connection: Connection, route: Route, request: RequestContext, correlation_id: int, frame: memoryview, at: int, body: Any,
        task: Task | None = None,
    ) -> bool:  # fmt: skip
        """Executes a large request, or the rest of a handler's task, alternating with other long requests. `body` is None if it is not
        decoded yet. `task` is the unfinished task of its handler."""
        started_ns, size = self.scheduler.last_ns, len(frame)
        slot = Slot(None, size * route.parked_factor)
        connection.block(slot)
        long = LongRequest(self.long_requests, self._broker, connection, route, request, correlation_id, slot)
        long.frame_bytes = size
        if body is None:
            long.decode_in_steps(connection.kept(frame), at, is_large=size > SHARED_BYTES)
        self.long_requests.begin(long, body, task)
        now_ns = self.scheduler.last_ns = self.now_ns()
        elapsed_ns = now_ns - started_ns
        route.deferred[elapsed_ns.bit_length()] += 1
        route.nanoseconds += elapsed_ns
        self.scheduler.measure(connection, route, elapsed_ns)
        return now_ns > self.scheduler.slice_end_ns

    def _answer_later(self, connection: Connection, route: Route, correlation_id: int, pending: Pending, size: int) -> list[int]:
        """Answers with a request now or later. Returns the histogram for the time that the request has taken so far."""
        if pending.is_done and pending.error is None:
            if connection.info.must_authenticate_again:
                self.scheduler.end_slice()  # The next requests are a new login and must see its state.
            if type(pending.response) is not GeneratorType and type(pending.response) is not Pending:
                connection.answers.add(route.encode(pending.response, correlation_id))
                return route.immediate
        kept_bytes = WAITING_REQUEST_BYTES + size * route.parked_factor if pending.keeps_request else WAITING_REQUEST_BYTES
        is_change = route.is_change or pending.is_change
        waiting = UnansweredRequest(self, connection, route, correlation_id, kept_bytes, pending.abandon, is_change)
        # One change at a time: thousands of changes in a row would delay the changes of all other clients.
        (connection.block if is_change else connection.answers.hold)(waiting)
        if pending.is_done:
            pending.then(waiting.arrived, connection.fail)
        else:  # as `then` does, without a call
            pending.answered, pending.failed = waiting.arrived, connection.fail
        return route.deferred

    def _route(self, key: int, version: int) -> Route:
        """Creates the route of an API version at its first request. Raises `WireError` for an unserved key or version."""
        api = served(self._broker.config.ottla_advertise_level).get(key)
        if api is None:
            raise unknown_key(key)
        module = importlib.import_module(f"ottla.handlers.{api.handler}")
        handle = module.handle
        if api.is_extension:
            handle = for_extended_connections(key, handle)
        if api.is_forwarded and self._forwarder is not None:
            handle = self._forwarder.forwarding(api, version, handle)
        if api.awaits_metadata and self._forwarder is not None:
            handle = self.first_metadata.awaiting(handle)
        if hasattr(module, "wanted_change"):
            from ottla.handlers.configs.named_brokers import refusing_other_brokers  # on use: few clients alter settings
            from ottla.handlers.configs.password_changes import encrypting_passwords

            handle = encrypting_passwords(module, handle)
            if self.tls_changes is not None:
                handle = self.tls_changes.guarding(module, handle)
            handle = refusing_other_brokers(module, handle)
        if not api.min_version <= version <= api.max_version:
            if key != API_VERSIONS:
                raise WireError(f"version {version} of api key {key} is outside {api.min_version}..{api.max_version}")
            return unsupported_api_versions(api)
        route = Route(api, version, handle)
        if not has_client_id(key, version):
            # This request has no client id; the bytes that were read as its length are the first bytes of the body.
            decode = route.decode
            route.decode = lambda frame, _at: decode(frame, CLIENT_ID_AT)
            route.plain_bytes_max = ANY_BYTES
        self.routes[key << 16 | version] = route
        return route

    def execute_forwarded(self, request: bytes, client: ConnectionInfo, done: ForwardedAnswer) -> None:
        """Executes a request that another broker has forwarded. Calls `done` with the answer without its size, or with the error. Raises
        `ApiError`, `WireError`."""
        frame = memoryview(request)
        key, version, correlation_id, client_id, at = read_request_header(frame)
        api = served(self._broker.config.ottla_advertise_level).get(key)
        if api is None or not api.is_forwarded or not api.min_version <= version <= api.max_version:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"version {version} of api key {key} is not for the controller")
        route = self.routes.get(key << 16 | version) or self._route(key, version)
        context = RequestContext(version, client_id, client)
        if len(frame) > SHARED_BYTES:  # The other broker has already split the request into pieces if necessary.
            self.long_requests.turns.add_later(guarded(self._execute_forwarded(route, context, correlation_id, frame, at, done), done))
            return
        body, end = route.decode(frame, at)
        route.check_end(end, len(frame))
        started_ns = self.now_ns()
        response = route.handle(self._broker, context, body)
        self._answer_forwarded(route, context, correlation_id, response, self.now_ns() - started_ns, done)

    def _execute_forwarded(
        self, route: Route, context: RequestContext, correlation_id: int, frame: memoryview, at: int, done: ForwardedAnswer
    ) -> Iterator[None]:
        """Executes a large forwarded request in steps."""
        try:
            body, end = yield from route.step_decoder(frame, at)
            route.check_end(end, len(frame))
            response = route.handle(self._broker, context, body)
        except (ApiError, WireError) as refusal:
            done(refusal.code if isinstance(refusal, ApiError) else ErrorCode.INVALID_REQUEST)
            return
        self._answer_forwarded(route, context, correlation_id, response, 0, done)

    def _answer_forwarded(
        self, route: Route, context: RequestContext, correlation_id: int, response: Any, spent_ns: int, done: ForwardedAnswer
    ) -> None:
        """Gives `done` the response of a handler, of its task or of its `Pending`."""

        def answer(found: Any) -> None:
            self._answer_forwarded(route, context, correlation_id, found, spent_ns, done)

        def run(task: Task) -> Iterator[None]:
            answer((yield from task))

        if isinstance(response, GeneratorType):
            self.long_requests.turns.add_later(guarded(run(response), done))
        elif isinstance(response, Pending):
            response.then(answer, done)
        else:
            if self.throttling is not None:
                self.throttling.charge_forwarded(route, context, response, spent_ns)
            self.long_requests.turns.add(guarded(self._encode_forwarded(route, correlation_id, response, done), done))

    def _encode_forwarded(self, route: Route, correlation_id: int, response: Any, done: ForwardedAnswer) -> Iterator[None]:
        frame: list[Any] = yield from route.frame_in_steps(response, correlation_id)
        done(b"".join(frame)[FRAME_SIZE_BYTES:])

    def _name_client(self, connection: Connection, frame: memoryview) -> None:
        """Remembers the client id of a connection. Raises `WireError` if it is malformed. A request whose header has no client id changes
        nothing."""
        if not has_client_id(*read_key_and_version(frame, 0)):
            return
        (length,) = read_length(frame, CLIENT_ID_AT)
        start = CLIENT_ID_AT + 2
        end = start + max(length, 0)
        if length < -1 or end > len(frame):
            raise WireError(f"a client id of {length} bytes")
        try:
            connection.client_id = str(frame[start:end], "utf-8")[:CLIENT_ID_CHARACTERS_MAX] if length >= 0 else None
        except UnicodeDecodeError as error:
            raise WireError("a client id that is not UTF-8") from error
        # A long client id is not kept as bytes; it is decoded again in each request.
        connection.client_id_bytes = bytes(frame[CLIENT_ID_AT:end]) if end - start <= CLIENT_ID_BYTES_KEPT else b""
        connection.read_header, connection.header_bytes = header_reader(end - CLIENT_ID_AT), end
        connection.contexts.clear()


class UnansweredRequest(Slot):
    """The slot of a request that waits for its response."""

    __slots__ = ("_connection", "_correlation_id", "_dispatcher", "_is_change", "_parked_ns", "_route", "_started_ns")

    def __init__(
        self, dispatcher: Dispatcher, connection: Connection, route: Route, correlation_id: int, size: int,
        abandon: Callable[[], None] | None, is_change: bool,
    ) -> None:  # fmt: skip
        self.parts = None
        self.size = size
        self.abandon = abandon
        self._dispatcher = dispatcher
        self._connection = connection
        self._route = route
        self._correlation_id = correlation_id
        self._is_change = is_change
        self._started_ns = dispatcher.scheduler.last_ns
        self._parked_ns = dispatcher.now_ns()

    def arrived(self, response: Any) -> None:
        """Answers the request with a response, or with the response of a task or of another `Pending`."""
        is_later = type(response) is GeneratorType or type(response) is Pending
        call_guarded(self._take if is_later else self._answer, self._connection.fail, response)

    def _take(self, response: Any) -> None:
        connection, dispatcher = self._connection, self._dispatcher
        if type(response) is GeneratorType:
            response = dispatcher.first_slice(self._route, response)
        if type(response) is GeneratorType:
            dispatcher.long_requests.turns.add_later(connection.guarded(self._take_in_steps(response)))
        elif type(response) is Pending:
            self.abandon = response.abandon
            response.then(self.arrived, connection.fail)
        else:
            self._answer(response)

    def _take_in_steps(self, task: Task) -> Iterator[None]:
        self._take((yield from task))

    def _answer(self, response: Any) -> None:
        connection, route, dispatcher = self._connection, self._route, self._dispatcher
        now_ns = dispatcher.now_ns()
        route.parked_nanoseconds += now_ns - self._parked_ns
        route.waited[(now_ns - self._started_ns).bit_length()] += 1
        if dispatcher.throttling is not None:
            dispatcher.throttling.note(connection, route, response)
        if self._is_change:
            connection.release()
        connection.fill(self, route.encode(response, self._correlation_id))


def for_extended_connections(key: int, handle: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the handler of an extension. On connections that have not asked for extensions it raises the `WireError` of an unknown key."""

    def handle_if_asked(broker: Broker, request: RequestContext, body: Any) -> Any:
        if not request.connection.has_extensions:
            raise unknown_key(key)
        return handle(broker, request, body)

    return handle_if_asked


def unknown_key(key: int) -> WireError:
    return WireError(f"unknown api key {key}")


def unsupported_api_versions(api: ServedApi) -> Route:
    """Returns the route for ApiVersions in an unknown version: the body is ignored, and the answer is error 35 in version 0."""
    from ottla.handlers.cluster.api_versions import handle_unsupported_version

    route = Route(api, 0, handle_unsupported_version)
    route.decode = lambda frame, _at: (None, len(frame))
    route.plain_bytes_max = ANY_BYTES
    route.has_request_tags = False
    return route
