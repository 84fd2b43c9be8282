"""Compares `merge` with a model that stores the state of each offset separately."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.share_state import DeliveryState, StateBatch
from ottla.sharing.batches import merge

AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED

offsets = st.integers(0, 30)
batches = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    offsets,
    st.integers(0, 8),
    st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
    st.integers(1, 3),
)
steps = st.lists(st.tuples(st.lists(batches, max_size=5), st.integers(-1, 30)), max_size=6)

Model = dict[int, tuple[int, int]]


def lay_out(model: Model, changes: list[StateBatch], start: int) -> Model:
    after = dict(model)
    for first, last, state, count in changes:
        for offset in range(first, last + 1):
            after[offset] = max(after.get(offset, (0, 0)), (count, state))
    return {offset: what for offset, what in after.items() if offset >= start}


def each_offset(merged: tuple[StateBatch, ...]) -> Model:
    return {offset: (count, state) for first, last, state, count in merged for offset in range(first, last + 1)}


@given(steps)
def test_each_offset_has_its_greatest_state(taken: list[tuple[list[StateBatch], int]]) -> None:
    merged: tuple[StateBatch, ...] = ()
    model: Model = {}
    for changes, start in taken:
        merged = merge(merged, changes, start)
        model = lay_out(model, changes, start)
        assert each_offset(merged) == model
        for before, after in zip(merged, merged[1:], strict=False):
            assert before.last_offset < after.first_offset
            joined = before.last_offset + 1 == after.first_offset
            assert not joined or before[2:] != after[2:]


@given(st.lists(batches, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_changes_does_not_matter(changes: list[StateBatch], random: object) -> None:
    shuffled = list(changes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    once = merge((), changes, -1)
    assert merge((), shuffled, -1) == once
    assert merge(once, changes, -1) == once


def test_neighbours_of_the_same_state_are_one_batch() -> None:
    merged = merge((StateBatch(0, 4, ACKNOWLEDGED, 1),), [StateBatch(5, 9, ACKNOWLEDGED, 1), StateBatch(12, 12, ACKNOWLEDGED, 1)], -1)
    assert merged == (StateBatch(0, 9, ACKNOWLEDGED, 1), StateBatch(12, 12, ACKNOWLEDGED, 1))
    assert merge(merged, [StateBatch(10, 11, ACKNOWLEDGED, 1)], -1) == (StateBatch(0, 12, ACKNOWLEDGED, 1),)


def test_an_acknowledgement_inside_a_batch_splits_it() -> None:
    merged = merge((StateBatch(0, 9, AVAILABLE, 1),), [StateBatch(4, 5, ACKNOWLEDGED, 2)], -1)
    assert merged == (StateBatch(0, 3, AVAILABLE, 1), StateBatch(4, 5, ACKNOWLEDGED, 2), StateBatch(6, 9, AVAILABLE, 1))


def test_what_lies_below_the_start_offset_is_dropped() -> None:
    whole = (StateBatch(0, 3, ACKNOWLEDGED, 1), StateBatch(4, 9, AVAILABLE, 2))
    assert merge(whole, [], 6) == (StateBatch(6, 9, AVAILABLE, 2),)
    assert merge(whole, [], 10) == ()
    assert merge(whole, [], -1) == whole


def test_a_batch_that_ends_before_it_begins_is_empty() -> None:
    assert merge((), [StateBatch(5, 4, ACKNOWLEDGED, 1)], -1) == ()
