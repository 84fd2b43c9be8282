"""Deleted partitions: only a partition that the metadata store proves to be deleted is taken for deleted."""

from __future__ import annotations

from ottla.base.ports import Create, StoreResult
from ottla.base.types import TopicPartition
from ottla.cluster.deleted_partitions import DeletedPartitions
from ottla.metadata_store import znodes
from tests.fakes.memory_store import MemoryStore

HERE, NOT_HERE = TopicPartition("t", 0), TopicPartition("t", 1)


def is_deleted(store: MemoryStore, partition: TopicPartition) -> bool:
    answers: list[bool] = []
    DeletedPartitions(store).is_deleted(partition, answers.append)
    (answer,) = answers
    return answer


def test_a_partition_without_a_node_is_gone() -> None:
    store = MemoryStore()
    store.put(znodes.state_path(*HERE), b"{}")
    assert not is_deleted(store, HERE) and is_deleted(store, NOT_HERE)
    assert store.multis[-1] == [Create(znodes.state_path(*HERE), b"{}")], "nothing is written"


def test_what_cannot_be_known_is_not_gone() -> None:
    for result in (StoreResult.CONNECTION_LOST, StoreResult.UNKNOWN, StoreResult.SESSION_EXPIRED):
        store = MemoryStore()
        store.fail_next(result)
        assert not is_deleted(store, NOT_HERE)
