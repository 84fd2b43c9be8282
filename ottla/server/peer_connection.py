"""A connection to another broker, for `server/peers.py`. It runs the protocol code of Ottla's client (`client/core`) on the broker's event
loop.

`done(answer, error)` is called once for each request, on the event loop. It is called before `request` returns only if the connection is
found to be closed. A request that is not answered in time closes its connection, because a broker answers in order and no later answer
could arrive.

If the broker limits the session's lifetime (KIP-368), a connection with `begin_login` logs in again. Near the end of the session it holds
new requests back, and sends them when the requests in flight are answered and the new login is done. Slow parts of a login run in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ottla.base.errors import OttlaError, WireError
from ottla.base.ports import Channel, Clock, Network, Threads, TimerHandle, Timers
from ottla.client.addresses import Address
from ottla.client.core.connection import CLIENT_SOFTWARE, ConnectionProtocol
from ottla.client.core.frames import FrameReader
from ottla.client.core.request_line import RequestLine
from ottla.client.core.sasl import SaslExchange
from ottla.client.errors import ConnectError, RequestTimeoutError
from ottla.wire.schema import Request

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0

Done = Callable[[Any, OttlaError | None], object]
"""Called with an answer, or with None and the error."""
BeginLogin = Callable[[Callable[[SaslExchange | None, OttlaError | None], object]], object]
"""Calls its argument, now or later, with the exchange for another login, or with None and the error."""


class _Waiting(NamedTuple):
    """A request without an answer yet."""

    done: Done
    deadline_ms: float
    timeout_s: float


class LoopConnection:
    """One connection, and the receiver of its channel. Requests before it is open fail."""

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
        """`tls` is the listener with the settings for TLS (`ports.Network.connect`). `begin_login` begins later logins; without it there
        are none. `share` is for `LoginRenewal`. Without `threads`, passwords are hashed on the loop."""
        self.address = address
        self.protocol = ConnectionProtocol(str(address), client_id=client_id, sasl=sasl, proof=proof)
        self._connect = partial(network.connect, tls=tls) if tls else network.connect
        self.newest_of = self.protocol.versions.newest_of
        self.buffer = self.protocol.frames.get_buffer
        self._timers = timers
        self._clock = clock
        self._channel: Channel | None = None
        self._opening: list[Done] = []
        self._begin_login = begin_login
        self._threads = threads
        self._line: RequestLine[_Waiting] = RequestLine(self.protocol, share, may_login_again=begin_login is not None)
        self._timer: TimerHandle | None = None
        self._timer_ms = 0.0  # the deadline that the timer was set for
        self.is_closed = False
        self.on_hang_up: Callable[[], object] | None = None
        """Called when the other side has closed the connection after it was open."""

    @property
    def is_open(self) -> bool:
        return self._line.is_open and not self.is_closed

    # Opening and closing

    def open(self, done: Done, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Connects and negotiates; calls `done(self, None)` or `done(None, error)`. Further calls wait for the attempt in progress. Not to
        be called after `close`."""
        if self.is_open:
            self._timers.call_soon(lambda: done(self, None))
            return
        self._opening.append(done)
        if len(self._opening) == 1:
            self._timer = self._timers.call_later(timeout_s * 1000, self._give_up_opening)
            self._connect(self.address.host, self.address.port, self._connected, self._unreachable)

    def close(self) -> None:
        """Closes the connection. Requests without an answer fail."""
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
        """Closes the connection. Waiting requests fail with `error`; the oldest one fails with `oldest` if given."""
        if self.is_closed:
            return
        self.is_closed = True
        waiting = self._line.close()
        self._cancel_timer()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        opening, self._opening = self._opening, []
        for done in opening:
            done(None, oldest or error)
        for position, request in enumerate(waiting):
            request.done(None, error if position else oldest or error)

    # Requests

    def request(self, body: Request, done: Done, *, version: int | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        now_ms = self._clock.monotonic_ms()
        asked = _Waiting(done, now_ms + timeout_s * 1000, timeout_s)
        frame: bytes | OttlaError | None
        try:
            if not self.is_open:
                raise ConnectError(f"the connection to {self.address} is closed")
            frame = self._line.ask(body, version, asked, now_ms / 1000)
        except OttlaError as error:
            frame = error
        if frame is None:
            self._login_again_when_idle()
        else:
            self._send(asked, frame)

    def _send(self, asked: _Waiting, frame: bytes | OttlaError) -> None:
        """Sends a request's frame. If `frame` is an error, the request fails with it. If an earlier send has found the connection closed,
        the request has failed already."""
        if isinstance(frame, OttlaError):
            self._timers.call_soon(lambda: asked.done(None, frame))
            return
        if self._timer is None or self._timer_ms > asked.deadline_ms:
            self._arm()
        if self._channel is not None:
            self._channel.send([frame])

    def _login_again_when_idle(self) -> None:
        """Begins a new login if requests are held for it and none is in flight."""
        if not self._line.begins_login():
            return
        assert self._begin_login is not None, "a session without a login"
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
        """Sends the requests that were held during the login."""
        for asked, frame in self._line.logged_in(self._clock.monotonic_ms() / 1000):
            self._send(asked, frame)

    def _arm(self) -> None:
        """Sets the only timer for the oldest request. An earlier timer stays: when it fires, it sets the next one. So a timer is set every
        `timeout_s` instead of for each request."""
        first = self._line.first
        if first is None or (self._timer is not None and self._timer_ms <= first.deadline_ms):
            return
        self._cancel_timer()
        self._timer_ms = first.deadline_ms
        self._timer = self._timers.call_later(max(0.0, first.deadline_ms - self._clock.monotonic_ms()), self._time_out)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        first = self._line.first
        if first is None or first.deadline_ms > self._clock.monotonic_ms():
            self._arm()
            return
        late = RequestTimeoutError(f"{self.address} did not answer within {first.timeout_s:g} s")
        self._fail(ConnectError(f"the connection to {self.address} was closed: an earlier request was not answered"), late)

    # The receiver of the channel

    def received(self, count: int) -> None:
        frames = self.protocol.frames
        frames.buffer_updated(count)
        while frames.have and not self.is_closed and self._take_frame(frames):
            pass

    def _take_frame(self, frames: FrameReader) -> bool:
        """Takes the next frame. Returns whether there was one."""
        try:
            frame = frames.next_frame()
            if frame is None:
                return False
            if not self.protocol.is_ready:
                self._advance(frame)
                return True
            answer = self.protocol.response(frame)
        except WireError as error:
            self._fail(self.protocol.malformed(error, self.protocol.pending[0] if self.protocol.pending else None))
        except OttlaError as error:
            self._fail(error)
        else:
            line = self._line
            done = line.in_flight.popleft().done
            if line.in_flight or line.held:
                self._arm()
                self._login_again_when_idle()
            done(answer, None)
        return True

    def drained(self) -> None:
        """Does nothing: requests are small, so they do not wait for the peer to take earlier ones."""

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
