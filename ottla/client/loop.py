"""The client on a broker's event loop: the shell round the core that is handed a network and timers, and opens no socket itself.

For requests to other brokers. Everything happens in callbacks on the one loop that owns all state: `ask` sends a request to an address,
`run` drives a procedure of the core. `done(answer, error)` is called once for each, never before the call returns. A request that is not
answered in time closes its connection, because a broker answers in order and nothing behind it would come.

Where the broker limits sessions (KIP-368) a connection that has a way to log in again does so in time: what is asked from then on is held
until the answers under way have come and the login is done. What takes long in a login is done in a thread where there are any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ottla.base.errors import OttlaError, WireError
from ottla.base.ports import Channel, Clock, Network, Threads, TimerHandle, Timers
from ottla.client.addresses import Address
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.connection import CLIENT_SOFTWARE, ConnectionProtocol
from ottla.client.core.login_renewal import LoginRenewal
from ottla.client.core.procedure import Ask, AskAll, AskRolling, Effect, Open, Pause, Procedure
from ottla.client.core.sasl import SaslExchange
from ottla.client.errors import ConnectError, RequestTimeoutError
from ottla.wire.schema import Request

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0

T = TypeVar("T")
Done = Callable[[Any, OttlaError | None], object]
"""Called with an answer, or with None and the error."""
BeginLogin = Callable[[Callable[[SaslExchange | None, OttlaError | None], object]], object]
"""Calls back, now or later, with the exchange for another login, or with None and the error."""


class _Waiting(NamedTuple):
    """A request whose answer is to come."""

    done: Done
    deadline_ms: float
    timeout_s: float


class _Held(NamedTuple):
    """A request that waits for another login."""

    body: Request
    done: Done
    version: int | None
    deadline_ms: float
    timeout_s: float


class LoopConnection:
    """One connection; a `Link` for procedures and the receiver of its channel. Requests made before it is ready are refused."""

    def __init__(
        self,
        address: Address,
        network: Network,
        timers: Timers,
        clock: Clock,
        *,
        client_id: str = CLIENT_SOFTWARE,
        sasl: SaslExchange | None = None,
        proof: SaslExchange | None = None,
        tls: str = "",
        begin_login: BeginLogin | None = None,
        share: float = 0.5,
        threads: Threads | None = None,
    ) -> None:
        """`tls`: the listener whose settings hold for TLS (`ports.Network.connect`). `begin_login` makes later logins, without it there
        are none; `share`: of `LoginRenewal`. Without `threads` logins hash passwords on the loop."""
        self.address = address
        self.protocol = ConnectionProtocol(str(address), client_id=client_id, sasl=sasl, proof=proof)
        self._connect = partial(network.connect, tls=tls) if tls else network.connect
        self.version_of = self.protocol.versions.version_of
        self.newest_of = self.protocol.versions.newest_of
        self.offers = self.protocol.versions.offers
        self.feature_level = self.protocol.versions.feature_level
        self._timers = timers
        self._clock = clock
        self._channel: Channel | None = None
        self._opening: list[Done] = []
        self._waiting: deque[_Waiting] = deque()
        self._begin_login = begin_login
        self._threads = threads
        self._renewal = LoginRenewal(share)
        self._held: deque[_Held] = deque()
        self._logs_in_again = False
        self._timer: TimerHandle | None = None
        self.is_closed = False
        self.on_hang_up: Callable[[], object] | None = None
        """Called when the other side has closed the connection after it was open."""

    @property
    def is_open(self) -> bool:
        return (self.protocol.is_ready or self._logs_in_again) and not self.is_closed

    @property
    def in_flight(self) -> int:
        return len(self._waiting) + len(self._held)

    # Opening and closing

    def open(self, done: Done, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Connects and negotiates; calls `done(self, None)` or `done(None, error)`. May be called while the opening is under way."""
        if self.is_open:
            self._timers.call_soon(lambda: done(self, None))
            return
        self._opening.append(done)
        if len(self._opening) == 1:
            self._timer = self._timers.call_later(timeout_s * 1000, self._give_up_opening)
            self._connect(self.address.host, self.address.port, self._connected, self._unreachable)

    def close(self) -> None:
        """Closes the connection; what waits for an answer is refused."""
        self._fail(ConnectError(f"the connection to {self.address} is closed"))

    def _connected(self, channel: Channel) -> None:
        if self.is_closed:
            channel.close()
            return
        self._channel = channel
        channel.open(self)
        channel.send([self.protocol.start()])

    def _unreachable(self, reason: str) -> None:
        self._fail(ConnectError(f"cannot reach {self.address}: {reason}"))

    def _give_up_opening(self) -> None:
        self._fail(ConnectError(f"cannot reach {self.address}: no answer in time; is the address right, is a firewall between?"))

    def _fail(self, error: OttlaError, oldest: OttlaError | None = None) -> None:
        """Closes for good; `oldest` is the error for the request that was first in line, if it is another."""
        if self.is_closed:
            return
        self.is_closed = True
        self.protocol.close()
        self._cancel_timer()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        opening, self._opening = self._opening, []
        waiting: list[_Waiting | _Held] = [*self._waiting, *self._held]
        self._waiting, self._held = deque(), deque()
        self._logs_in_again = False
        for done in opening:
            done(None, oldest or error)
        for position, request in enumerate(waiting):
            request.done(None, error if position else oldest or error)

    # Requests

    def request(self, body: Request, done: Done, *, version: int | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Sends a request; its answer, or the error, goes to `done`."""
        now_ms = self._clock.monotonic_ms()
        held = _Held(body, done, version, now_ms + timeout_s * 1000, timeout_s)
        if self._held or self._logs_in_again or (self._renewal.is_due(now_ms / 1000) and self.is_open):
            self._held.append(held)
            self._login_again_when_idle()
        else:
            self._send(held)

    def _send(self, asked: _Held) -> None:
        body, done, version, deadline_ms, timeout_s = asked
        try:
            if not self.is_open:
                raise ConnectError(f"the connection to {self.address} is closed")
            frame = self.protocol.request(body, version=version)
        except OttlaError as error:
            failed = error
            self._timers.call_soon(lambda: done(None, failed))
            return
        self._waiting.append(_Waiting(done, deadline_ms, timeout_s))
        if len(self._waiting) == 1:
            self._arm()
        assert self._channel is not None, "an open connection has a channel"
        self._channel.send([frame])

    def _login_again_when_idle(self) -> None:
        """Logs in again before the session ends, after the answers that are under way."""
        if self._waiting or self._logs_in_again or not self._held:
            return
        assert self._begin_login is not None, "a session without a login"
        self._logs_in_again = True
        self._arm()
        self._begin_login(self._login_again)

    def _login_again(self, exchange: SaslExchange | None, error: OttlaError | None) -> None:
        if self.is_closed:
            return
        if error is not None:
            self._timers.call_soon(lambda: self._fail(error))
            return
        assert exchange is not None and self._channel is not None, "a session without a login"
        self._channel.send([self.protocol.login_again(exchange)])

    def _logged_in(self) -> None:
        """Sends what has waited for the login."""
        if self._begin_login is not None:
            self._renewal.logged_in(self.protocol.session_lifetime_ms, self._clock.monotonic_ms() / 1000)
        self._logs_in_again = False
        held, self._held = self._held, deque()
        for asked in held:
            self._send(asked)

    def _first_in_line(self) -> _Waiting | _Held | None:
        return self._waiting[0] if self._waiting else self._held[0] if self._held else None

    def _arm(self) -> None:
        """One timer, for the request that is first in line."""
        self._cancel_timer()
        first = self._first_in_line()
        if first is not None:
            delay_ms = max(0.0, first.deadline_ms - self._clock.monotonic_ms())
            self._timer = self._timers.call_later(delay_ms, self._time_out)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        first = self._first_in_line()
        assert first is not None, "the timer is for a request"
        late = RequestTimeoutError(f"{self.address} did not answer within {first.timeout_s:g} s")
        self._fail(ConnectError(f"the connection to {self.address} was closed: an earlier request was not answered"), late)

    # The receiver of the channel

    def buffer(self) -> memoryview:
        return self.protocol.frames.get_buffer()

    def received(self, count: int) -> None:
        try:
            frame = self.protocol.frames.buffer_updated(count)
            if frame is None:
                return
            if not self.protocol.is_ready:
                self._advance(frame)
                return
            answer = self.protocol.response(frame)
        except WireError as error:
            self._fail(self.protocol.malformed(error, self.protocol.pending[0] if self.protocol.pending else None))
        except OttlaError as error:
            self._fail(error)
        else:
            done = self._waiting.popleft().done
            self._arm()
            self._login_again_when_idle()
            done(answer, None)

    def drained(self) -> None:
        """Does nothing: no request waits for room, since they are small beside the answers."""

    def closed(self) -> None:
        error = self.protocol.hung_up()
        was_open, on_hang_up = self.is_open, self.on_hang_up
        self._fail(self.protocol.hang_up_at_start(error) if self._opening else error)
        if was_open and on_hang_up is not None:
            on_hang_up()

    def _advance(self, frame: memoryview) -> None:
        slow_part = self.protocol.begin_step(frame)
        if slow_part is None or self._threads is None:
            self._end_step()
        else:
            self._threads.run(slow_part, lambda _nothing: self._end_slow_step())

    def _end_slow_step(self) -> None:
        if self.is_closed:
            return
        try:
            self._end_step()
        except OttlaError as error:
            self._fail(error)

    def _end_step(self) -> None:
        data = self.protocol.end_step()
        if not self.protocol.is_ready:
            assert self._channel is not None, "bytes come from a channel"
            self._channel.send([data])
            return
        self._cancel_timer()
        self._logged_in()
        opening, self._opening = self._opening, []
        for done in opening:
            done(self, None)


class LoopClient:
    """Connections to brokers by address, shared by everything that this loop asks of them; and a cluster for procedures."""

    def __init__(
        self,
        network: Network,
        timers: Timers,
        clock: Clock,
        *,
        bootstrap: Sequence[Address] = (),
        client_id: str = CLIENT_SOFTWARE,
        timeout_s: float = REQUEST_TIMEOUT_S,
        new_exchange: Callable[[], SaslExchange | None] = lambda: None,
        share: Callable[[], float] = lambda: 0.5,
    ) -> None:
        """`share`: of `LoginRenewal`, for each connection."""
        self.timeout_s = timeout_s
        self.core = ClusterCore(bootstrap, now=lambda: clock.monotonic_ms() / 1000, timeout_s=timeout_s)
        self._network = network
        self._timers = timers
        self._clock = clock
        self._client_id = client_id
        self._new_exchange = new_exchange
        self._share = share
        self._connections: dict[Address, LoopConnection] = {}
        self._own: list[LoopConnection] = []
        self._is_closed = False

    def ask(self, address: Address, body: Request, done: Done, *, version: int | None = None, timeout_s: float | None = None) -> None:
        """Sends a request to the broker at an address, over the shared connection, which is opened first if need be."""

        def opened(link: Any, error: OttlaError | None) -> None:
            if error is not None:
                done(None, error)
            else:
                link.request(body, done, version=version, timeout_s=self.timeout_s if timeout_s is None else timeout_s)

        self._open(Open(address), opened)

    def run(self, procedure: Procedure[T], done: Callable[[T | None, OttlaError | None], object]) -> None:
        """Runs a procedure of the core; `done(result, None)` or `done(None, error)` at its end."""
        self._timers.call_soon(lambda: self._step(procedure, procedure.send, None, done))

    def close(self) -> None:
        """Closes all connections; what waits for an answer is refused."""
        self._is_closed = True
        for connection in [*self._connections.values(), *self._own]:
            connection.close()
        self._connections.clear()
        self._own.clear()
        self.core.close()

    def _step(self, procedure: Procedure[Any], step: Callable[[Any], Effect], argument: Any, done: Done) -> None:
        try:
            effect = step(argument)
        except StopIteration as stop:
            done(stop.value, None)
        except OttlaError as error:
            done(None, error)
        else:

            def resume(result: Any, error: OttlaError | None) -> None:
                if error is None:
                    self._step(procedure, procedure.send, result, done)
                else:
                    self._step(procedure, procedure.throw, error, done)

            self._perform(effect, resume)

    def _perform(self, effect: Effect, resume: Done) -> None:
        if isinstance(effect, Ask):
            self._ask(effect, resume)
        elif isinstance(effect, AskAll):
            self._ask_all(effect, resume)
        elif isinstance(effect, AskRolling):
            _Rolling(effect, self._ask, resume, self._timers).go_on()
        elif isinstance(effect, Open):
            self._open(effect, resume)
        else:
            assert isinstance(effect, Pause), f"{effect} is no effect"
            self._timers.call_later(effect.seconds * 1000, lambda: resume(None, None))

    def _ask(self, ask: Ask, done: Done) -> None:
        connection = ask.link
        assert isinstance(connection, LoopConnection), "this shell has made every connection"
        connection.request(ask.body, done, version=ask.version, timeout_s=self.timeout_s if ask.timeout_s is None else ask.timeout_s)

    def _ask_all(self, effect: AskAll, done: Done) -> None:
        results: dict[int, Any] = {}

        def take(position: int, answer: Any, error: OttlaError | None) -> None:
            results[position] = answer if error is None else error
            if len(results) == len(effect.asks):
                done([results[number] for number in range(len(results))], None)

        if not effect.asks:
            self._timers.call_soon(lambda: done([], None))
        for position, ask in enumerate(effect.asks):
            self._ask(ask, partial(take, position))

    def _open(self, effect: Open, done: Done) -> None:
        if self._is_closed:
            self._timers.call_soon(lambda: done(None, ConnectError(f"the client is closed; {effect.address} is not asked")))
            return
        connection = None if effect.is_own else self._connections.get(effect.address)
        if connection is None or connection.is_closed:
            try:
                connection = self._new_connection(effect.address)
            except OttlaError as error:
                failed = error
                self._timers.call_soon(lambda: done(None, failed))
                return
            if effect.is_own:
                self._own = [*(one for one in self._own if not one.is_closed), connection]
            else:
                self._connections[effect.address] = connection
        connection.open(done, min(CONNECT_TIMEOUT_S, self.timeout_s))

    def _new_connection(self, address: Address) -> LoopConnection:
        return LoopConnection(
            address, self._network, self._timers, self._clock, client_id=self._client_id, sasl=self._new_exchange(),
            begin_login=self._begin_login, share=self._share(),
        )  # fmt: skip

    def _begin_login(self, done: Callable[[SaslExchange | None, OttlaError | None], object]) -> None:
        try:
            exchange = self._new_exchange()
        except OttlaError as error:
            done(None, error)
        else:
            done(exchange, None)


class _Rolling:
    """Performs `AskRolling`: goes on whenever an answer comes."""

    def __init__(self, effect: AskRolling, ask: Callable[[Ask, Done], None], done: Done, timers: Timers) -> None:
        self._effect = effect
        self._ask = ask
        self._done = done
        self._timers = timers
        self._under_way: deque[list[Any]] = deque()
        """A list for each request, empty until its answer is there."""
        self._is_waiting = self._is_at_end = self._is_running = False

    def go_on(self) -> None:
        """Sends what may be sent, and takes in the answers that are due and there."""
        if self._is_running:
            return
        self._is_running = True
        while self._advance():
            pass
        self._is_running = False

    def _advance(self) -> bool:
        """One step; whether there may be another before the next answer comes."""
        if self._is_waiting or (self._is_at_end and self._under_way):
            assert self._under_way, "an answer is awaited, and nothing was asked"
            if not self._under_way[0]:
                return False
            self._effect.note(self._under_way.popleft()[0])
            self._is_waiting = False
            return True
        if self._is_at_end:
            self._timers.call_soon(lambda: self._done(None, None))
            return False
        try:
            ask = next(self._effect.asks)
        except StopIteration:
            self._is_at_end = True
            return True
        if ask is None:
            self._is_waiting = True
        else:
            self._send(ask)
        return True

    def _send(self, ask: Ask) -> None:
        slot: list[Any] = []
        self._under_way.append(slot)

        def take(answer: Any, error: OttlaError | None) -> None:
            slot.append(answer if error is None else error)
            self.go_on()

        self._ask(ask, take)
