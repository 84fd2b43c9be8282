"""Answers that a group coordinator gives by a later decision than the one that took the request.

A deletion in steps, a question to share coordinators, a group that changes its protocol before a member joins: each decides more than once
before it can answer. `defer` notes the caller with the first decision; a later one gives the answer, or takes the caller over.

Invariant: a caller is answered exactly once. If the log refuses the first decision, or the coordinator loses its partition before the later
one, the caller gets the error instead, and the later decision finds that it has nothing to answer. Soft state.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode
from ottla.machine.contract import Answer, Effect, Reply
from ottla.machine.draft import Draft, Refusal


class Deferred:
    """One caller that is still to be answered. `key` names the timer of the later decision, where it has one."""

    __slots__ = ("_waiting", "key", "refusal", "reply")

    def __init__(self, waiting: DeferredAnswers, key: str, reply: Reply, refusal: Refusal) -> None:
        self.key = key
        self.reply = reply
        self.refusal = refusal
        self._waiting = waiting

    def take(self) -> bool:
        """Whether the caller still waits; from now on the asker has to answer it."""
        return self._waiting.remove(self)

    def give(self, draft: Draft, response: object) -> None:
        """Answers with this decision, unless the caller has its answer."""
        if self.take():
            draft.answer(self.reply, response, self.refusal)

    def refuse(self, repair: Draft, code: ErrorCode) -> None:
        """The log has refused the first decision (`Draft.on_refusal`)."""
        repair.cancel(self.key)
        self.give(repair, self.refusal(code))


class DeferredAnswers:
    """All callers of one coordinator that wait so."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Deferred, None] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def defer(self, what: str, reply: Reply, refusal: Refusal, draft: Draft) -> Deferred:
        """The caller of `draft`, which will be answered later; `what` begins the key."""
        self._count += 1
        deferred = Deferred(self, f"{what}/{self._count}", reply, refusal)
        self._waiting[deferred] = None
        draft.on_refusal(deferred.refuse)
        return deferred

    def remove(self, deferred: Deferred) -> bool:
        """Whether it was there."""
        return self._waiting.pop(deferred, self) is None

    def abandon(self, code: ErrorCode) -> Sequence[Effect]:
        """The answers to all that wait, when the coordinator loses its partition."""
        waiting, self._waiting = self._waiting, {}
        return [Answer(deferred.reply, deferred.refusal(code)) for deferred in waiting]
