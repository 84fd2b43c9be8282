"""The bound on producers: what counts, when it is counted again, and that a leader asks before the first batch of a producer."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.replication.partition import Partition
from ottla.replication.producer_room import ProducerRoom
from tests.replication.records import append, batch, mine, refusal


def test_producers_are_counted_again_where_there_seems_to_be_no_room() -> None:
    counts, bounds, asked = [7], [10], []

    def count() -> int:
        asked.append(1)
        return counts[0]

    room = ProducerRoom(count, lambda: bounds[0])
    for _ in range(3):
        room.admit()
    assert len(asked) == 1, "those that were there before, once"
    counts[0] = 10
    with pytest.raises(ApiError) as refused:
        room.admit()
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    counts[0] = 9  # one has expired
    room.admit()
    bounds[0] = 11  # the setting was altered
    room.admit()


def test_a_leader_refuses_a_further_producer_and_goes_on_with_known_ones(alone: Partition) -> None:
    alone.state.admit_producer = ProducerRoom(lambda: len(alone.log.producers), lambda: 1).admit
    append(alone, mine("a", sequence=0, producer_id=1))
    assert refusal(lambda: append(alone, mine("b", sequence=0, producer_id=2))) is ErrorCode.POLICY_VIOLATION
    assert append(alone, mine("c", sequence=1, producer_id=1)).base_offset == 1
    assert append(alone, mine("c", sequence=1, producer_id=1)).is_duplicate
    assert append(alone, batch("d")).base_offset == 2, "no producer id, nothing to remember"
