"""Executes requests that take longer than a time slice: decodes, executes and encodes them in steps. The requests of one connection run in
order.

A request with many elements is split into small requests. The handler answers each of them, and the answers are joined (`splitting.py`). A
handler with long work returns a task instead. If the queue is empty (no unfinished request, no connection that waits for its turn), the
first time slice runs immediately, so a small request is answered without a wait. The rest alternates with other unfinished requests
(`base/loop/turns.py`). The connection executes no other request until the long request has been executed; the answer of the long request
may still be given later.

Bounds. At most `SMALL_AT_ONCE_MAX` small and `LARGE_AT_ONCE_MAX` large requests run at a time, because a decoded request consists of many
objects. Further requests wait; large requests among them are not decoded yet. A request that has waited for a replica or the controller is
no longer included in these numbers. The encoded part of an answer is charged to the memory of its connection. At most
`PIECES_OUTSTANDING_MAX` pieces of a request wait at a time for a replica or the controller; while they wait, requests of other connections
are executed. Once the answer is larger than `ottla.response.max.bytes`, all further pieces are answered with POLICY_VIOLATION without
calling the handler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode
from ottla.base.loop.turns import Turns
from ottla.base.ports import Clock, Part, Timers
from ottla.handlers.context import Broker, Pending, RequestContext, Task
from ottla.server.connection import Connection
from ottla.server.execution.disposal import dispose
from ottla.server.execution.route import Route
from ottla.server.execution.splitting import Items, JoinedAnswer, cut, gather, has_many_items, refuse
from ottla.server.memory.answer_memory import Slot
from ottla.wire.framing import load
from ottla.wire.schema import Struct

if TYPE_CHECKING:
    from ottla.server.quotas.throttling import Throttling

PIECE_MS = 5
"""Time slice of all unfinished requests in one iteration of the event loop, in milliseconds."""
FIRST_PIECE_NS = 5_000_000
"""The first time slice of a request, in nanoseconds."""
LARGE_AT_ONCE_MAX = 2
LARGE_BYTES = 128 << 20
"""Upper bound of the memory of a decoded large request, in bytes. If `ottla.memory.max.bytes` is less than twice this, the broker executes
one large request at a time, else two."""
SMALL_AT_ONCE_MAX = 32
PIECES_OUTSTANDING_MAX = 16
TOO_LARGE = "The answer would be larger than ottla.response.max.bytes."


class LongRequests:
    """All long requests of this broker."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self.turns = Turns(clock, timers, piece_ms=PIECE_MS, is_fair=True)
        """The queue of unfinished requests and of connections that have used up their time slice."""
        self.turns.begin()
        self.now_ns = clock.nanoseconds
        self._large = LongRequestLane(LARGE_AT_ONCE_MAX)
        self._small = LongRequestLane(SMALL_AT_ONCE_MAX)
        self.throttling: Throttling | None = None
        """None while no client has a quota."""

    def begin(self, request: LongRequest, body: Any, task: Task | None = None) -> None:
        """Executes the first time slice of a request, or queues it. `body` is the decoded request, or None if it is decoded in steps.
        `task` is the handler's task, if it has already run for a time slice."""
        request.body, request.task = body, task
        lane = request.lane = self._large if request.is_large else self._small
        if lane.count >= min(lane.at_once_max, request.at_once_max):
            lane.waiting.append(request)
            return
        lane.count += 1
        request.has_begun = True
        if task is None:
            self.run(request, request.begin())
        else:
            self.turns.add_later(request.connection.guarded(request.begin()))

    def run(self, request: LongRequest, steps: Iterator[object]) -> None:
        """Runs the steps of a request for at most `FIRST_PIECE_NS` if no other request is unfinished, and queues the rest."""
        guarded = request.connection.guarded(steps)
        if self.turns.unfinished:
            self.turns.add_later(guarded)
            return
        end_ns = self.now_ns() + FIRST_PIECE_NS
        for _ in guarded:
            if self.now_ns() >= end_ns:
                self.turns.add_later(guarded)
                return

    def dispose(self, message: Struct) -> None:
        """Frees a request or an answer in steps, after the caller has dropped it."""
        self.turns.add_later(dispose(message))

    def done(self, lane: LongRequestLane) -> None:
        """Called when a request of the lane has ended, or waits for a replica or the controller. Begins the next queued request whose
        client is still connected."""
        lane.count -= 1
        while lane.waiting:
            request = lane.waiting.popleft()
            if not request.is_over:
                lane.count += 1
                request.has_begun = True
                self.turns.add_later(request.connection.guarded(request.begin()))
                return


class LongRequestLane:
    """Limits how many long requests of one kind (large or small) run at a time, and queues the others."""

    def __init__(self, at_once_max: int) -> None:
        self.at_once_max = at_once_max
        self.count = 0
        self.waiting: deque[LongRequest] = deque()


class LongRequest:
    """Executes one long request: decodes its frame if necessary, calls the handler, encodes the answer and puts it into the connection's
    queue of answers."""

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
        self._answer: JoinedAnswer | None = None
        self._outstanding: dict[int, Pending] = {}
        self._is_suspended = False
        self._is_executed = False
        self.is_over = False
        self._began_ns = self._step_began_ns = owner.now_ns()
        self._spent_ns = 0
        self.frame_bytes = 0
        self.body: Any = None
        self.task: Task | None = None
        """The unfinished task of the handler."""
        self.is_large = False
        self.lane: LongRequestLane | None = None
        self.has_begun = False
        self._size_asked = slot.size
        slot.abandon = self.abandon

    @property
    def at_once_max(self) -> int:
        """Returns how many requests of this kind may run at a time. For large ones it is the number of `LARGE_BYTES` in
        `ottla.memory.max.bytes`, at least 1; the lane limits them further."""
        return max(self._broker.config.ottla_memory_max_bytes // LARGE_BYTES, 1) if self.is_large else SMALL_AT_ONCE_MAX

    def decode_in_steps(self, frame: memoryview, at: int, *, is_large: bool) -> None:
        """Decodes the request in its first steps."""
        self._frame, self._at, self.is_large = frame, at, is_large

    def begin(self) -> Iterator[None]:
        """Yields the steps up to the answer, or until the request waits."""
        steps = self._to_the_end(self._begin())
        yield from steps if self._owner.throttling is None else self._timed(steps)

    def _timed(self, steps: Iterator[None]) -> Iterator[None]:
        """Yields the steps of `steps`, and adds up the time that they take."""
        self._step_began_ns = self._owner.now_ns()
        for _ in steps:
            self._spent_ns += self._owner.now_ns() - self._step_began_ns
            yield
            self._step_began_ns = self._owner.now_ns()

    def _begin(self) -> Generator[None, None, None]:
        if self.task is not None:
            task, self.task = self.task, None
            yield from self._finish(task)
            return
        if self._frame is not None:
            self.body, end = yield from self._route.step_decoder(self._frame, self._at)
            self._route.check_end(end, len(self._frame))
        items = self._route.items
        if items is None or not has_many_items(self.body, items):
            yield from self._finish(self._route.handle(self._broker, self._context, self.body))
            return
        yield from gather(self.body, items)
        self._pieces = cut(self.body, items)
        self._answer = JoinedAnswer(self._route, items)
        yield from self._execute_pieces(self._answer, items)

    def _let_connection_go_on(self) -> None:
        self._frame = None
        self._is_executed = True
        if self._owner.throttling is not None:
            spent_ns = self._spent_ns + self._owner.now_ns() - self._step_began_ns
            self._owner.throttling.charge(self.connection, self._route, self._context, None, self.frame_bytes, spent_ns)
        self.connection.release()

    # A request that cannot be cut

    def _finish(self, response: Any) -> Generator[None, None, None]:
        """Answers with a response, or with the response of a task or a `Pending`."""
        response = yield from settled(response)
        if not self._is_executed:
            self._owner.dispose(self._take_body())
            self._let_connection_go_on()
        if type(response) is Pending:
            self._outstanding[0] = response
            self._leave_lane()
            response.then(lambda answer: self._owner.run(self, self._to_the_end(self._finish(answer))), self._fail)
            return
        self._outstanding.clear()
        self._note_throttling(response)
        if response is None:
            self._respond([])
            return
        frame = yield from self._route.frame_in_steps(response, self._correlation_id)
        self._owner.dispose(response)
        self._respond(frame)

    # A request that is cut

    def _execute_pieces(self, answer: JoinedAnswer, items: Items) -> Iterator[None]:
        for piece, is_end in self._pieces:
            if self.is_over:
                return
            number = answer.expect(is_end=is_end)
            response = yield from settled(self._executed(piece, items, answer))
            if type(response) is Pending:
                self._await(number, response)
                if len(self._outstanding) >= PIECES_OUTSTANDING_MAX:
                    self._is_suspended = True
                    self._leave_lane()
                    return
                yield
                continue
            yield from answer.add(number, response)
            del response
            self.connection.answers.charge(self._slot, self._size_asked + answer.size)
            yield
        self._let_connection_go_on()
        if self._outstanding:
            self._leave_lane()
        else:
            self._respond_with(answer)

    def _executed(self, piece: Any, items: Items, answer: JoinedAnswer) -> Any:
        route = self._route
        if answer.size > self._broker.config.ottla_response_max_bytes:
            return refuse(load(route.key)[1], piece, items, ErrorCode.POLICY_VIOLATION, TOO_LARGE)
        return route.handle(self._broker, self._context, piece)

    def _await(self, number: int, pending: Pending) -> None:
        self._outstanding[number] = pending
        pending.then(lambda response: self._arrived(number, response), self._fail)

    def _arrived(self, number: int, response: Any) -> None:
        """Adds the answer of a piece that waited."""
        if not self.is_over:
            self._owner.run(self, self._to_the_end(self._add(number, response)))

    def _add(self, number: int, response: Any) -> Iterator[None]:
        answer, items = self._answer, self._route.items
        assert answer is not None and items is not None
        response = yield from settled(response)
        if type(response) is Pending:
            self._await(number, response)
            return
        yield from answer.add(number, response)
        self.connection.answers.charge(self._slot, self._size_asked + answer.size)
        del self._outstanding[number]
        if self._is_suspended:
            self._is_suspended = False
            yield from self._execute_pieces(answer, items)
        elif self._is_executed and not self._outstanding:
            self._respond_with(answer)

    # The end

    def _note_throttling(self, response: Any) -> None:
        if self._owner.throttling is not None:
            self._owner.throttling.note(self.connection, self._route, response)

    def _respond_with(self, answer: JoinedAnswer) -> None:
        self._note_throttling(answer.shell)
        self._respond(answer.frame(self._correlation_id))

    def _respond(self, frame: list[Part]) -> None:
        if self.is_over:
            return
        waited_ns = self._owner.now_ns() - self._began_ns
        self._route.parked_nanoseconds += waited_ns
        self._route.waited[waited_ns.bit_length()] += 1
        self._slot.abandon = None
        self._end()
        self.connection.fill(self._slot, frame)

    def _to_the_end(self, steps: Iterator[None]) -> Iterator[None]:
        """Yields the steps of `steps`. If one fails or the request is abandoned, drops all references."""
        is_whole = False
        try:
            if self.is_over:  # The connection was closed before the first step.
                return
            for _ in steps:
                yield
                if self.is_over:  # the connection is closed, and the frame's buffer may be in use by another one
                    return
            is_whole = True
        finally:
            if not is_whole:
                self._end()

    def _fail(self, error: Exception) -> None:
        if not self.is_over:
            self._end()
            self.connection.fail(error)

    def abandon(self) -> None:
        """Abandons the request and its waiting pieces, because the connection is closed."""
        for pending in self._outstanding.values():
            if pending.abandon is not None:
                pending.abandon()
        self._end()

    def _end(self) -> None:
        """Drops the references to the request and its answer, and lets the next request of the lane begin. A second call does nothing."""
        if self.is_over:
            return
        self.is_over = True
        self._pieces, self._answer, self._outstanding, self._frame, self.task = iter(()), None, {}, None, None
        if self.body is not None:
            self._owner.dispose(self._take_body())
        self._leave_lane()

    def _take_body(self) -> Any:
        body, self.body = self.body, None
        return body

    def _leave_lane(self) -> None:
        """Lets the next request of the lane begin, because the present request is done or waits."""
        if self.has_begun and self.lane is not None:
            lane, self.lane = self.lane, None
            self._owner.done(lane)


def settled(response: Any) -> Task:
    """Runs a handler's task and follows completed `Pending`s. Returns the response, or the first `Pending` that is not complete. Raises the
    error of a failed `Pending`."""
    while isinstance(response, Generator) or (type(response) is Pending and response.is_done):
        if isinstance(response, Generator):
            response = yield from response
        elif response.error is not None:
            raise response.error
        else:
            response = response.response
    return response
