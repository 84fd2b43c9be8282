"""Topics that are too large for one write to the metadata store: created, completed after a crash, deleted, given more partitions, with
every write within the store's bound."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import CONFIG_TOPIC
from ottla.base.errors import ErrorCode
from ottla.base.ports import MULTI_BYTES_MAX, StoreResult, operation_bytes
from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest, ConfigResult, NewPartitions, NewTopic, Reassignment
from ottla.controller.loading import build_state
from tests.controller.cluster import Cluster

NAME = "t" * 249
COUNT = 3_000


def large(count: int = COUNT) -> Cluster:
    cluster = Cluster()
    assert cluster.create(NewTopic(name=NAME, num_partitions=count))[0].error is ErrorCode.NONE
    return cluster


def leaders(cluster: Cluster) -> list[int]:
    topic = cluster.cache.topic(NAME)
    return [] if topic is None else [partition.leader for partition in topic.partitions]


def test_a_large_topic_takes_several_writes_and_exists_with_the_last() -> None:
    cluster = large()
    writes = cluster.store.multis[3:]
    assert len(writes) > 3 and all(sum(map(operation_bytes, write)) <= MULTI_BYTES_MAX for write in cluster.store.multis)
    assert leaders(cluster) == [0] * COUNT
    assert [state.is_new for state in cluster.replicas.states] == [True] * COUNT
    stored, notes = build_state(cluster.store.nodes())
    assert notes == [] and not stored.missing_nodes and stored.topic(NAME) == cluster.metadata.topic(NAME)


@pytest.mark.parametrize("writes_done", [1, 2, 3])
def test_a_creation_that_a_crash_interrupted_is_completed(writes_done: int) -> None:
    cluster = Cluster()
    later = cluster.later = []
    cluster.loop.create_topics([NewTopic(name=NAME, num_partitions=COUNT)], False, lambda results: None)
    for _ in range(writes_done):
        later.pop(0)()
    assert cluster.metadata.topic(NAME) is None
    after = Cluster(cluster.store.reopened())
    assert leaders(after) == [0] * COUNT
    assert build_state(after.store.nodes())[0].topic(NAME) == after.metadata.topic(NAME)


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_later_write_of_unknown_outcome_goes_on_where_it_was(is_applied: bool) -> None:
    cluster = Cluster()
    later = cluster.later = []
    answers: list[ErrorCode] = []
    cluster.loop.create_topics(
        [NewTopic(name=NAME, num_partitions=COUNT)], False, lambda results: answers.extend(result.error for result in results)
    )
    later.pop(0)()
    cluster.store.fail_next(StoreResult.UNKNOWN, is_applied=is_applied)
    while later:
        later.pop(0)()
    assert answers == [ErrorCode.NONE] and leaders(cluster) == [0] * COUNT


def test_a_large_topic_is_deleted_and_an_interrupted_deletion_goes_on() -> None:
    cluster = large()
    later = cluster.later = []
    cluster.loop.delete_topics([NAME], lambda results: None)
    later.pop(0)()
    after = Cluster(cluster.store.reopened())
    assert after.metadata.deleting == {} and not any(NAME in path for path in after.store.nodes())


def test_a_topic_grows_by_more_than_one_write() -> None:
    cluster = large(1)
    answers: list[ErrorCode] = []
    cluster.loop.create_partitions(
        [NewPartitions(name=NAME, count=COUNT)], False, lambda results: answers.extend(result.error for result in results)
    )
    assert answers == [ErrorCode.NONE] and leaders(cluster) == [0] * COUNT
    assert build_state(cluster.store.nodes())[0].topic(NAME) == cluster.metadata.topic(NAME)


def test_a_restart_with_many_partitions_writes_in_parts() -> None:
    cluster = large()
    after = Cluster(cluster.store.reopened())
    assert all(sum(map(operation_bytes, write)) <= MULTI_BYTES_MAX for write in after.store.multis)
    topic = after.cache.topic(NAME)
    assert topic is not None and {partition.leader_epoch for partition in topic.partitions} == {1}


def test_many_reassignments_are_decided_in_groups() -> None:
    cluster = large()
    answers: list[ErrorCode] = []
    moves = [Reassignment(topic=NAME, partition=index, replicas=[0]) for index in range(COUNT)]
    cluster.loop.alter_reassignments(moves, lambda results: answers.extend(result.error for result in results))
    assert answers == [ErrorCode.NONE] * COUNT


def test_settings_that_fit_into_no_node_are_refused() -> None:
    """The refusal keeps a request of 100 MiB from breaking the controller's invariant that each write fits."""
    cluster = Cluster()
    cluster.create("a")
    entry = ConfigEntry(name="follower.replication.throttled.replicas", operation=ConfigOperation.SET, value=",".join(["1:1"] * 200_000))
    answers: list[ConfigResult] = []
    cluster.loop.alter_configs([ConfigRequest(resource_type=CONFIG_TOPIC, name="a", entries=[entry])], False, answers.extend)
    assert answers[0].error is ErrorCode.POLICY_VIOLATION
    (result,) = cluster.create(NewTopic(name="b", configs={entry.name: entry.value}))
    assert result.error is ErrorCode.POLICY_VIOLATION
