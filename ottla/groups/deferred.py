"""Answers that a group coordinator gives with a later decision than the one for the request.

Some commands need several decisions: a deletion in steps, a question to share coordinators, a group that changes its protocol before a
member joins. `defer` registers the caller with the first decision. A later decision answers the caller (`give`), or claims the caller
(`take`) and passes the reply to another command.

Invariant: each caller is answered exactly once. If the log refuses the first decision, or the coordinator loses its partition, the caller
gets an error, and the later decision finds nothing to answer. Soft state.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode
from ottla.machine.contract import Effect, Reply, Respond
from ottla.machine.draft import Draft, MakeRefusal


class Deferred:
    """One caller without an answer. `key` names the timer of the later decision, if there is one."""

    __slots__ = ("_waiting", "key", "refusal", "reply")

    def __init__(self, waiting: DeferredAnswers, key: str, reply: Reply, refusal: MakeRefusal) -> None:
        self.key = key
        self.reply = reply
        self.refusal = refusal
        self._waiting = waiting

    def take(self) -> bool:
        """Claims the caller. Returns False if the caller was answered already. After True, the code that called `take` must answer the
        caller.
        """
        return self._waiting.remove(self)

    def give(self, draft: Draft, response: object) -> None:
        """Answers the caller with this decision, unless it was answered already."""
        if self.take():
            draft.answer(self.reply, response, self.refusal)

    def refuse(self, repair: Draft, code: ErrorCode) -> None:
        """Answers with an error because the log refused the first decision (`Draft.on_refusal`)."""
        repair.cancel(self.key)
        self.give(repair, self.refusal(code))


class DeferredAnswers:
    """All waiting callers of one coordinator."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Deferred, None] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def defer(self, what: str, reply: Reply, refusal: MakeRefusal, draft: Draft) -> Deferred:
        """Registers the caller of `draft`, to be answered later; `what` is the prefix of the key."""
        self._count += 1
        deferred = Deferred(self, f"{what}/{self._count}", reply, refusal)
        self._waiting[deferred] = None
        draft.on_refusal(deferred.refuse)
        return deferred

    def remove(self, deferred: Deferred) -> bool:
        """Removes a caller; returns whether it was registered."""
        return self._waiting.pop(deferred, self) is None

    def abandon(self, code: ErrorCode) -> Sequence[Effect]:
        """Returns error answers for all waiting callers, when the coordinator loses its partition."""
        waiting, self._waiting = self._waiting, {}
        return [Respond(deferred.reply, deferred.refusal(code)) for deferred in waiting]
