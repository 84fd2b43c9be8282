"""Waiters: several changes cause one wake, after the connection that caused them has sent its answers. Functions for the end of a round of
wakes run once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from ottla.base.errors import StorageError
from ottla.server.execution.waiters import WAKES_PER_LOOK, Waiters, Watch
from tests.fakes.clock import ManualClock
from tests.fakes.timers import ManualTimers


def started(waiters: Waiters, called: list[str], name: str) -> Watch:
    return waiters.watch((), 1000, lambda: called.append(name), lambda: called.append(name + " timed out"))


def test_a_batch_wakes_each_watch_once_when_it_is_over() -> None:
    waiters, called = Waiters(ManualClock(), ManualTimers(ManualClock())), []
    first, second = started(waiters, called, "first"), started(waiters, called, "second")
    waiters.is_batching = True
    for watch in (first, second, first):
        watch.mark()
    second.cancel()
    assert called == []
    waiters.run()
    waiters.run()
    assert called == ["first"], "a watch that is cancelled in between is not woken"


def test_without_a_batch_the_next_turn_of_the_loop_wakes() -> None:
    timers = ManualTimers()
    waiters, called = Waiters(timers.clock, timers), []
    started(waiters, called, "first").mark()
    assert called == []
    timers.run_due()
    assert called == ["first"]


def test_what_follows_a_wake_comes_once_and_last() -> None:
    waiters, called = Waiters(ManualClock(), ManualTimers(ManualClock())), []

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


def test_a_watch_that_is_over_keeps_nothing_of_its_request() -> None:
    """A request and its watch refer to each other. Formerly 280,000 objects of fetches whose clients had disconnected waited for the
    garbage collector."""

    class Request:
        watch: Watch

        def wake(self) -> None:
            """Not called."""

    timers, request = ManualTimers(), Request()
    waiters = Waiters(timers.clock, timers)
    request.watch = waiters.watch((), 1000, request.wake, request.wake)
    request.watch.cancel()
    timers.advance(1000)  # these timers keep a cancelled function until its time
    known = weakref.ref(request)
    gc.disable()
    try:
        del request
        assert known() is None
    finally:
        gc.enable()


def test_time_runs_out() -> None:
    timers = ManualTimers()
    waiters, called = Waiters(timers.clock, timers), []
    started(waiters, called, "first")
    started(waiters, called, "second").cancel()
    timers.advance(1000)
    assert called == ["first timed out"]


def test_a_failed_wake_leaves_the_others_of_its_round_to_the_next_turn() -> None:
    timers = ManualTimers()
    waiters, called = Waiters(timers.clock, timers), []

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
    timers = ManualTimers()
    waiters, called = Waiters(timers.clock, timers), []

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


class Notifier:
    """A notifier of a partition that readers wait for."""

    def add_watcher(self, function: Callable[[], None]) -> None: ...

    def remove_watcher(self, function: Callable[[], None]) -> None: ...


def test_thousands_of_readers_are_woken_in_rounds_and_acknowledgements_before_them() -> None:
    """Formerly each Produce to a partition with 50,000 waiting fetches blocked the loop for a second."""
    clock = ManualClock()
    timers = ManualTimers(clock)
    waiters, called = Waiters(clock, timers), []

    def wake(name: str) -> None:
        clock.advance(1)
        called.append(name)

    for number in range(100):
        waiters.watch([Notifier()], 1000, lambda number=number: wake(f"reader {number}"), lambda: None).mark()
    waiters.is_batching = True
    waiters.run()
    assert called == [], "the scheduled round wakes them"
    timers.run_due()
    assert WAKES_PER_LOOK <= len(called) < 50, "a round is bounded"
    first = len(called)
    waiters.is_batching = True
    started(waiters, called, "acknowledgement").mark()
    waiters.run()
    assert called[first:] == ["acknowledgement"], "what waits behind readers is not held up by them"
    while len(called) < 101:
        timers.run_due()
    assert [name for name in called if name != "acknowledgement"] == [f"reader {number}" for number in range(100)]


def test_a_request_behind_those_that_a_stop_answers_does_not_wait() -> None:
    """Formerly a clean stop with 1,100 pipelined fetches took all of `ottla.shutdown.timeout.ms`, because after each answer the next fetch
    was executed and waited."""
    clock = ManualClock()
    timers = ManualTimers(clock)
    waiters, answered = Waiters(clock, timers), list[int]()

    def execute(number: int) -> None:
        def answer() -> None:
            watch.cancel()
            answered.append(number)
            if number < 5:
                execute(number + 1)

        watch = waiters.watch((), 1_000_000, lambda: None, answer)

    execute(0)
    waiters.expire_all()
    while len(answered) < 6:
        before = len(answered)
        timers.run_due()
        assert len(answered) > before, "it waits"
    assert answered == [0, 1, 2, 3, 4, 5] and not waiters.deadlines.waits()


def test_a_wait_ends_by_its_newest_timeout_whether_that_is_earlier_or_later() -> None:
    timers = ManualTimers()
    waiters, ended = Waiters(timers.clock, timers), []
    watch = waiters.watch((), 1000, lambda: None, lambda: ended.append(timers.clock.monotonic_ms() - start_ms))
    start_ms = timers.clock.monotonic_ms()
    watch.wait_for(10, start_ms)
    watch.wait_for(500, start_ms)
    timers.advance(499)
    assert ended == [], "the earlier timeout was replaced"
    timers.advance(1)
    assert ended == [500]
    watch.wait_for(100, timers.clock.monotonic_ms())
    timers.advance(50)
    watch.wait_for(2, timers.clock.monotonic_ms())
    timers.advance(1000)
    assert ended == [500, 552], "a timeout that has passed can be replaced, and an earlier one counts"
    watch.wait_for(100, timers.clock.monotonic_ms())
    watch.cancel()
    timers.advance(1000)
    assert len(ended) == 2 and not waiters.deadlines.waits()


def test_a_timeout_that_is_replaced_while_the_broker_stops_is_over_at_once() -> None:
    timers = ManualTimers()
    waiters, ended = Waiters(timers.clock, timers), []
    watch = waiters.watch((), 1000, lambda: None, lambda: ended.append("over"))
    watch.wait_for(5000, timers.clock.monotonic_ms())
    waiters.expire_all()
    assert ended == ["over"]
    watch.wait_for(1000, timers.clock.monotonic_ms())
    timers.advance(0)
    timers.run_due()
    assert ended == ["over", "over"]
