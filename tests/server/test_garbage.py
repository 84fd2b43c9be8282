"""Full collections walk over young objects only, and garbage that was frozen is found when there is much of it."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from ottla.server.garbage import OVERDUE_FACTOR, OVERDUE_LOOKS, QUIET_SECONDS, Garbage

GROWTH_MIN = 1000


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


class Work:
    """The processor time of the loop's thread, as the test says."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def garbage(work: Work) -> Iterator[Garbage]:
    policy = Garbage(GROWTH_MIN, work)
    policy.begin()
    yield policy
    policy.end()


def test_what_a_full_collection_has_found_in_use_is_not_walked_over_again(garbage: Garbage) -> None:
    held = [[number] for number in range(5000)]
    gc.collect()
    young = {id(known) for known in gc.get_objects()}
    assert not any(id(element) in young for element in held)


def test_young_garbage_is_collected_and_frozen_objects_are_freed_by_their_reference_counts(garbage: Garbage) -> None:
    node, plain = Node(), {1}
    seen = weakref.ref(node)
    del node
    gc.collect()
    assert seen() is None
    frozen = gc.get_freeze_count()
    held = [[number] for number in range(5000)]
    gc.collect()
    assert gc.get_freeze_count() >= frozen + 5000 and plain
    held.clear()
    assert gc.get_freeze_count() < frozen + 5000


def frozen_garbage() -> weakref.ref[Node]:
    node = Node()
    seen = weakref.ref(node)
    gc.collect()
    del node
    gc.collect()
    assert seen() is not None, "it is frozen"
    return seen


def has_grown(policy: Garbage, factor: int) -> None:
    """There are so many times as many objects as after the last walk."""
    policy._in_use = sys.getallocatedblocks() // factor


def test_frozen_garbage_is_collected_once_there_are_twice_as_many_objects(garbage: Garbage) -> None:
    seen = frozen_garbage()
    garbage.look()
    assert seen() is not None
    held = [[number] for number in range(5000)]
    has_grown(garbage, 2)
    garbage.look()
    assert seen() is None
    assert gc.get_freeze_count() >= len(held), "what is in use is frozen again"
    again = frozen_garbage()
    garbage.look()
    assert again() is not None, "a walk begins the count anew"


def test_everything_is_walked_over_when_the_broker_has_little_to_do(garbage: Garbage, work: Work) -> None:
    seen = frozen_garbage()
    has_grown(garbage, OVERDUE_FACTOR - 1)
    work.seconds += QUIET_SECONDS + 1
    garbage.look()
    assert seen() is not None
    work.seconds += QUIET_SECONDS
    garbage.look()
    assert seen() is None


def test_a_walk_that_is_overdue_does_not_wait_for_that(garbage: Garbage, work: Work) -> None:
    seen = frozen_garbage()
    has_grown(garbage, OVERDUE_FACTOR)
    for _ in range(OVERDUE_LOOKS - 1):
        work.seconds += QUIET_SECONDS + 1
        garbage.look()
    assert seen() is not None, "a client that has much created under load would have everybody wait for a walk over it"
    work.seconds += QUIET_SECONDS + 1
    garbage.look()
    assert seen() is None


def test_a_look_does_not_count_frozen_objects_one_by_one(garbage: Garbage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 40 ms where 20,000 groups were held, every ten seconds."""
    counted: list[int] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(1) or 0)
    has_grown(garbage, 2)
    garbage.look()
    assert not counted


def test_full_collections_come_while_there_is_little_to_walk_over(garbage: Garbage) -> None:
    """A walk over all that 11,000 groups had brought since the last one took 37 ms of processor time."""
    walked_over: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            walked_over.append(len(gc.get_objects()))

    gc.collect()
    gc.callbacks.append(note)
    try:
        held = [[number] for number in range(300_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(held) > max(walked_over) > 0
    assert max(walked_over) < 40_000


def test_the_end_leaves_nothing_behind() -> None:
    policy, before, thresholds = Garbage(), list(gc.callbacks), gc.get_threshold()
    policy.begin()
    assert gc.get_threshold() != thresholds
    policy.end()
    assert list(gc.callbacks) == before and gc.get_freeze_count() == 0 and gc.get_threshold() == thresholds
