"""Waiters: one wake for many moves, after the answers of the connection that moved something; what follows a wake runs once, after all."""

from __future__ import annotations

import pytest

from ottla.base.errors import StorageError
from ottla.server.waiters import Waiters, Watch
from tests.fakes.clock import ManualClock
from tests.fakes.timers import ManualTimers


def started(waiters: Waiters, called: list[str], name: str) -> Watch:
    return waiters.watch((), 1000, lambda: called.append(name), lambda: called.append(name + " timed out"))


def test_a_batch_wakes_each_watch_once_when_it_is_over() -> None:
    waiters, called = Waiters(ManualTimers(ManualClock())), []
    first, second = started(waiters, called, "first"), started(waiters, called, "second")
    waiters.begin_batch()
    for watch in (first, second, first):
        watch.mark()
    second.cancel()
    assert called == []
    waiters.run()
    waiters.run()
    assert called == ["first"], "a watch that is cancelled in between is not woken"


def test_without_a_batch_the_next_turn_of_the_loop_wakes() -> None:
    timers = ManualTimers(ManualClock())
    waiters, called = Waiters(timers), []
    started(waiters, called, "first").mark()
    assert called == []
    timers.run_due()
    assert called == ["first"]


def test_what_follows_a_wake_comes_once_and_last() -> None:
    waiters, called = Waiters(ManualTimers(ManualClock())), []

    def follow() -> None:
        called.append("follow")

    def wake(name: str) -> None:
        called.append(name)
        assert waiters.after_wakes(follow)

    for name in ("first", "second"):
        waiters.watch((), 1000, lambda name=name: wake(name), lambda: None).mark()
    assert not waiters.after_wakes(follow), "no watch is being woken"
    waiters.run()
    assert called == ["first", "second", "follow"]


def test_time_runs_out() -> None:
    timers = ManualTimers(ManualClock())
    waiters, called = Waiters(timers), []
    started(waiters, called, "first")
    started(waiters, called, "second").cancel()
    timers.advance(1000)
    assert called == ["first timed out"]


def test_a_failed_wake_leaves_the_others_of_its_round_to_the_next_turn() -> None:
    timers = ManualTimers(ManualClock())
    waiters, called = Waiters(timers), []

    def fail() -> None:
        called.append("failed")
        raise StorageError("cannot read", "/data")

    waiters.watch((), 1000, fail, lambda: None).mark()
    for name in ("second", "third"):
        started(waiters, called, name).mark()
    with pytest.raises(StorageError):
        timers.run_due()
    timers.run_due()
    assert called == ["failed", "second", "third"]


def test_a_failed_follower_of_a_wake_leaves_the_others_to_the_next_turn() -> None:
    timers = ManualTimers(ManualClock())
    waiters, called = Waiters(timers), []

    def fail() -> None:
        raise StorageError("cannot send", "/data")

    def wake() -> None:
        for function in (fail, lambda: called.append("first"), lambda: called.append("second")):
            assert waiters.after_wakes(function)

    waiters.watch((), 1000, wake, lambda: None).mark()
    with pytest.raises(StorageError):
        timers.run_due()
    timers.run_due()
    assert called == ["first", "second"]
