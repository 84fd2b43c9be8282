"""Requests that are too much for one turn of the loop: decoded, executed and encoded in steps, in order within their connection.

A request that names many things is cut into requests of a few (`requests/pieces.py`), each of which its handler answers; the answers are
put together (`requests/long_answer.py`). The first piece of time is spent at once, so that what is small is answered as if there were no
turns. What remains goes on in fair turns with all others that are unfinished (`base/turns.py`), and until all of it is executed its
connection executes nothing else. The answer may be given later still, as that of any request.

Bounds. Of large frames, which hold many objects once decoded, only so many are decoded and answered at a time; others wait with their
bytes alone. At most `PIECES_OUTSTANDING_MAX` pieces of a request wait for others (a replica, the controller). Once the answer's elements
are larger than `ottla.response.max.bytes`, what the request names further is refused with POLICY_VIOLATION and not looked up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.ports import Clock, Part, Timers
from ottla.base.turns import Turns
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.items import Items
from ottla.requests.long_answer import LongAnswer
from ottla.requests.pieces import cut, gather, item_count, refuse
from ottla.server.connection import Connection, Slot
from ottla.server.route import Route
from ottla.wire.framing import load

PIECE_MS = 10
FIRST_PIECE_NS = 5_000_000
LARGE_AT_ONCE_MAX = 2
PIECES_OUTSTANDING_MAX = 16
TOO_LARGE = "The answer would be larger than ottla.response.max.bytes."


class LongRequests:
    """All long requests of this broker, and the connections whose turn is over."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self.turns = Turns(clock, timers, piece_ms=PIECE_MS, is_fair=True)
        self.turns.begin()
        self.now_ns = clock.nanoseconds
        self._large_count = 0
        self._large_waiting: deque[LongRequest] = deque()

    def begin(self, request: LongRequest, body: Any) -> None:
        """Executes the first piece of a request, or all of it; `body` counts where it is not decoded in steps."""
        request.body = body
        if request.is_large:
            if self._large_count >= LARGE_AT_ONCE_MAX:
                self._large_waiting.append(request)
                return
            self._large_count += 1
        self.run(request, request.begin())

    def run(self, request: LongRequest, steps: Iterator[object]) -> None:
        """Runs steps of a request: some at once, the others in turns."""
        guarded = request.connection.guarded(steps)
        end_ns = self.now_ns() + FIRST_PIECE_NS
        for _ in guarded:
            if self.now_ns() >= end_ns:
                self.turns.add_later(guarded)
                return

    def resume_later(self, connection: Connection) -> None:
        """Lets a connection go on that has had its time, behind what waits already."""
        self.turns.add_later(connection.resumed())

    def large_done(self) -> None:
        """A large request holds nothing any more: the next one may begin."""
        self._large_count -= 1
        if self._large_waiting:
            request = self._large_waiting.popleft()
            self._large_count += 1
            self.turns.add_later(request.connection.guarded(request.begin()))


class LongRequest:
    """One request from its frame, or from its decoded body, to the answer's bytes in its slot."""

    def __init__(
        self, owner: LongRequests, broker: Broker, connection: Connection, route: Route, context: RequestContext, correlation_id: int,
        slot: Slot,
    ) -> None:  # fmt: skip
        self._owner = owner
        self._broker = broker
        self.connection = connection
        self._route = route
        self._context = context
        self._correlation_id = correlation_id
        self._slot = slot
        self._frame: memoryview | None = None
        self._at = 0
        self._pieces: Iterator[tuple[Any, bool]] = iter(())
        self._answer: LongAnswer | None = None
        self._outstanding: dict[int, Pending] = {}
        self._is_suspended = False
        self._is_executed = False
        self._is_over = False
        self._began_ns = owner.now_ns()
        self.body: Any = None
        self.is_large = False
        slot.abandon = self.abandon

    def decode_in_steps(self, frame: memoryview, at: int, *, is_large: bool) -> None:
        """Has the request decoded as its first steps."""
        self._frame, self._at, self.is_large = frame, at, is_large

    def begin(self) -> Iterator[None]:
        """The steps up to the answer, or up to where others must be waited for."""
        yield from self._to_the_end(self._begin())

    def _begin(self) -> Generator[None, None, None]:
        if self._frame is not None:
            self.body, end = yield from self._route.step_decoder(self._frame, self._at)
            self._route.check_end(end, len(self._frame))
        items, body = self._route.items, self.body
        self.body = None
        if items is None or item_count(body, items) <= 1:
            yield from self._execute_whole(body)
            return
        yield from gather(body, items)
        self._pieces = cut(body, items)
        self._answer = LongAnswer(self._route, items)
        del body
        yield from self._execute_pieces(self._answer, items)

    def _let_connection_go_on(self) -> None:
        self._frame = None
        self._is_executed = True
        self.connection.release()

    # A request that cannot be cut

    def _execute_whole(self, body: Any) -> Generator[None, None, None]:
        route = self._route
        if route.handle_in_steps is not None:
            response = yield from route.handle_in_steps(self._broker, self._context, body)
        else:
            response = route.handle(self._broker, self._context, body)
        del body
        self._let_connection_go_on()
        if type(response) is Pending and not response.is_done:
            self._outstanding[0] = response
            response.then(lambda answer: self._owner.run(self, self._to_the_end(self._encode_whole(answer))))
        else:
            yield from self._encode_whole(response.response if type(response) is Pending else response)

    def _encode_whole(self, response: Any) -> Generator[None, None, None]:
        self._outstanding.clear()
        route = self._route
        if isinstance(response, Generator):  # an answer that is made in steps
            response = yield from response
        if response is None or route.encode_parts is not None:
            self._respond(route.encode(response, self._correlation_id))
            return
        pieces: list[Any] = []
        yield from route.step_writer(response, pieces)
        self._respond(route.framed([b"".join(pieces)], self._correlation_id))

    # One that is cut

    def _execute_pieces(self, answer: LongAnswer, items: Items) -> Iterator[None]:
        for piece, is_end in self._pieces:
            if self._is_over:
                return
            number = answer.expect(is_end=is_end)
            response = self._executed(piece, items, answer)
            if type(response) is Pending:
                if not response.is_done:
                    self._outstanding[number] = response
                    response.then(lambda found, number=number: self._arrived(number, found))  # type: ignore[misc]
                    if len(self._outstanding) >= PIECES_OUTSTANDING_MAX:
                        self._is_suspended = True
                        return
                    yield
                    continue
                response = response.response
            yield from answer.add(number, response)
            del response
            yield
        self._let_connection_go_on()
        if not self._outstanding:
            self._respond(answer.frame(self._correlation_id))

    def _executed(self, piece: Any, items: Items, answer: LongAnswer) -> Any:
        route = self._route
        if answer.size > self._broker.config.ottla_response_max_bytes:
            return refuse(load(route.key)[1], piece, items, ErrorCode.POLICY_VIOLATION, TOO_LARGE)
        return route.handle(self._broker, self._context, piece)

    def _arrived(self, number: int, response: Any) -> None:
        """The answer to a piece has come later."""
        if not self._is_over:
            self._owner.run(self, self._to_the_end(self._add(number, response)))

    def _add(self, number: int, response: Any) -> Iterator[None]:
        answer, items = self._answer, self._route.items
        assert answer is not None and items is not None
        yield from answer.add(number, response)
        del self._outstanding[number]
        if self._is_suspended:
            self._is_suspended = False
            yield from self._execute_pieces(answer, items)
        elif self._is_executed and not self._outstanding:
            self._respond(answer.frame(self._correlation_id))

    # The end

    def _respond(self, frame: list[Part]) -> None:
        if self._is_over:
            return
        waited_ns = self._owner.now_ns() - self._began_ns
        self._route.parked_nanoseconds += waited_ns
        self._route.waited[waited_ns.bit_length()] += 1
        self._slot.abandon = None
        self._end()
        self.connection.fill(self._slot, frame)

    def _to_the_end(self, steps: Iterator[None]) -> Iterator[None]:
        """The same steps; if one fails, or they are given up, everything is let go of."""
        is_whole = False
        try:
            yield from steps
            is_whole = True
        finally:
            if not is_whole:
                self._end()

    def abandon(self) -> None:
        """The client is gone."""
        for pending in self._outstanding.values():
            if pending.abandon is not None:
                pending.abandon()
        self._end()

    def _end(self) -> None:
        """Lets go of everything, once."""
        if self._is_over:
            return
        self._is_over = True
        self._pieces, self._answer, self._outstanding, self.body, self._frame = iter(()), None, {}, None, None
        if self.is_large:
            self.is_large = False
            self._owner.large_done()
