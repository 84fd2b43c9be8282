"""The memory of all offsets of a broker is bounded, whatever metadata clients commit (I46)."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.groups.admin import delete_group
from ottla.groups.commands import CommitOffsets, CommitOffsetsInTransaction, OffsetToCommit
from ottla.groups.offsets import commit as commits
from ottla.machine.contract import Transactional
from ottla.machine.memory import CoordinatorMemory
from tests.groups.classic.coordinator import Coordinator

BYTES_MAX = 100_000
TEXT = "m" * 4000


@pytest.fixture
def coordinator() -> Coordinator:
    made = Coordinator()
    made.shard.offset_memory = CoordinatorMemory(BYTES_MAX, "offsets").share(made.shard._offset_sizes)
    return made


def offsets(*partitions: int, metadata: str = TEXT, offset: int = 1) -> list[OffsetToCommit]:
    return [OffsetToCommit("t", ZERO_UUID, partition, offset, -1, metadata) for partition in partitions]


def commit(coordinator: Coordinator, group_id: str, wanted: list[OffsetToCommit]) -> set[ErrorCode]:
    answers: list[list[ErrorCode]] = []
    command = CommitOffsets(group_id, "", None, -1, wanted)
    coordinator.take(commits.commit_offsets(coordinator.shard, command, answers.append, coordinator.now_ms))
    return set(answers[0])


def commit_in_transaction(coordinator: Coordinator, group_id: str, producer_id: int) -> set[ErrorCode]:
    answers: list[list[ErrorCode]] = []
    command = CommitOffsetsInTransaction(group_id, "", None, -1, offsets(0, 1, 2, 3), producer_id, 0)
    decision = commits.commit_in_transaction(coordinator.shard, command, answers.append, coordinator.now_ms)
    for record in decision.records:
        coordinator.machine.apply(0, record, Transactional(producer_id, 0))
    decision.records.clear()
    coordinator.take(decision)
    return set(answers[0])


def test_i46_offsets_of_groups_without_members_are_bounded(coordinator: Coordinator) -> None:
    """Formerly only the offsets of each group were limited, and a client can use any number of groups."""
    codes = [commit(coordinator, f"group-{number}", offsets(0, 1, 2, 3)) for number in range(10)]
    assert codes == [{ErrorCode.NONE}] * 5 + [{ErrorCode.COORDINATOR_NOT_AVAILABLE}] * 5
    assert len(coordinator.shard.offsets.group_ids()) == 5


def test_a_group_that_is_there_goes_on(coordinator: Coordinator) -> None:
    assert commit(coordinator, "mine", offsets(0, metadata="here")) == {ErrorCode.NONE}
    for number in range(10):
        commit(coordinator, f"group-{number}", offsets(0, 1, 2, 3))
    for offset in range(1000):
        assert commit(coordinator, "mine", offsets(0, metadata="here", offset=offset)) == {ErrorCode.NONE}
    assert commit(coordinator, "mine", offsets(1, 2, 3)) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_offsets_that_are_gone_make_room(coordinator: Coordinator) -> None:
    for number in range(10):
        commit(coordinator, f"group-{number}", offsets(0, 1, 2, 3))
    codes: list[ErrorCode] = []
    coordinator.take(delete_group(coordinator.shard, "group-0", codes.append))
    assert codes == [ErrorCode.NONE]
    assert commit(coordinator, "another", offsets(0, 1, 2, 3)) == {ErrorCode.NONE}


def test_i46_offsets_of_open_transactions_are_bounded(coordinator: Coordinator) -> None:
    codes = [commit_in_transaction(coordinator, "group", producer_id) for producer_id in range(10)]
    assert codes == [{ErrorCode.NONE}] * 5 + [{ErrorCode.COORDINATOR_NOT_AVAILABLE}] * 5
    for producer_id in range(5):
        coordinator.machine.apply_marker(0, producer_id, 0, False)
    assert commit_in_transaction(coordinator, "group", 11) == {ErrorCode.NONE}


def test_what_was_loaded_counts(coordinator: Coordinator) -> None:
    for number in range(5):
        commit(coordinator, f"group-{number}", offsets(0, 1, 2, 3))
    again = Coordinator()
    again.shard.offset_memory = CoordinatorMemory(BYTES_MAX).share(again.shard._offset_sizes)
    for number, record in enumerate(coordinator.records):
        again.machine.apply(number, record, None)
    again.machine.resume(again.now_ms)
    assert again.shard.offset_memory.bytes > 0.9 * BYTES_MAX
    assert commit(again, "one-more", offsets(0, 1, 2, 3)) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
