"""How does a command that touches many members gather its decision?

A `Draft` collects records, answers and timers step by step; `decision` makes the value that the host carries out. Each answer comes with
what to say instead when the log refuses the records. Timers are released either way: they belong to soft state, which a refusal does not
undo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.machine.contract import Answer, Call, Cancel, Decision, Effect, LogRecord, Reply, Schedule


class Caller(NamedTuple):
    """Who sent a request: the facts that membership and answers depend on. `connection` is never the same for two connections."""

    version: int
    client_id: str
    client_host: str
    connection: str = ""
    software: str = ""  # what the client calls itself in ApiVersions
    may_describe: Callable[[str], bool] | None = None
    """Which topics the caller may see, where it subscribes by a pattern; None if all."""


Refusal = Callable[[ErrorCode], Any]
"""Makes the response that says this error."""


class Draft:
    """A decision in the making."""

    __slots__ = ("_answers", "_calls", "_timers", "_undo", "records")

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self._answers: list[tuple[Reply, Any, Refusal]] = []
        self._timers: dict[str, Effect] = {}
        self._calls: list[Effect] = []
        self._undo: list[Callable[[Draft, ErrorCode], None]] = []

    def answer(self, reply: Reply, response: Any, refusal: Refusal) -> None:
        self._answers.append((reply, response, refusal))

    def schedule(self, key: str, delay_ms: int, decide: Callable[[int], Decision]) -> None:
        self._timers[key] = Schedule(key, delay_ms, decide)

    def cancel(self, key: str) -> None:
        self._timers[key] = Cancel(key)

    def call(self, function: Callable[[], None]) -> None:
        """Asks the shell for something, once the records are committed; not at all if the log refuses them."""
        self._calls.append(Call(function))

    def on_refusal(self, undo: Callable[[Draft, ErrorCode], None]) -> None:
        """`undo(draft, code)` repairs soft state when the log refuses the records; what it puts into its draft is released."""
        self._undo.append(undo)

    def decision(self) -> Decision:
        return Decision(records=self.records, effects=self._effects(), refused=self._refused)

    def _effects(self) -> Sequence[Effect]:
        return [*self._timers.values(), *(Answer(reply, response) for reply, response, _ in self._answers), *self._calls]

    def _refused(self, code: ErrorCode) -> Sequence[Effect]:
        repair = Draft()
        repair._timers.update(self._timers)
        for undo in self._undo:
            undo(repair, code)
        errors = [Answer(reply, refusal(code)) for reply, _, refusal in self._answers]
        return [*errors, *repair._effects()]


def answered(reply: Reply, response: Any, refusal: Refusal) -> Decision:
    """The decision that only answers."""
    return Decision(effects=(Answer(reply, response),), refused=lambda code: (Answer(reply, refusal(code)),))
