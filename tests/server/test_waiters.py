"""Waiters: one wake for many moves, after the answers of those who moved something; what follows a wake comes once, when all are woken."""

from __future__ import annotations

from ottla.server.waiters import Waiters, Watch
from tests.fakes.clock import ManualClock
from tests.fakes.timers import ManualTimers


def started(waiters: Waiters, heard: list[str], name: str) -> Watch:
    return waiters.watch((), 1000, lambda: heard.append(name), lambda: heard.append(name + " timed out"))


def test_a_batch_wakes_each_watch_once_when_it_is_over() -> None:
    waiters, heard = Waiters(ManualTimers(ManualClock())), []
    first, second = started(waiters, heard, "first"), started(waiters, heard, "second")
    waiters.begin_batch()
    for watch in (first, second, first):
        watch.mark()
    second.cancel()
    assert heard == []
    waiters.run()
    waiters.run()
    assert heard == ["first"], "who is cancelled in between is left alone"


def test_without_a_batch_the_next_turn_of_the_loop_wakes() -> None:
    timers = ManualTimers(ManualClock())
    waiters, heard = Waiters(timers), []
    started(waiters, heard, "first").mark()
    assert heard == []
    timers.run_due()
    assert heard == ["first"]


def test_what_follows_a_wake_comes_once_and_last() -> None:
    waiters, heard = Waiters(ManualTimers(ManualClock())), []

    def follow() -> None:
        heard.append("follow")

    def wake(name: str) -> None:
        heard.append(name)
        assert waiters.after_wakes(follow)

    for name in ("first", "second"):
        waiters.watch((), 1000, lambda name=name: wake(name), lambda: None).mark()
    assert not waiters.after_wakes(follow), "nobody is being woken"
    waiters.run()
    assert heard == ["first", "second", "follow"]


def test_time_runs_out() -> None:
    timers = ManualTimers(ManualClock())
    waiters, heard = Waiters(timers), []
    started(waiters, heard, "first")
    started(waiters, heard, "second").cancel()
    timers.advance(1000)
    assert heard == ["first timed out"]
