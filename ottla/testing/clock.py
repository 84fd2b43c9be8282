"""Moves the clock of a broker or cluster under test: `broker.clock.advance("7 days")`.

On the broker, records, group members, transactions, committed offsets, producers, delegation tokens, logins and quotas expire by this
clock. Retries, long polls, replication, the time-outs of clients and the sessions of ZooKeeper use the real time.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from ottla.base.broker_ports import TIME_VARIABLE

ANSWER_SECONDS_MAX = 30.0

Span = str | float | timedelta
"""`"7 days"`, `"1h 30m"`, `"500 ms"`, a number of seconds, or a `timedelta`."""

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_NAMES = {"ms": "ms", "millisecond": "ms", "s": "s", "sec": "s", "second": "s", "m": "m", "min": "m", "minute": "m", "h": "h", "hour": "h"}
_NAMES |= {"d": "d", "day": "d", "w": "w", "week": "w"}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?", re.IGNORECASE)


class Clock:
    """Moves the time of one broker, or of all brokers of a cluster."""

    def __init__(self, controls: Callable[[], Sequence[TimeControl]]) -> None:
        self._controls = controls

    @property
    def is_frozen(self) -> bool:
        return any(control.state[1] is not None for control in self._controls())

    def now(self) -> datetime:
        """Returns the brokers' time, in UTC."""
        return self._ask({})

    def advance(self, span: Span) -> datetime:
        """Lets a span of time pass at once; returns the new time. Everything that is due in this time is executed, in order, before this
        returns. A week takes some 20 ms. Raises `ValueError` for a span that is negative or cannot be parsed.
        """
        return self._ask({"advance_ms": span_ms(span)})

    def freeze(self) -> datetime:
        """Stops the clock until `run`, `reset` of the broker or the end of the test; `advance` still moves it."""
        return self._ask({"freeze": True})

    def run(self) -> datetime:
        """Lets a frozen clock continue from its present time."""
        return self._ask({"freeze": False})

    @contextmanager
    def frozen(self) -> Iterator[Clock]:
        """Freezes the clock for a block."""
        self.freeze()
        try:
            yield self
        finally:
            self.run()

    def until(self, condition: Callable[[], object], *, step: Span = "1 minute", limit: Span = "30 days") -> datetime:
        """Advances by `step` until the condition is true, and returns the time. Raises `AssertionError` if the condition does not become
        true within `limit`."""
        left_ms, step_ms = span_ms(limit), max(span_ms(step), 1)
        while not condition():
            assert left_ms > 0, f"the condition is not true within {limit} of the broker's time"
            self._ask({"advance_ms": min(step_ms, left_ms)})
            left_ms -= step_ms
        return self.now()

    def _ask(self, order: dict[str, Any]) -> datetime:
        """Sends an order to one broker after the other, and returns the time of the last broker."""
        controls = self._controls()
        if not controls:
            raise RuntimeError("there is no clock to move, because no broker is running")
        for control in controls:
            wall_ms = control.ask(order)
        return datetime.fromtimestamp(wall_ms / 1000, UTC)


class TimeControl:
    """Sends orders to the clock of one broker process, which inherits the other end of a socket (`adapters/movable_time.py`)."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self.state: list[int | None] = [0, None]
        """The state of the broker's clock; the broker's next process begins with it."""

    @contextmanager
    def opened(self, *, waits: bool = False) -> Iterator[tuple[int, dict[str, str]]]:
        """Opens the socket for a process that is started within the block. Yields the descriptor that the process inherits, and its
        environment variable. With `waits` the process waits for `begin`."""
        self._socket, other_end = socket.socketpair()
        self._socket.settimeout(ANSWER_SECONDS_MAX)
        with other_end:
            yield other_end.fileno(), {TIME_VARIABLE: json.dumps([other_end.fileno(), None if waits else self.state])}

    def begin(self, state: list[int | None]) -> None:
        """Makes a process that waits (`waits`) continue; its clock starts in the state `state`."""
        assert self._socket is not None
        self.state = state
        self._socket.sendall(json.dumps(state).encode() + b"\n")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, order: dict[str, Any]) -> int:
        """Returns the broker's wall time in milliseconds after the order. Raises `RuntimeError` if the order is refused, or the broker has
        ended or does not answer."""
        with self._lock:
            answer = self._answer(json.dumps(order).encode() + b"\n")
        if "error" in answer:
            raise RuntimeError(answer["error"])
        self.state = answer["state"]
        return int(answer["wall_ms"])

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            if self._socket is not None:
                self._socket.sendall(line)
                with self._socket.makefile("rb") as file:
                    said = file.readline()
                if said:
                    return dict(json.loads(said))
        except TimeoutError:
            self.close()  # a late answer must not be taken for the next one
            raise RuntimeError(f"no answer about the clock within {ANSWER_SECONDS_MAX:.0f} s; is the broker paused?") from None
        except OSError:
            pass
        raise RuntimeError("there is no clock to move, because the broker has ended")


def span_ms(span: Span) -> int:
    """Returns a span of time in milliseconds. Raises `ValueError` if it is negative or cannot be parsed."""
    if isinstance(span, timedelta):
        span = span.total_seconds()
    found = _parsed_ms(span) if isinstance(span, str) else span * 1000
    if found is None:
        raise ValueError(f'{span!r} is not a span of time such as "7 days", "1h 30m", "500 ms" or a number of seconds')
    if found < 0:
        raise ValueError(f"time only moves forward, not by {span!r}")
    return round(found)


def _parsed_ms(text: str) -> float | None:
    total, at = 0.0, 0
    sign = -1 if text.strip().startswith("-") else 1
    text = text.strip().removeprefix("-")
    while at < len(text):
        part = _PART.match(text, at)
        unit = None if part is None else _NAMES.get(part[2].lower(), _NAMES.get(part[2].lower().removesuffix("s")))
        if part is None or unit is None:
            return None
        total += float(part[1]) * _UNITS_MS[unit]
        at = part.end()
    return sign * total if text else None
