"""A caller that is answered by a later decision gets exactly one answer: the first one."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.groups.deferred import Deferred, DeferredAnswers
from ottla.machine.contract import Effect, Respond
from ottla.machine.draft import Draft, same_code


def deferred_and_draft() -> tuple[DeferredAnswers, Deferred, Draft]:
    answers, draft = DeferredAnswers(), Draft()
    return answers, answers.defer("delete", print, same_code, draft), draft


def responses(effects: object) -> list[object]:
    assert isinstance(effects, list)
    return [effect.response for effect in effects if isinstance(effect, Respond)]


def test_a_later_decision_answers() -> None:
    answers, deferred, draft = deferred_and_draft()
    assert len(answers) == 1 and not responses(draft.decision().effects)
    for expected in ([ErrorCode.NONE], []):
        later = Draft()
        deferred.give(later, ErrorCode.NONE)
        assert responses(later.effects()) == expected
    assert not answers and answers.abandon(ErrorCode.NOT_COORDINATOR) == []


def test_the_log_refuses_the_first_decision() -> None:
    answers, deferred, draft = deferred_and_draft()
    decision = draft.decision()
    effects: list[Effect] = list(decision.refused(ErrorCode.NOT_COORDINATOR))
    assert responses(effects) == [ErrorCode.NOT_COORDINATOR]
    assert not answers and not deferred.take()


def test_the_coordinator_loses_its_partition() -> None:
    answers, deferred, _ = deferred_and_draft()
    assert responses(answers.abandon(ErrorCode.NOT_COORDINATOR)) == [ErrorCode.NOT_COORDINATOR]
    assert not answers and not deferred.take()


def test_a_caller_that_was_taken_over_is_left_alone() -> None:
    answers, deferred, _ = deferred_and_draft()
    assert deferred.take() and not deferred.take()
    assert answers.abandon(ErrorCode.NOT_COORDINATOR) == []


def test_two_callers_of_one_kind_have_timers_of_their_own() -> None:
    answers, deferred, draft = deferred_and_draft()
    assert answers.defer("delete", print, same_code, draft).key != deferred.key
