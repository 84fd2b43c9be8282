"""The receiver of control messages: an obsolete message changes nothing, and the error code says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.cluster_metadata import CONFIG_BROKER, BrokerMetadata, ConfigPut, PartitionMetadata, TopicMetadata
from ottla.base.control_messages import (
    ControlMessage,
    LeaderAndIsr,
    ReplicaRole,
    StoppedReplica,
    StopReplica,
    UpdateConfigs,
    UpdateMetadata,
)
from ottla.base.errors import ErrorCode
from ottla.cluster.control.receiver import ControlReceiver
from ottla.cluster.metadata_cache import MetadataCache
from ottla.cluster.store_session import NO_EPOCH
from tests.controller.cluster import RecordingReplicas

ID, ID2 = b"\1" * 16, b"\2" * 16
CONFIGS = UpdateConfigs(controller_id=1, controller_epoch=5, broker_epoch=100, changes=[ConfigPut(CONFIG_BROKER, "", {"a": "b"})])


def partition(leader_epoch: int, partition_epoch: int = 0) -> PartitionMetadata:
    return PartitionMetadata(index=0, leader=1, leader_epoch=leader_epoch, replicas=(1,), isr=(1,), partition_epoch=partition_epoch)


def leader_and_isr(leader_epoch: int, partition_epoch: int = 0, *, controller_epoch: int = 5, broker_epoch: int = 100) -> LeaderAndIsr:
    state = ReplicaRole(topic="t", topic_id=ID, partition=partition(leader_epoch, partition_epoch))
    return LeaderAndIsr(controller_id=1, controller_epoch=controller_epoch, broker_epoch=broker_epoch, states=[state])


def stop_replica(leader_epoch: int, *, is_deleted: bool = True) -> StopReplica:
    stopped = StoppedReplica(topic="t", topic_id=ID, partition=0, leader_epoch=leader_epoch, is_deleted=is_deleted)
    return StopReplica(controller_id=1, controller_epoch=5, broker_epoch=100, stopped=[stopped])


def update_metadata(controller_epoch: int, broker_epoch: int = 100) -> UpdateMetadata:
    topic = TopicMetadata(name="t", topic_id=ID, partitions=(partition(1),))
    brokers = [BrokerMetadata(broker_id=1, endpoints={}, epoch=100)]
    return UpdateMetadata(controller_id=1, controller_epoch=controller_epoch, broker_epoch=broker_epoch, topics=[topic], brokers=brokers)


class Receiver:
    """A receiver with broker epoch 100 that has received a message of controller epoch 5."""

    def __init__(self) -> None:
        self.replicas = RecordingReplicas()
        self.cache = MetadataCache()
        self.configured = 0
        self.broker_epoch = 100
        self.receiver = ControlReceiver(
            metadata=self.cache, replicas=self.replicas, broker_epoch=lambda: self.broker_epoch, on_broker_configs=self._on_broker_configs,
            on_roles_taken=lambda: None,
        )  # fmt: skip
        assert self.receive(leader_and_isr(3, 7)) == [ErrorCode.NONE]

    def _on_broker_configs(self) -> None:
        self.configured += 1

    def receive(self, message: ControlMessage) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.receiver.receive(message, answers.append)
        return answers

    def terms(self) -> list[tuple[int, int]]:
        return [(state.partition.leader_epoch, state.partition.partition_epoch) for state in self.replicas.states]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (leader_and_isr(9, controller_epoch=4), ErrorCode.STALE_CONTROLLER_EPOCH),
        (leader_and_isr(9, broker_epoch=99), ErrorCode.STALE_BROKER_EPOCH),
        (update_metadata(4), ErrorCode.STALE_CONTROLLER_EPOCH),
        (update_metadata(5, broker_epoch=99), ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_what_is_obsolete_is_refused_and_changes_nothing(message: ControlMessage, code: ErrorCode) -> None:
    """P4."""
    world = Receiver()
    assert world.receive(message) == [code]
    assert world.terms() == [(3, 7)] and world.cache.topic("t") is None and world.receiver.controller_epoch == 5


def test_i40_between_two_registrations_messages_to_the_former_one_are_refused() -> None:
    """Such messages would let this broker lead again in an epoch in which it has stopped leading. The controller may know the next
    registration before this broker does."""
    world = Receiver()
    world.broker_epoch = NO_EPOCH
    world.receiver.end_registration(100)
    assert world.receive(leader_and_isr(3, 8)) == [ErrorCode.STALE_BROKER_EPOCH]
    assert world.receive(update_metadata(5)) == [ErrorCode.STALE_BROKER_EPOCH]
    assert world.terms() == [(3, 7)] and world.cache.topic("t") is None
    assert world.receive(leader_and_isr(4, 8, broker_epoch=101)) == [ErrorCode.NONE]
    assert world.terms() == [(3, 7), (4, 8)]


def test_only_newer_states_of_a_replica_are_passed_on() -> None:
    """A repeated request brings the same state again. That must not end a change of the in-sync set that is under way."""
    world = Receiver()
    for leader_epoch, partition_epoch in ((3, 7), (3, 6), (2, 9), (3, 8), (4, 0), (3, 9)):
        world.receive(leader_and_isr(leader_epoch, partition_epoch))
    assert world.terms() == [(3, 7), (3, 8), (4, 0)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"leader_epoch": -1},
        {"partition_epoch": -1},
        {"index": -1},
        {"replicas": ()},
        {"replicas": (1, 1)},
        {"isr": (2,)},
        {"isr": ()},
        {"leader": 2, "replicas": (1, 2), "isr": (1,)},
        {"leader": 2, "replicas": (1,), "isr": (1,)},
        {"leader": -2},
    ],
)
def test_a_state_that_contradicts_itself_is_refused_and_the_others_are_not(wrong: dict[str, Any]) -> None:
    """I9, I15: states come from other brokers as bytes, so they may be wrong."""
    world = Receiver()
    sound = partition(9, 2)
    states = [
        ReplicaRole(topic="t", topic_id=topic_id, partition=state) for topic_id, state in ((ID, replace(sound, **wrong)), (ID2, sound))
    ]
    message = LeaderAndIsr(controller_id=1, controller_epoch=5, broker_epoch=100, states=states)
    assert world.receive(message) == [ErrorCode.INVALID_REQUEST]
    assert [state.topic_id for state in world.replicas.states[1:]] == [ID2]
    assert world.receive(leader_and_isr(4)) == [ErrorCode.NONE], "the refused state is not remembered"
    assert world.replicas.states[-1].partition.leader_epoch == 4


@pytest.mark.parametrize("isr", [(1,), ()])
def test_a_partition_without_a_leader_contradicts_nothing(isr: tuple[int, ...]) -> None:
    """Its in-sync set is empty if the last member has a new disk."""
    world = Receiver()
    state = ReplicaRole(topic="t", topic_id=ID, partition=replace(partition(4), leader=-1, isr=isr))
    message = LeaderAndIsr(controller_id=1, controller_epoch=5, broker_epoch=100, states=[state])
    assert world.receive(message) == [ErrorCode.NONE]
    assert world.terms() == [(3, 7), (4, 0)]


def test_a_late_stop_of_an_earlier_leadership_is_ignored() -> None:
    """KIP-570."""
    world = Receiver()
    world.receive(stop_replica(2))
    assert world.replicas.stopped == []
    world.receive(stop_replica(3))
    assert [stopped.leader_epoch for stopped in world.replicas.stopped] == [3]


def test_a_replica_that_was_stopped_may_come_back_and_a_deleted_one_begins_anew() -> None:
    world = Receiver()
    world.receive(stop_replica(3, is_deleted=False))
    world.receive(leader_and_isr(3, 7))
    assert world.terms() == [(3, 7)]
    world.receive(leader_and_isr(3, 8))
    world.receive(stop_replica(3))
    world.receive(leader_and_isr(0, 0))
    assert world.terms() == [(3, 7), (3, 8), (0, 0)]


def test_answers_wait_until_the_replicas_are_open() -> None:
    world = Receiver()
    world.replicas.is_settled = False
    assert world.receive(leader_and_isr(4)) == [] and len(world.replicas.waiting) == 1
    assert world.receive(update_metadata(6)) == [ErrorCode.NONE]


def test_settings_of_brokers_are_put_into_force_when_they_change() -> None:
    world = Receiver()
    for expected in (1, 1):
        world.receive(CONFIGS)
        assert world.configured == expected
    assert world.cache.configs(CONFIG_BROKER, "") == {"a": "b"} and world.replicas.configs == [(CONFIG_BROKER, "")]
    world.receive(UpdateConfigs(controller_id=1, controller_epoch=5, broker_epoch=100, changes=[], is_complete=True))
    assert (world.configured, world.cache.configs(CONFIG_BROKER, "")) == (2, {})


def test_a_complete_message_names_all_replicas_of_the_broker_before_it_makes_any_of_them() -> None:
    """KIP-516. It names the replicas of all states in the message, also of states that are not new. A message with a refused state names
    none."""
    world = Receiver()
    states = [ReplicaRole(topic="t", topic_id=topic_id, partition=partition(3, 7)) for topic_id in (ID, ID2)]
    message = LeaderAndIsr(controller_id=1, controller_epoch=5, broker_epoch=100, states=states, is_complete=True)
    assert world.receive(replace(message, is_complete=False)) == [ErrorCode.NONE] and world.replicas.assigned == []
    assert world.receive(message) == [ErrorCode.NONE] and world.replicas.assigned == [[(ID, 0), (ID2, 0)]]
    bad = replace(states[0], partition=replace(partition(9), isr=()))
    assert world.receive(replace(message, states=[bad])) == [ErrorCode.INVALID_REQUEST] and len(world.replicas.assigned) == 1
