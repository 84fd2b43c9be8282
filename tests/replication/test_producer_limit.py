"""The limit on producers: which producer a new one evicts, which are never evicted, and that a leader checks the limit before a producer's
first batch."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.replication.producer_limit import ProducerLimit
from ottla.storage.producers import ProducerStates
from tests.replication.records import append, batch, mine, refusal

ALICE, MALLORY = "User:alice", "User:mallory"


class Room:
    """One partition with limited producers. The clock advances at each append."""

    def __init__(self, partition: Partition, bound: int) -> None:
        self.partition = partition
        self.bound = bound
        self.now_ms = 1_000
        partition.state.admit_producer = ProducerLimit(lambda: [self.producers], lambda: self.bound).admit

    @property
    def producers(self) -> ProducerStates:
        return self.partition.log.producers

    def write(self, producer_id: int, principal: str, *, sequence: int = 0, is_transactional: bool = False) -> None:
        data = mine("a", sequence=sequence, producer_id=producer_id, is_transactional=is_transactional)
        self.now_ms += 1
        self.partition.require_leading().append(data, acks=1, now_ms=self.now_ms, principal=principal)

    def known(self) -> list[int]:
        return sorted(entry.producer_id for entry in self.producers.active())


def test_one_user_with_invented_ids_loses_its_own_and_others_go_on(alone: Partition) -> None:
    room = Room(alone, 40)
    for producer_id in (1, 2, 3):
        room.write(producer_id, ALICE)
    for invented in range(100, 300):
        room.write(invented, MALLORY)
    for producer_id in (4, 5):
        room.write(producer_id, ALICE)
    known = room.known()
    assert known[:5] == [1, 2, 3, 4, 5] and len(known) == 40, "no producer of another user was forgotten"
    assert known[5:] == list(range(300 - 35, 300)), "the oldest of the one that holds the most were"
    assert append(alone, mine("a", sequence=0, producer_id=1)).is_duplicate, "a retry is still recognised (I20)"


def test_the_one_that_was_used_least_recently_is_forgotten(alone: Partition) -> None:
    room = Room(alone, 3)
    for producer_id in (1, 2, 3):
        room.write(producer_id, ALICE)
    room.write(1, ALICE, sequence=1)
    room.write(4, ALICE)
    assert room.known() == [1, 3, 4]


def test_after_a_restart_producers_of_an_unknown_owner_count_as_those_of_one_user(alone: Partition) -> None:
    """The log does not contain the principal that has written a batch."""
    room = Room(alone, 10)
    for producer_id in range(10):
        room.write(producer_id, MALLORY)
    alone.log.producers.restore(alone.log.producers.snapshot())
    room.write(9, ALICE, sequence=1)
    for producer_id in (20, 21, 22):
        room.write(producer_id, ALICE)
    assert room.known() == [3, 4, 5, 6, 7, 8, 9, 20, 21, 22], "and one that writes again is its writer's"


def test_a_producer_with_an_open_transaction_is_never_forgotten(alone: Partition) -> None:
    alone.state.is_verification_required = False
    room = Room(alone, 2)
    room.write(1, MALLORY, is_transactional=True)
    room.write(2, MALLORY, is_transactional=True)
    assert refusal(lambda: room.write(3, ALICE)) is ErrorCode.POLICY_VIOLATION
    alone.require_leading().write_marker(1, 0, 0, True, 2_000)
    room.write(3, ALICE)
    assert room.known() == [2, 3]


def test_the_bound_may_be_altered(alone: Partition) -> None:
    room = Room(alone, 20)
    for producer_id in range(20):
        room.write(producer_id, ALICE)
    room.bound = 5
    room.write(20, ALICE)
    assert room.known() == [16, 17, 18, 19, 20]
    room.bound = 7
    room.write(21, ALICE)
    assert len(room.known()) == 6


@pytest.mark.parametrize("sequence", [0, 1])
def test_known_producers_and_batches_without_one_are_not_asked_about(alone: Partition, sequence: int) -> None:
    room = Room(alone, 1)
    room.write(1, ALICE)
    room.bound = 0
    room.write(1, ALICE, sequence=sequence)
    assert append(alone, batch("d")).base_offset == sequence + 1, "no producer id, nothing to remember"
