"""Builds decisions (`contract.py`): the records that a machine wants to log, and the effects that follow.

`answered`, `logged` and `followed` build the decisions of most commands. A `Draft` collects records, answers, timers and calls step by
step; `decision` makes the value that the host processes. Each answer has an alternative, which is sent if the log refuses the records.
Timers are set or cancelled even if the log refuses the records, because they belong to soft state, which a refusal does not undo. Calls are
made only if the records are committed. Independent records may be `separate`. `include` adds another draft as an independent part, with its
own records and effects. If the log refuses a part, the others are still logged, but the draft's answers are the refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.machine.contract import Call, Cancel, Decision, Effect, LogRecord, Reply, Respond, Schedule, Transactional

MakeRefusal = Callable[[ErrorCode], Any]
"""Makes the answer with an error code."""
Undo = Callable[["Draft", ErrorCode], object]
"""Repairs soft state after the log has refused the records. The function may add effects to the given draft, which the host releases."""


class Draft:
    """Collects the parts of a decision."""

    __slots__ = ("_answers", "_calls", "_timers", "_undo", "parts", "records", "transactional")

    def __init__(self, records: Iterable[LogRecord] = ()) -> None:
        self.records: list[LogRecord] = [*records]
        self.parts: list[Decision] = []
        self.transactional: Transactional | None = None
        self._answers: list[tuple[Reply, Any, MakeRefusal]] = []
        self._timers: dict[str, Effect] = {}
        self._calls: list[Effect] = []
        self._undo: list[Undo] = []

    def answer(self, reply: Reply, answer: Any, refusal: MakeRefusal) -> None:
        self._answers.append((reply, answer, refusal))

    def schedule(self, key: str, delay_ms: int, decide: Callable[[int], Decision]) -> None:
        self._timers[key] = Schedule(key, delay_ms, decide)

    def cancel(self, key: str) -> None:
        self._timers[key] = Cancel(key)

    def call(self, function: Callable[[], None]) -> None:
        """Calls a function outside the machine when the records are committed; not if the log refuses them."""
        self._calls.append(Call(function))

    def on_refusal(self, undo: Undo) -> None:
        self._undo.append(undo)

    def separate(self, records: Iterable[LogRecord]) -> None:
        """Adds each record as an independent part. The host logs them in one batch, or in several if that batch is too large."""
        self.parts += [Decision(records=(record,)) for record in records]

    def include(self, part: Draft) -> None:
        """Logs the records of `part` together, independently of all other records. The effects of `part` depend only on its own records."""
        self.parts.append(part.decision())

    def decision(self) -> Decision:
        assert not (self.records and self.parts), "records of one draft are all separate, or none is"
        return Decision(self.records, self.effects(), self.transactional, self._refused, self.parts)

    def effects(self) -> Sequence[Effect]:
        return [*self._timers.values(), *(Respond(reply, answer) for reply, answer, _ in self._answers), *self._calls]

    def _refused(self, code: ErrorCode) -> Sequence[Effect]:
        repair = Draft()
        repair._timers.update(self._timers)
        for undo in self._undo:
            undo(repair, code)
        errors = [Respond(reply, refusal(code)) for reply, _, refusal in self._answers]
        return [*errors, *repair.effects()]


def answered(
    reply: Reply, answer: Any, refusal: MakeRefusal, records: Sequence[LogRecord] = (), transactional: Transactional | None = None
) -> Decision:
    """Makes a decision that answers when its records, if any, are committed."""
    return Decision(records, (Respond(reply, answer),), transactional, lambda code: (Respond(reply, refusal(code)),))


def logged(record: LogRecord, reply: Reply, answer: Any, refusal: MakeRefusal, call: Callable[[], None] | None = None) -> Decision:
    """Makes a decision that logs one record and answers; `call` is called before the answer."""
    answers = Respond(reply, answer)
    effects = (answers,) if call is None else (Call(call), answers)
    return Decision((record,), effects, None, lambda code: (Respond(reply, refusal(code)),))


def followed(record: LogRecord, call: Callable[[], None], undo: Undo) -> Decision:
    """Makes a decision that logs one record and then calls a function outside the machine; no client waits for it."""
    return Decision(records=(record,), effects=(Call(call),), refused=lambda code: _undone(undo, code))


def _undone(undo: Undo, code: ErrorCode) -> Sequence[Effect]:
    repair = Draft()
    undo(repair, code)
    return repair.effects()


def same_code(code: ErrorCode) -> ErrorCode:
    """Returns the code: the `refusal` of a command whose answer is an error code."""
    return code
