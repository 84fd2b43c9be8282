"""Full collections examine only young objects. Frozen objects are searched for garbage only if the memory of the process suggests that
there is some."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.server.garbage import AGAIN_LOOKS, ALLOWANCE_BYTES, CHANGE_BYTES, OVERDUE_LOOKS, QUIET_SECONDS, Garbage

MIB = 1 << 20
MEMORY_MAX_BYTES = 500 * MIB
START_BYTES = 40 * MIB
SUSPICIOUS_BYTES = START_BYTES + MEMORY_MAX_BYTES + ALLOWANCE_BYTES


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


class Gauge:
    """The memory of the process, or the CPU time of the loop's thread, as set by the test."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


@pytest.fixture
def work() -> Gauge:
    return Gauge(100.0)


@pytest.fixture
def memory() -> Gauge:
    return Gauge(START_BYTES)


@pytest.fixture
def garbage(memory: Gauge, work: Gauge) -> Iterator[Garbage]:
    policy = Garbage(MEMORY_MAX_BYTES, memory, work)
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


def test_everything_is_walked_over_only_when_nothing_explains_the_memory(garbage: Garbage, memory: Gauge) -> None:
    """A large number of topics is no reason for a walk over all objects, because a walk over 37,000 topics takes a second."""
    seen = frozen_garbage()
    held = [[number] for number in range(500_000)]
    memory.value = SUSPICIOUS_BYTES - 1
    garbage.look()
    assert seen() is not None
    memory.value = SUSPICIOUS_BYTES
    garbage.look()
    assert seen() is None
    assert gc.get_freeze_count() >= len(held), "what is in use is frozen again"


def test_a_walk_that_has_not_helped_is_made_again_when_there_is_a_quarter_more(garbage: Garbage, memory: Gauge) -> None:
    memory.value = SUSPICIOUS_BYTES
    garbage.look()
    seen = frozen_garbage()
    memory.value = SUSPICIOUS_BYTES * 5 // 4 - 1
    garbage.look()
    assert seen() is not None
    memory.value += 1
    garbage.look()
    assert seen() is None


def test_after_a_walk_that_has_helped_the_bound_is_what_it_was(
    garbage: Garbage, memory: Gauge, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = frozen_garbage()
    measured = iter([SUSPICIOUS_BYTES, SUSPICIOUS_BYTES, START_BYTES])
    monkeypatch.setattr(garbage, "_memory_bytes", lambda: next(measured))
    garbage.look()
    assert seen() is None and not list(measured)
    assert "the process has 640 MiB" in caplog.text and "40 MiB are left" in caplog.text
    monkeypatch.setattr(garbage, "_memory_bytes", lambda: SUSPICIOUS_BYTES)
    again = frozen_garbage()
    garbage.look()
    assert again() is None


def test_a_walk_waits_for_a_broker_that_has_little_to_do(garbage: Garbage, memory: Gauge, work: Gauge) -> None:
    seen = frozen_garbage()
    memory.value = SUSPICIOUS_BYTES
    work.value += QUIET_SECONDS + 1
    garbage.look()
    assert seen() is not None
    work.value += QUIET_SECONDS
    garbage.look()
    assert seen() is None


def test_a_walk_that_is_overdue_does_not_wait_for_that(garbage: Garbage, memory: Gauge, work: Gauge) -> None:
    seen = frozen_garbage()

    def busy_looks(count: int) -> None:
        for _ in range(count):
            work.value += QUIET_SECONDS + 1
            garbage.look()

    memory.value = SUSPICIOUS_BYTES
    busy_looks(OVERDUE_LOOKS - 1)
    memory.value -= 1
    busy_looks(1)
    assert seen() is not None, "the attack was over in time"
    memory.value += 1
    busy_looks(OVERDUE_LOOKS - 1)
    assert seen() is not None
    busy_looks(1)
    assert seen() is None


def test_a_look_does_not_count_frozen_objects_one_by_one(garbage: Garbage, memory: Gauge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly each look took 40 ms in a broker with 20,000 groups, every ten seconds."""
    counted: list[int] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(1) or 0)
    memory.value = SUSPICIOUS_BYTES
    garbage.look()
    assert not counted


@pytest.mark.parametrize("is_after_a_walk", [False, True])
def test_full_collections_come_while_there_is_little_to_walk_over(garbage: Garbage, memory: Gauge, is_after_a_walk: bool) -> None:
    """Formerly a full collection over all objects of 11,000 groups, created since the last collection, took 37 ms of CPU time."""
    walked_over: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            walked_over.append(len(gc.get_objects()))

    held = [[number] for number in range(300_000)]
    gc.collect()
    if is_after_a_walk:
        memory.value = SUSPICIOUS_BYTES
        garbage.look()
    gc.callbacks.append(note)
    try:
        held += [[number] for number in range(300_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(held) > max(walked_over) > 0
    assert max(walked_over) < 40_000


def test_the_end_leaves_nothing_behind() -> None:
    policy, before, thresholds = Garbage(MEMORY_MAX_BYTES), list(gc.callbacks), gc.get_threshold()
    policy.begin()
    assert gc.get_threshold() != thresholds
    young = [[n] for n in range(5000)]
    policy.end()
    assert list(gc.callbacks) == before and gc.get_threshold() == thresholds
    assert not set(map(id, young)) & set(map(id, gc.get_objects())), "the end of the process walks over them"


def test_free_memory_is_given_back_after_growth_and_after_shrinking(garbage: Garbage, memory: Gauge) -> None:
    memory.value = START_BYTES + CHANGE_BYTES - 1
    assert not garbage.should_give_back()
    memory.value = START_BYTES + 10 * CHANGE_BYTES
    assert garbage.should_give_back()
    garbage.note_given_back()
    assert not garbage.should_give_back(), "nothing was free"
    memory.value = START_BYTES + 3 * CHANGE_BYTES
    assert garbage.should_give_back(), "the flood has ended, and left free pieces"
    memory.value = START_BYTES
    garbage.note_given_back()
    assert not garbage.should_give_back()


def test_what_a_flood_leaves_free_is_given_back_though_the_process_is_as_large_as_before(garbage: Garbage, memory: Gauge) -> None:
    memory.value = START_BYTES + 10 * CHANGE_BYTES
    assert garbage.should_give_back()
    garbage.note_given_back()  # the flood still holds it
    asked = [garbage.should_give_back() for _ in range(AGAIN_LOOKS)]
    assert asked == [False] * (AGAIN_LOOKS - 1) + [True], "the C library may keep all that the flood has freed since"
    memory.value = START_BYTES
    garbage.note_given_back()
    assert not any(garbage.should_give_back() for _ in range(AGAIN_LOOKS)), "once more, not for ever"
