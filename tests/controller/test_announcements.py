"""The messages of a controller: which broker gets which message after which change, in which order, and when all messages count as
answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.cluster_metadata import (
    CONFIG_BROKER,
    CONFIG_TOPIC,
    BrokerMetadata,
    BrokerPut,
    BrokerRemoved,
    Change,
    ConfigPut,
    PartitionMetadata,
    PartitionPut,
    QuotaPut,
    TopicMetadata,
    TopicPut,
    TopicRemoved,
)
from ottla.base.control_messages import ControlMessage, LeaderAndIsr, StopReplica, UpdateConfigs, UpdateMetadata
from ottla.base.errors import ErrorCode
from ottla.controller.announcements import SILENT_MS, Announcements
from ottla.controller.command_queue import topic_of
from tests.controller.cluster import state_of
from tests.fakes.world import World


def partition(index: int, *replicas: int, epoch: int = 0) -> PartitionMetadata:
    return PartitionMetadata(index=index, leader=replicas[0], leader_epoch=epoch, replicas=replicas, isr=replicas, partition_epoch=epoch)


def topic(name: str, *partitions: PartitionMetadata) -> TopicMetadata:
    return TopicMetadata(name=name, topic_id=name.encode().ljust(16), partitions=partitions, configs={"a": name})


class AnnouncementsWorld(World):
    """The announcements of a controller of brokers 1, 2 and 3, with a messenger that leaves messages unanswered until the test answers
    them."""

    def __init__(self) -> None:
        self.state = state_of(1, 2, 3)
        self.sent: list[tuple[int, Any]] = []
        self.open: list[Callable[[ErrorCode], object]] = []
        self.announcements = Announcements(self, self.clock, self.timers, own_id=1)

    def send(self, broker: BrokerMetadata, message: ControlMessage, done: Callable[[ErrorCode], object]) -> None:
        assert (message.controller_id, message.controller_epoch) == (self.state.controller_id, 7)
        assert message.broker_epoch == broker.epoch == 100 + broker.broker_id
        self.sent.append((broker.broker_id, message))
        self.open.append(done)

    def change(self, *changes: Change) -> list[tuple[int, str]]:
        """Applies changes and announces them, as the command queue does. Returns the messages."""
        before = {name: self.state.topic(name) for name in map(topic_of, changes) if name is not None}
        self.state.apply(changes)
        self.sent.clear()
        self.announcements.changes(self.state, changes, before)
        return self.kinds()

    def kinds(self) -> list[tuple[int, str]]:
        return [(broker_id, type(message).__name__) for broker_id, message in self.sent]

    def of(self, kind: type[Any]) -> dict[int, Any]:
        """Returns the message of this kind to each broker."""
        return {broker_id: message for broker_id, message in self.sent if type(message) is kind}


TO_ALL = [(1, "UpdateMetadata"), (2, "UpdateMetadata"), (3, "UpdateMetadata")]


def test_a_new_topic_is_opened_where_it_has_replicas_before_all_learn_of_it() -> None:
    world = AnnouncementsWorld()
    made = topic("t", partition(0, 1, 2), partition(1, 2))
    assert world.change(TopicPut(made)) == [(1, "LeaderAndIsr"), (2, "LeaderAndIsr"), *TO_ALL]
    states = {broker_id: message.states for broker_id, message in world.of(LeaderAndIsr).items()}
    assert {broker_id: [state.partition.index for state in found] for broker_id, found in states.items()} == {1: [0], 2: [0, 1]}
    assert all(
        state.is_new and state.configs == {"a": "t"} and state.topic_id == made.topic_id for found in states.values() for state in found
    )
    assert all(
        message.topics == [made] and not message.removed and not message.is_complete for message in world.of(UpdateMetadata).values()
    )


def test_only_partitions_that_have_changed_are_sent() -> None:
    world = AnnouncementsWorld()
    world.change(TopicPut(topic("t", partition(0, 1), partition(1, 1))))
    assert world.change(PartitionPut("t", partition(1, 1, epoch=4)))[0] == (1, "LeaderAndIsr")
    [state] = world.of(LeaderAndIsr)[1].states
    assert (state.partition.index, state.partition.leader_epoch, state.is_new) == (1, 4, False)


def test_partitions_that_are_added_are_new() -> None:
    world = AnnouncementsWorld()
    world.change(TopicPut(topic("t", partition(0, 1))))
    world.change(TopicPut(topic("t", partition(0, 1), partition(1, 3))))
    assert {broker_id: [state.is_new for state in message.states] for broker_id, message in world.of(LeaderAndIsr).items()} == {3: [True]}


def test_a_broker_that_holds_a_replica_no_longer_stops_it() -> None:
    world = AnnouncementsWorld()
    world.change(TopicPut(topic("t", partition(0, 1, 2))))
    assert world.change(PartitionPut("t", partition(0, 2, 3, epoch=5)))[:3] == [
        (1, "StopReplica"),
        (2, "LeaderAndIsr"),
        (3, "LeaderAndIsr"),
    ]
    [stopped] = world.of(StopReplica)[1].stopped
    assert (stopped.topic, stopped.partition, stopped.leader_epoch, stopped.is_deleted) == ("t", 0, 5, True)


def test_a_deleted_topic_leaves_the_metadata_first_and_its_replicas_are_stopped_later() -> None:
    world = AnnouncementsWorld()
    made = topic("t", partition(0, 1, 3))
    world.change(TopicPut(made))
    assert world.change(TopicRemoved("t")) == TO_ALL
    assert all((message.topics, message.removed) == ([], [("t", made.topic_id)]) for message in world.of(UpdateMetadata).values())
    world.change(BrokerRemoved(3))
    world.sent.clear()
    world.announcements.stop(world.state, [made])
    assert world.kinds() == [(1, "StopReplica")], "only live brokers"


def test_a_topic_that_is_made_and_removed_in_one_step_is_no_news() -> None:
    assert AnnouncementsWorld().change(TopicPut(topic("t", partition(0, 1))), TopicRemoved("t")) == []


# Brokers


def test_a_broker_that_joins_gets_everything_and_the_others_the_whole_metadata() -> None:
    world = AnnouncementsWorld()
    world.change(TopicPut(topic("t", partition(0, 1, 3))), TopicPut(topic("u", partition(0, 2))))
    world.state.apply([ConfigPut(CONFIG_BROKER, "", {"x": "y"}), QuotaPut((("user", "u"),), {"producer_byte_rate": 1.0})])
    back = BrokerPut(BrokerMetadata(broker_id=3, endpoints={}, epoch=103))
    assert world.change(back) == [
        (3, "UpdateConfigs"), (3, "UpdateMetadata"), (3, "LeaderAndIsr"), (1, "UpdateMetadata"), (2, "UpdateMetadata"),
    ]  # fmt: skip
    assert all(message.is_complete and len(message.topics) == 2 for message in world.of(UpdateMetadata).values())
    assert [(state.topic, state.is_new) for state in world.of(LeaderAndIsr)[3].states] == [("t", False)]
    configs = world.of(UpdateConfigs)[3]
    assert configs.is_complete and {type(change) for change in configs.changes} == {ConfigPut, QuotaPut}


def test_a_broker_without_replicas_is_sent_that_it_has_none() -> None:
    """The broker may have replicas from an earlier time. From the empty message it learns that no controller assigns them to it now."""
    world = AnnouncementsWorld()
    world.announcements.everything(world.state, [world.state.brokers[2]])
    assert world.kinds() == [(2, "UpdateConfigs"), (2, "UpdateMetadata"), (2, "LeaderAndIsr")]
    assert not world.of(LeaderAndIsr)[2].states


def test_a_broker_that_goes_changes_the_metadata_of_the_others() -> None:
    world = AnnouncementsWorld()
    world.change(TopicPut(topic("t", partition(0, 1, 3))))
    assert world.change(BrokerRemoved(3)) == [(1, "UpdateMetadata"), (2, "UpdateMetadata")]
    [shown] = world.of(UpdateMetadata)[1].topics
    assert shown.partitions[0].offline_replicas == (3,) and [one.broker_id for one in world.of(UpdateMetadata)[1].brokers] == [1, 2]


# Settings


def test_settings_go_to_all_brokers_and_those_of_a_topic_with_its_metadata() -> None:
    world = AnnouncementsWorld()
    world.change(TopicPut(topic("t", partition(0, 1))))
    to_all = [(1, "UpdateConfigs"), (2, "UpdateConfigs"), (3, "UpdateConfigs")]
    assert world.change(ConfigPut(CONFIG_TOPIC, "t", {"b": "c"})) == TO_ALL
    assert world.of(UpdateMetadata)[2].topics[0].configs == {"b": "c"}
    assert world.change(ConfigPut(CONFIG_BROKER, "", {})) == to_all


# Answers


def test_what_is_sent_is_settled_when_each_broker_has_answered() -> None:
    world, settled = AnnouncementsWorld(), list[str]()
    world.announcements.call_when_settled(lambda: settled.append("at once"))
    assert settled == ["at once"]
    world.change(ConfigPut(CONFIG_BROKER, "", {}))
    first = list(world.open)
    world.announcements.call_when_settled(lambda: settled.append("first"))
    world.change(ConfigPut(CONFIG_BROKER, "", {"a": "b"}))
    world.announcements.call_when_settled(lambda: settled.append("second"))
    second = world.open[3:]
    for done in (*second, *first[1:]):
        done(ErrorCode.NONE)
    assert settled == ["at once"]
    first[0](ErrorCode.STALE_BROKER_EPOCH)
    assert settled == ["at once", "first", "second"], "a refusal is an answer"


def test_a_broker_that_does_not_answer_holds_up_nothing_for_long() -> None:
    """Only the controller's own broker is waited for as long as it takes, for it may be opening logs."""
    world, settled = AnnouncementsWorld(), list[str]()
    world.change(ConfigPut(CONFIG_BROKER, "", {}))
    own, silent, third = world.open
    world.announcements.call_when_settled(lambda: settled.append("first"))
    third(ErrorCode.NONE)
    world.timers.advance(SILENT_MS)
    assert settled == []
    own(ErrorCode.NONE)
    assert settled == ["first"]
    world.change(ConfigPut(CONFIG_BROKER, "", {"a": "b"}))
    world.announcements.call_when_settled(lambda: settled.append("second"))
    for done in (world.open[3], world.open[5]):
        done(ErrorCode.NONE)
    assert settled == ["first", "second"], "it was silent before"
    silent(ErrorCode.NONE)
    world.open[4](ErrorCode.NONE)
    world.change(ConfigPut(CONFIG_BROKER, "", {"c": "d"}))
    world.announcements.call_when_settled(lambda: settled.append("third"))
    world.open[6](ErrorCode.NONE)
    world.open[8](ErrorCode.NONE)
    assert settled == ["first", "second"], "it answers again"
    world.timers.advance(SILENT_MS)
    assert settled == ["first", "second", "third"]


def test_later_messages_do_not_hold_up_earlier_ones() -> None:
    world, settled = AnnouncementsWorld(), list[str]()
    world.change(ConfigPut(CONFIG_BROKER, "", {}))
    world.announcements.call_when_settled(lambda: settled.append("first"))
    first = list(world.open)
    world.change(ConfigPut(CONFIG_BROKER, "", {"a": "b"}))
    for done in first:
        done(ErrorCode.NONE)
    assert settled == ["first"]


@pytest.mark.parametrize("timeout_ms", [300, 0, -1])
def test_a_request_waits_for_other_brokers_as_long_as_its_own_time(timeout_ms: int) -> None:
    """A request always waits for the controller's own broker. A request with a longer time-out delays no other one."""
    world, settled = AnnouncementsWorld(), list[str]()
    world.change(ConfigPut(CONFIG_BROKER, "", {}))
    own, silent, third = world.open
    world.announcements.call_when_settled(lambda: settled.append("patient"))
    world.announcements.call_when_settled(lambda: settled.append("hasty"), timeout_ms)
    third(ErrorCode.NONE)
    world.timers.advance(max(timeout_ms, 0))
    assert settled == []
    own(ErrorCode.NONE)
    assert settled == ["hasty"]
    silent(ErrorCode.NONE)
    assert settled == ["hasty", "patient"]


def test_a_request_that_all_brokers_have_answered_waits_no_longer() -> None:
    world, settled = AnnouncementsWorld(), list[str]()
    world.change(ConfigPut(CONFIG_BROKER, "", {}))
    world.announcements.call_when_settled(lambda: settled.append("done"), 300)
    for done in world.open:
        done(ErrorCode.NONE)
    assert settled == ["done"]
    world.timers.advance(SILENT_MS)
    assert settled == ["done"]
