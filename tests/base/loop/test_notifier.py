"""The notifier: which functions are called after which change of a partition, in which order, and at what cost."""

from __future__ import annotations

import functools

from ottla.base.loop.notifier import Notifier


class Callers:
    """Functions that record their names when they are called."""

    def __init__(self) -> None:
        self.notifier = Notifier()
        self.called: list[str] = []

    def named(self, name: str) -> functools.partial[None]:
        return functools.partial(self.called.append, name)

    def taken(self) -> list[str]:
        called, self.called[:] = list(self.called), []
        return called


def test_a_watcher_is_called_at_each_move_until_it_is_removed() -> None:
    callers = Callers()
    watcher = callers.named("w")
    callers.notifier.add_watcher(watcher)
    callers.notifier.notify()
    callers.notifier.notify()
    callers.notifier.remove_watcher(watcher)
    callers.notifier.remove_watcher(watcher)
    callers.notifier.notify()
    assert callers.taken() == ["w", "w"]


def test_waiters_are_called_once_in_the_order_of_their_ends() -> None:
    callers = Callers()
    for end in (3, 1, 2, 5, 2):
        callers.notifier.call_when_committed(end, callers.named(f"{end}"))
    callers.notifier.call_when_durable(1, callers.named("durable"))
    callers.notifier.notify(committed_end=0, durable_end=0)
    assert callers.taken() == []
    callers.notifier.notify(committed_end=3, durable_end=0)
    assert callers.taken() == ["1", "2", "2", "3"]
    callers.notifier.notify(committed_end=4, durable_end=1)
    assert callers.taken() == ["durable"]
    assert list(callers.notifier.waiters) and not callers.notifier.watchers


def test_a_function_that_waits_for_two_ends_is_called_at_the_later_one() -> None:
    callers = Callers()
    twice = callers.named("twice")
    for end in (3, 5, 4):
        callers.notifier.call_when_committed(end, twice)
    callers.notifier.notify(committed_end=4)
    assert callers.taken() == []
    callers.notifier.notify(committed_end=5)
    assert callers.taken() == ["twice"] and not callers.notifier.waiters


def test_1000_waiters_cost_1000_calls_and_as_many_steps_whatever_the_moves() -> None:
    callers = Callers()
    for end in range(1, 1001):
        callers.notifier.call_when_committed(end, callers.named(f"{end}"))
    for end in range(1, 1001):
        callers.notifier.notify(committed_end=end)
        assert callers.taken() == [f"{end}"]


def test_removed_waiters_are_not_kept_for_an_end_that_never_comes() -> None:
    callers = Callers()
    kept = callers.named("kept")
    callers.notifier.call_when_committed(7, kept)
    for number in range(10_000):
        function = callers.named(f"{number}")
        callers.notifier.call_when_committed(1_000_000, function)
        callers.notifier.forget(function)
        callers.notifier.forget(function)
    assert len(callers.notifier._committed) < 200 and list(callers.notifier.waiters) == [kept]
    callers.notifier.notify(committed_end=7)
    assert callers.taken() == ["kept"]


def test_a_move_inside_of_a_call_is_reported_after_the_round() -> None:
    callers = Callers()
    notifier, depth = callers.notifier, 0

    def watcher() -> None:
        nonlocal depth
        depth += 1
        callers.called.append(f"depth {depth}")
        if len(callers.called) < 3:
            notifier.notify(committed_end=len(callers.called))
        depth -= 1

    notifier.add_watcher(watcher)
    notifier.call_when_committed(2, callers.named("two"))
    notifier.notify()
    assert callers.taken() == ["depth 1", "depth 1", "two", "depth 1"]


def test_the_end_of_waits_calls_present_waiters_and_no_later_ones() -> None:
    callers = Callers()
    notifier = callers.notifier
    forgotten = callers.named("forgotten")

    def wait_again() -> None:
        callers.called.append("first")
        notifier.forget(forgotten)
        notifier.call_when_committed(2, callers.named("of the next term"))

    notifier.call_when_committed(9, callers.named("last"))
    notifier.call_when_committed(5, wait_again)
    notifier.call_when_committed(6, forgotten)
    notifier.end_waits()
    assert callers.taken() == []
    notifier.notify(committed_end=1)
    assert callers.taken() == ["first", "last"]
    notifier.notify(committed_end=2)
    assert callers.taken() == ["of the next term"]


def test_a_failing_function_does_not_leave_the_notifier_busy() -> None:
    callers = Callers()

    def fail() -> None:
        callers.notifier.remove_watcher(fail)
        raise KeyError

    callers.notifier.add_watcher(fail)
    try:
        callers.notifier.notify()
    except KeyError:
        callers.notifier.add_watcher(callers.named("next"))
    callers.notifier.notify()
    assert callers.taken() == ["next"]
