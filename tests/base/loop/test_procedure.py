"""The driver of procedures (generators that wait for answers): answers that arrive at once, late, twice or after the end, and cancelling
from outside and from within."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.loop.procedure import CHECKPOINT, Answer, Mailbox, Procedure, Runner, pause
from tests.fakes.timers import ManualTimers

Resume = Callable[..., None]


class Asked:
    """Requests that are answered when the test says so."""

    def __init__(self) -> None:
        self.open: list[Resume] = []

    def __call__(self, resume: Resume) -> None:
        self.open.append(resume)


def collect(notes: list[Any], *effects: Any) -> Procedure[None]:
    try:
        for effect in effects:
            notes.append((yield effect))
        notes.append("end")
    finally:
        notes.append("closed")


def test_it_is_resumed_with_none_with_a_value_or_with_several() -> None:
    notes: list[Any] = []
    asked, runner = Asked(), Runner()
    runner.start(collect(notes, asked, asked, asked))
    for values in [(), (None,), (1, 2)]:
        assert runner.is_running
        asked.open.pop()(*values)
    assert notes == [None, None, (1, 2), "end", "closed"] and not runner.is_running


def test_answers_that_are_there_at_once_need_no_deeper_stack() -> None:
    notes: list[Any] = []
    Runner().start(collect(notes, *[lambda resume, number=number: resume(number) for number in range(5_000)]))
    assert notes == [*range(5_000), "end", "closed"]


def test_a_second_answer_is_ignored() -> None:
    notes: list[Any] = []
    asked, runner = Asked(), Runner()
    runner.start(collect(notes, lambda resume: (resume(1), resume(2)), asked, asked))
    first = asked.open[0]
    first("once")
    first("twice")
    assert notes == [1, "once"] and runner.is_running


def test_another_start_cancels_and_late_answers_are_ignored() -> None:
    notes: list[Any] = []
    asked, runner = Asked(), Runner()
    runner.start(collect(notes, asked))
    watch = runner.bound(notes.append)
    watch("seen")
    runner.start(collect(notes, asked))
    watch("not seen")
    asked.open[0]("late")
    assert notes == ["seen", "closed"] and runner.is_running
    runner.cancel()
    runner.cancel()
    asked.open[1]("late")
    assert notes == ["seen", "closed", "closed"] and not runner.is_running


def test_a_bound_function_is_called_after_the_end_until_the_next_start() -> None:
    notes: list[Any] = []
    runner = Runner()
    runner.start(collect([]))
    watch = runner.bound(notes.append)
    watch("after the end")
    runner.start(collect([]))
    watch("after the start")
    assert notes == ["after the end"]


def test_a_procedure_that_cancels_itself_ends_at_its_next_yield() -> None:
    notes: list[Any] = []
    asked, runner = Asked(), Runner()

    def run() -> Procedure[None]:
        try:
            yield asked
            runner.cancel()
            notes.append("cancelled")
            yield asked
            notes.append("never")
        finally:
            notes.append("closed")

    runner.start(run())
    asked.open[0]()
    assert notes == ["cancelled", "closed"] and len(asked.open) == 1 and not runner.is_running


def test_a_procedure_that_starts_its_successor_ends_at_its_checkpoint() -> None:
    notes: list[Any] = []
    asked, runner = Asked(), Runner()

    def run() -> Procedure[None]:
        yield CHECKPOINT
        notes.append("checked")
        runner.start(collect(notes, asked))
        yield CHECKPOINT
        notes.append("never")

    runner.start(run())
    assert notes == ["checked"] and runner.is_running
    asked.open[0]("answer")
    assert notes == ["checked", "answer", "end", "closed"]


def test_a_request_may_cancel_before_it_answers_or_after() -> None:
    notes: list[Any] = []
    runner = Runner()

    def cancel_then_answer(resume: Resume) -> None:
        runner.cancel()
        resume("late")

    def answer_then_cancel(resume: Resume) -> None:
        resume("early")
        runner.cancel()

    runner.start(collect(notes, cancel_then_answer))
    runner.start(collect(notes, answer_then_cancel))
    assert notes == ["closed", "closed"] and not runner.is_running


def test_an_exception_ends_the_procedure_and_reaches_the_caller() -> None:
    notes: list[Any] = []
    asked, runner = Asked(), Runner()

    def run() -> Procedure[None]:
        yield asked
        raise AssertionError("broken")

    runner.start(run())
    with pytest.raises(AssertionError, match="broken"):
        asked.open[0]()
    asked.open[0]()
    assert not runner.is_running

    def fail(_resume: Resume) -> None:
        raise OSError("no request")

    with pytest.raises(OSError, match="no request"):
        runner.start(collect(notes, fail))
    assert notes == ["closed"] and not runner.is_running


def test_a_pause_ends_in_time_and_leaves_no_timer_when_it_is_cancelled() -> None:
    notes: list[Any] = []
    timers, runner = ManualTimers(), Runner()

    def run() -> Procedure[None]:
        yield from pause(timers, 100)
        notes.append("later")
        yield from pause(timers, 100)

    runner.start(run())
    timers.advance(99)
    assert notes == []
    timers.advance(1)
    assert notes == ["later"] and timers.pending() == 1
    runner.cancel()
    assert timers.pending() == 0


def test_an_answer_may_arrive_before_during_or_after_the_wait() -> None:
    notes: list[Any] = []
    timers, runner = ManualTimers(), Runner()
    early, timely, late = Answer[Any](), Answer[Any](), Answer[Any]()

    def run() -> Procedure[None]:
        for answer in (early, timely, late):
            notes.append((yield from answer.wait(timers, 10)))
        notes.append((yield from late.wait(timers, 10)))

    early(1)
    early(2)
    runner.start(run())
    assert notes == [True]
    timers.advance(9)
    timely(1, 2)
    timers.advance(10)
    assert notes == [True, True, False]
    late()
    assert notes == [True, True, False, True] and not runner.is_running and timers.pending() == 0
    assert (early.value, timely.value, late.value) == (1, (1, 2), ())


def test_an_answer_after_the_wait_was_cancelled_resumes_nothing() -> None:
    timers, runner, answer = ManualTimers(), Runner(), Answer[int]()

    def run() -> Procedure[None]:
        yield from answer.wait(timers, 10)
        raise AssertionError("resumed")

    runner.start(run())
    runner.cancel()
    answer(1)
    assert answer.value == 1 and timers.pending() == 0


def test_a_mailbox_keeps_its_values_in_order_until_they_are_taken() -> None:
    runner, mailbox = Runner(), Mailbox[int]()
    notes: list[int] = []

    def run() -> Procedure[None]:
        while True:
            notes.append((yield from mailbox.take()))

    mailbox.put(1)
    mailbox.put(2)
    runner.start(run())
    assert notes == [1, 2]
    mailbox.put(3)
    assert notes == [1, 2, 3]
    runner.cancel()
    mailbox.put(4)
    assert notes == [1, 2, 3]
