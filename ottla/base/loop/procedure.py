"""Procedures: conversations with the metadata store, with other brokers and with timers, as generators that read from top to bottom.

A procedure yields a function that takes a callback. When the callback is called, the procedure is resumed with the arguments: None, one
value, or a tuple of several values. So `outcome = yield partial(store.multi, operations)` waits for a write. The function may call back at
once or later.

A `Runner` runs one procedure at a time. Starting another procedure cancels the current one. A cancelled procedure is never resumed: later
answers are ignored. So a procedure need not check whether an answer is obsolete.

Between two yields nothing else runs, except what the procedure itself calls. A called function may cancel the procedure. Then the procedure
ends at its next yield, and the yielded function is not called. `yield CHECKPOINT` only asks whether the procedure may continue.

An exception ends the procedure and is raised in the code that started or resumed it. That is usually the event loop, which then stops the
broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from ottla.base.ports import TimerHandle, Timers

T = TypeVar("T")

Effect = Callable[[Callable[..., None]], object] | None
Procedure = Generator[Effect, Any, T]

CHECKPOINT: Effect = None
"""Resumes a procedure at once, unless it is cancelled."""


def FOREVER(_resume: Callable[..., None]) -> None:
    """Waits until the procedure is cancelled."""


class Runner:
    """Runs one procedure at a time."""

    def __init__(self) -> None:
        self._run: _Run | None = None

    @property
    def is_running(self) -> bool:
        """Whether the procedure that was started last has neither ended nor been cancelled."""
        return self._run is not None and not self._run.is_over

    def start(self, procedure: Procedure[object]) -> None:
        """Cancels the present procedure, and runs this one until it waits or ends."""
        self.cancel()
        self._run = run = _Run(procedure)
        run.advance(None)

    def cancel(self) -> None:
        """Ends the procedure, and ignores its bound functions from now on."""
        run, self._run = self._run, None
        if run is not None:
            run.cancel()

    def bound(self, function: Callable[..., object]) -> Callable[..., None]:
        """Wraps `function` for a watch or a timer. Calls are ignored after the current procedure was cancelled, but not after its normal
        end.
        """
        run = self._run

        def call(*arguments: Any) -> None:
            if run is not None and not run.is_cancelled:
                function(*arguments)

        return call


class _Run:
    """One procedure, from its start to its end."""

    __slots__ = ("_is_stepping", "_procedure", "_value", "_waits", "is_cancelled", "is_over")

    def __init__(self, procedure: Procedure[object]) -> None:
        self._procedure = procedure
        self._waits = 0
        """Incremented at the beginning and at the end of each wait, so that a second answer is ignored."""
        self._value: Any = None
        self._is_stepping = False
        self.is_cancelled = False
        self.is_over = False

    def cancel(self) -> None:
        self.is_cancelled = self.is_over = True
        if not self._is_stepping:
            self._procedure.close()

    def advance(self, value: Any) -> None:
        """Resumes the procedure. Repeats this as long as each answer arrives at once."""
        assert not self._is_stepping, "a procedure is resumed only while it waits"
        self._is_stepping, is_waiting = True, False
        try:
            while not is_waiting:
                effect = self._procedure.send(value)
                if self.is_cancelled:
                    break
                value = None
                if effect is not None:
                    is_waiting = self._begin(effect)
                    value, self._value = self._value, None
        except StopIteration:
            pass
        finally:
            self._is_stepping = False
            if self.is_cancelled or not is_waiting:
                self.is_over = True
                self._procedure.close()

    def _begin(self, effect: Callable[[Callable[..., None]], object]) -> bool:
        """Calls the yielded function. Returns whether the procedure waits now, or is cancelled."""
        self._waits += 1
        wait = self._waits
        effect(partial(self._answered, wait))
        return self.is_cancelled or wait == self._waits

    def _answered(self, wait: int, *values: Any) -> None:
        if wait != self._waits or self.is_over:
            return
        self._waits += 1
        value = values[0] if len(values) == 1 else values or None
        if self._is_stepping:
            self._value = value
        else:
            self.advance(value)


class Answer(Generic[T]):
    """A callback that stores the answer to a request, so that the procedure can do other work before it waits for the answer."""

    def __init__(self) -> None:
        self.has_arrived = False
        self._value: Any = None
        self._resume: Callable[..., None] | None = None

    def __call__(self, *values: Any) -> None:
        if not self.has_arrived:
            self.has_arrived = True
            self._value = values[0] if len(values) == 1 else values
            resume, self._resume = self._resume, None
            if resume is not None:
                resume()

    @property
    def value(self) -> T:
        assert self.has_arrived, "the answer has arrived"
        value: T = self._value
        return value

    def wait(self, timers: Timers, timeout_ms: float) -> Procedure[bool]:
        """Waits until the answer has arrived or the time is over; returns whether it has arrived. May be called again."""
        if self.has_arrived:
            return True

        timer: TimerHandle | None = None

        def begin(resume: Callable[..., None]) -> None:
            nonlocal timer
            self._resume = resume
            timer = timers.call_later(timeout_ms, resume)

        try:
            yield begin
        finally:
            self._resume = None
            if timer is not None:
                timer.cancel()
        return self.has_arrived


class Mailbox(Generic[T]):
    """Values that arrive while a procedure does something else. The procedure takes them in their order."""

    def __init__(self) -> None:
        self._values: deque[T] = deque()
        self._resume: Callable[..., None] | None = None

    def put(self, value: T) -> None:
        self._values.append(value)
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def take(self) -> Procedure[T]:
        """Returns the next value. Waits until there is one."""
        if not self._values:

            def wait(resume: Callable[..., None]) -> None:
                self._resume = resume

            yield wait
        return self._values.popleft()


def pause(timers: Timers, delay_ms: float) -> Procedure[None]:
    """Waits for a time. The timer ends with the procedure."""
    never: Answer[None] = Answer()
    yield from never.wait(timers, delay_ms)
