"""Requests that wait for partitions: every change of a partition leads to another look, at once or in steps. A look that raises fails only
its own request."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ottla.base.loop.notifier import Notifier
from ottla.handlers.records.partition_wait import PartitionWait
from ottla.server.execution.waiters import Waiters
from tests.fakes.world import World


class Request:
    """A request that waits for one partition; each look returns the next of `results`, or raises it."""

    def __init__(self, waiters: Waiters, partition: Notifier, is_in_steps: bool, *results: Any) -> None:
        self.results = list(results)
        self.looks: list[bool] = []
        self.outcomes: list[Any] = []
        self.is_in_steps = is_in_steps
        self.wait = PartitionWait(waiters, self._look, self.outcomes.append, self.outcomes.append)
        self.wait.begin([partition], 100)

    def _look(self, is_last: bool) -> Any:
        return self._task(is_last) if self.is_in_steps else self._result(is_last)

    def _task(self, is_last: bool) -> Generator[None, None, Any]:
        yield
        return self._result(is_last)

    def _result(self, is_last: bool) -> Any:
        self.looks.append(is_last)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


class PartitionWaitWorld(World):
    def __init__(self, is_in_steps: bool) -> None:
        self.is_in_steps = is_in_steps
        self.partition = Notifier()

    def request(self, *results: Any) -> Request:
        return Request(self.waiters, self.partition, self.is_in_steps, *results)

    def move(self) -> None:
        self.partition.notify()
        self.timers.run_due()


@pytest.fixture(params=[False, True], ids=["at once", "in steps"])
def world(request: pytest.FixtureRequest) -> PartitionWaitWorld:
    return PartitionWaitWorld(request.param)


def test_each_move_leads_to_a_look_until_there_is_a_result(world: PartitionWaitWorld) -> None:
    request = world.request(None, "result")
    world.move()
    assert request.looks == [False] and request.outcomes == []
    world.move()
    assert request.outcomes == ["result"] and request.wait.is_over
    world.move()
    world.timers.advance(200)
    assert request.looks == [False, False] and not world.waiters.deadlines.waits()


def test_the_end_of_the_time_leads_to_the_last_look(world: PartitionWaitWorld) -> None:
    request = world.request("result")
    world.timers.advance(100)
    assert request.looks == [True] and request.outcomes == ["result"]


def test_a_look_that_fails_fails_its_own_request_only(world: PartitionWaitWorld) -> None:
    """Formerly an exception in the look of a small Fetch closed the connection of the client whose append caused the look."""
    failure = KeyError("a mistake of ours")
    failing, other = world.request(failure), world.request("result")
    world.move()
    assert failing.outcomes == [failure] and other.outcomes == ["result"]
    assert not world.waiters.deadlines.waits() and not world.partition.watchers


def test_a_wait_that_is_cancelled_looks_no_more(world: PartitionWaitWorld) -> None:
    request = world.request("result")
    world.partition.notify()
    request.wait.cancel()
    world.timers.run_due()
    world.timers.advance(200)
    assert request.looks == [] and request.outcomes == [] and not world.waiters.deadlines.waits()


def test_a_move_during_a_look_leads_to_another_one() -> None:
    world = PartitionWaitWorld(is_in_steps=True)
    world.waiters.turns.piece_ms = 0
    request = world.request(None, "result")
    world.timers.call_soon(lambda: world.timers.call_soon(world.partition.notify))
    world.move()
    assert request.looks == [False, False] and request.outcomes == ["result"]
