"""Full collections walk over young objects only, and garbage that was frozen is found when there is much of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from ottla.server.garbage import Garbage

GROWTH_MIN = 1000


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def garbage() -> Iterator[Garbage]:
    policy = Garbage(GROWTH_MIN)
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


def test_frozen_garbage_is_collected_once_there_are_twice_as_many_objects(garbage: Garbage) -> None:
    node = Node()
    seen = weakref.ref(node)
    gc.collect()
    del node
    gc.collect()
    garbage.look()
    assert seen() is not None, "it is frozen"
    held = [[number] for number in range(2 * gc.get_freeze_count())]
    gc.collect()
    garbage.look()
    assert seen() is None
    frozen = gc.get_freeze_count()
    assert frozen >= len(held), "what is in use is frozen again"


def test_the_end_leaves_nothing_behind() -> None:
    policy, before = Garbage(), list(gc.callbacks)
    policy.begin()
    policy.end()
    assert list(gc.callbacks) == before and gc.get_freeze_count() == 0
