"""The controller's state after changes, and the broken invariants that stop the broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.cluster_metadata import (
    CONFIG_TOPIC,
    BrokerRemoved,
    ConfigPut,
    PartitionMetadata,
    PartitionPut,
    TopicDeleted,
    TopicMetadata,
    TopicPut,
    TopicRemoved,
)
from ottla.base.types import GROUP_METADATA_TOPIC
from tests.controller.cluster import state_of

ID = bytes(range(16))
PARTITION = PartitionMetadata(index=0, leader=1, leader_epoch=3, replicas=(1, 2), isr=(1,))
TOPIC = TopicMetadata(name="a.b", topic_id=ID, partitions=(PARTITION,))


def test_look_ups() -> None:
    state = state_of(1)
    state.apply([TopicPut(TOPIC), TopicPut(replace(TOPIC, name=GROUP_METADATA_TOPIC, topic_id=bytes(16)))])
    by_id = state.topic_by_id(ID)
    assert by_id is state.topic("a.b")
    assert by_id is not None
    assert by_id.partitions[0].offline_replicas == (2,)
    assert [topic.is_internal for topic in state.topics()] == [False, True]
    assert state.partition_count == 2
    assert state.name_like("a_b") == "a.b"
    assert state.partition("a.b", 1) is state.partition("a.b", -1) is state.partition("no", 0) is None


def test_a_reader_keeps_what_it_has_read() -> None:
    state = state_of(1, 2)
    state.apply([TopicPut(TOPIC)])
    before = state.topic("a.b")
    state.apply([PartitionPut("a.b", replace(PARTITION, isr=(1, 2), partition_epoch=1)), ConfigPut(CONFIG_TOPIC, "a.b", {"x": "y"})])
    assert before is not None
    assert (before.partitions[0].isr, before.configs) == ((1,), {})
    after = state.topic("a.b")
    assert after is not None
    assert (after.partitions[0].isr, after.configs) == ((1, 2), {"x": "y"})


def test_a_removed_topic_is_invisible_and_its_name_not_free() -> None:
    state = state_of(1)
    state.apply([TopicPut(TOPIC), TopicRemoved("a.b")])
    assert (state.topic("a.b"), state.topic_by_id(ID), state.partition_count, state.name_like("a_b")) == (None, None, 0, None)
    assert list(state.deleting) == ["a.b"]
    state.apply([TopicDeleted("a.b")])
    assert state.deleting == {}


def test_brokers_that_go_leave_replicas_offline() -> None:
    state = state_of(1, 2)
    state.apply([TopicPut(TOPIC), BrokerRemoved(1)])
    partition = state.partition("a.b", 0)
    assert partition is not None
    assert partition.offline_replicas == (1,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (PartitionPut("a.b", replace(PARTITION, leader_epoch=2)), "I15"),
        (PartitionPut("a.b", replace(PARTITION, leader=2)), "I9"),
        (TopicPut(replace(TOPIC, topic_id=b"\1" * 16)), "another id"),
    ],
)
def test_broken_invariants_stop_the_broker(change: PartitionPut | TopicPut, words: str) -> None:
    state = state_of(1, 2)
    state.apply([TopicPut(TOPIC)])
    with pytest.raises(AssertionError, match=words):
        state.apply([change])
