"""Building of decisions: records, effects in their order, and the effects after a refusal, which answer the caller and repair soft
state."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.machine.contract import NOTHING, Call, Cancel, Decision, LogRecord, Respond, Schedule
from ottla.machine.draft import Draft, answered, followed, logged

ONE, TWO, THREE = (LogRecord(name, b"") for name in (b"1", b"2", b"3"))


def reply(_answer: object) -> None:
    raise AssertionError("only the host answers")


def nothing() -> None:
    raise AssertionError("only the host calls")


def again(_now_ms: int) -> Decision:
    return NOTHING


def refusal(code: ErrorCode) -> str:
    return f"refused: {code.name}"


def test_an_answer_without_records() -> None:
    decision = answered(reply, "yes", refusal)
    assert (decision.records, decision.effects) == ((), (Respond(reply, "yes"),))
    assert decision.refused(ErrorCode.NOT_COORDINATOR) == (Respond(reply, "refused: NOT_COORDINATOR"),)


def test_one_record_and_an_answer() -> None:
    decision = logged(ONE, reply, "yes", refusal)
    assert (decision.records, decision.effects) == ((ONE,), (Respond(reply, "yes"),))
    assert decision.refused(ErrorCode.NOT_COORDINATOR) == (Respond(reply, "refused: NOT_COORDINATOR"),)


def test_a_call_comes_before_the_answer_and_not_with_a_refusal() -> None:
    """Markers are sent before the client is answered, so that its next transaction need not wait for them."""
    decision = logged(ONE, reply, "yes", refusal, nothing)
    assert decision.effects == (Call(nothing), Respond(reply, "yes"))
    assert decision.refused(ErrorCode.NOT_COORDINATOR) == (Respond(reply, "refused: NOT_COORDINATOR"),)


def test_one_record_and_a_call_that_is_tried_again() -> None:
    decision = followed(ONE, nothing, lambda draft, _code: draft.schedule("again", 5, again))
    assert (decision.records, decision.effects) == ((ONE,), (Call(nothing),))
    assert decision.refused(ErrorCode.NOT_ENOUGH_REPLICAS) == [Schedule("again", 5, again)]


def test_the_effects_of_a_draft_are_timers_answers_calls() -> None:
    draft = Draft([ONE])
    draft.call(nothing)
    draft.answer(reply, "yes", refusal)
    draft.schedule("first", 1, again)
    draft.cancel("second")
    assert draft.decision().effects == [Schedule("first", 1, again), Cancel("second"), Respond(reply, "yes"), Call(nothing)]


def test_a_refused_draft_keeps_its_timers_and_drops_its_calls() -> None:
    draft = Draft([ONE])
    draft.call(nothing)
    draft.answer(reply, "yes", refusal)
    draft.schedule("first", 1, again)
    refused = draft.decision().refused(ErrorCode.NOT_COORDINATOR)
    assert refused == [Respond(reply, "refused: NOT_COORDINATOR"), Schedule("first", 1, again)]


def test_a_repair_replaces_timers_of_the_draft() -> None:
    draft = Draft([ONE])
    draft.schedule("scan", 0, again)
    draft.on_refusal(lambda repair, _code: repair.schedule("scan", 1_000, again))
    assert draft.decision().effects == [Schedule("scan", 0, again)]
    assert draft.decision().refused(ErrorCode.NOT_COORDINATOR) == [Schedule("scan", 1_000, again)]


def test_separate_records_are_a_part_each() -> None:
    draft = Draft()
    draft.separate([ONE, TWO])
    decision = draft.decision()
    assert not decision.records and [part.records for part in decision.parts] == [(ONE,), (TWO,)]


def test_an_included_draft_keeps_its_effects_to_itself() -> None:
    draft, part = Draft(), Draft([ONE, TWO])
    part.call(nothing)
    part.on_refusal(lambda repair, _code: repair.schedule("part", 7, again))
    draft.include(part)
    draft.separate([THREE])
    decision = draft.decision()
    assert [list(one.records) for one in decision.parts] == [[ONE, TWO], [THREE]] and decision.effects == []
    assert decision.parts[0].effects == [Call(nothing)]
    assert decision.parts[0].refused(ErrorCode.NOT_COORDINATOR) == [Schedule("part", 7, again)]
