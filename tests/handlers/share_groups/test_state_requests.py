"""The APIs 83 to 87 and FindCoordinator for share partitions: a broker is answered as by Apache Kafka, and a client is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.uuids import uuid_to_text
from ottla.handlers.cluster.api_versions import advertised
from ottla.handlers.served_apis import TABLE
from ottla.machine.host import MachineHost
from ottla.sharing.state_machine import ShareStateMachine
from ottla.wire.messages import delete_share_group_state as delete
from ottla.wire.messages import initialize_share_group_state as initialize
from ottla.wire.messages import read_share_group_state as read
from ottla.wire.messages import read_share_group_state_summary as summary
from ottla.wire.messages import write_share_group_state as write
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.fakes.clock import ManualClock
from tests.fakes.coordinator_settings import share_state_settings
from tests.fakes.machine_log import MemoryLog
from tests.fakes.share_coordinators import share_coordinators
from tests.fakes.timers import ManualTimers
from tests.handlers.admin_world import AdminWorld
from tests.sharing.state_world import ORDERS, Topics

NOWHERE = bytes(range(16))
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class ShareWorld(AdminWorld):
    """One broker sends requests to another one, which has a share coordinator."""

    def __init__(self, *, is_broker: bool = True) -> None:
        super().__init__()
        self.connection.is_inter_broker = is_broker
        clock = ManualClock()
        timers = ManualTimers(clock)
        self.broker.share_states = share_coordinators(clock, timers)
        machine = ShareStateMachine(share_state_settings(), Topics(), lambda end: None)
        self.host = MachineHost(machine, MemoryLog(), clock, timers)
        self.broker.share_states.attach(0, self.host)
        self.host.activate()

    def initialize(self, state_epoch: int, start_offset: int, partition: int = 0, topic_id: bytes = ORDERS, group: str = "g") -> Any:
        asked = initialize.PartitionData(partition=partition, state_epoch=state_epoch, start_offset=start_offset)
        topic = initialize.InitializeStateData(topic_id=topic_id, partitions=[asked])
        return only(self.ask(initialize.InitializeShareGroupStateRequest(group_id=group, topics=[topic])))

    def read(self, leader_epoch: int, partition: int = 0) -> Any:
        asked = read.PartitionData(partition=partition, leader_epoch=leader_epoch)
        topic = read.ReadStateData(topic_id=ORDERS, partitions=[asked])
        return only(self.ask(read.ReadShareGroupStateRequest(group_id="g", topics=[topic])))

    def summary(self, version: int | None = None, topic_id: bytes = ORDERS) -> Any:
        topic = summary.ReadStateSummaryData(topic_id=topic_id, partitions=[summary.PartitionData()])
        return only(self.ask(summary.ReadShareGroupStateSummaryRequest(group_id="g", topics=[topic]), version))

    def write(self, *batches: tuple[int, int, int, int], version: int | None = None, **data: int) -> Any:
        changed = [write.StateBatch(first_offset=a, last_offset=b, delivery_state=c, delivery_count=d) for a, b, c, d in batches]
        asked = write.PartitionData(**data, state_batches=changed)
        topic = write.WriteStateData(topic_id=ORDERS, partitions=[asked])
        return only(self.ask(write.WriteShareGroupStateRequest(group_id="g", topics=[topic]), version))

    def delete(self, partition: int = 0) -> Any:
        topic = delete.DeleteStateData(topic_id=ORDERS, partitions=[delete.PartitionData(partition=partition)])
        return only(self.ask(delete.DeleteShareGroupStateRequest(group_id="g", topics=[topic])))

    def find(self, key: str) -> Any:
        return self.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key])).coordinators[0]


def only(answer: Any) -> Any:
    [topic] = answer.results
    [partition] = topic.partitions
    return partition


def test_a_share_partition_from_its_first_day_to_its_last() -> None:
    world = ShareWorld()
    assert world.initialize(2, 5).error_code == 0
    assert world.read(3).start_offset == 5
    data = {"state_epoch": 2, "leader_epoch": 3, "start_offset": 5, "delivery_complete_count": 1}
    assert world.write((5, 9, 0, 1), (7, 7, 2, 1), **data).error_code == 0
    found = world.read(3)
    assert (found.state_epoch, found.start_offset, found.error_message) == (2, 5, None)
    assert [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in found.state_batches] == [
        (5, 6, 0, 1),
        (7, 7, 2, 1),
        (8, 9, 0, 1),
    ]
    state = world.summary()
    assert (state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count) == (2, 3, 5, 1)
    assert world.delete().error_code == 0
    assert world.read(3).error_code == ErrorCode.INVALID_REQUEST


def test_version_zero_has_no_count_of_complete_deliveries() -> None:
    world = ShareWorld()
    world.initialize(0, 0)
    assert world.write(version=0).error_code == 0
    assert world.summary(0).delivery_complete_count == -1 == world.summary(1).delivery_complete_count


def test_older_epochs_are_fenced_with_the_reason() -> None:
    world = ShareWorld()
    world.initialize(2, 0)
    world.read(3)
    assert world.initialize(1, 0).error_code == ErrorCode.FENCED_STATE_EPOCH
    fenced = world.read(2)
    assert (fenced.error_code, fenced.error_message) == (ErrorCode.FENCED_LEADER_EPOCH, "the epoch 2 is behind 3")
    assert world.write(state_epoch=2, leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.write(state_epoch=1, leader_epoch=3).error_code == ErrorCode.FENCED_STATE_EPOCH


def test_what_does_not_exist() -> None:
    world = ShareWorld()
    assert world.initialize(0, 0, partition=7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.summary(topic_id=NOWHERE).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.summary().start_offset == -1
    assert world.read(0, partition=7).error_code == ErrorCode.INVALID_REQUEST
    for answer in (world.initialize(0, 0, partition=-1), world.read(0, partition=-1), world.delete(-1)):
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_request_without_a_group_is_answered_with_nothing() -> None:
    topic = delete.DeleteStateData(topic_id=ORDERS, partitions=[delete.PartitionData()])
    assert ShareWorld().ask(delete.DeleteShareGroupStateRequest(topics=[topic])).results == []
    assert ShareWorld().ask(delete.DeleteShareGroupStateRequest(group_id="g")).results == []


def test_many_share_partitions_are_answered_under_their_topics_each_once() -> None:
    world = ShareWorld()
    asked = [delete.PartitionData(partition=partition) for partition in (1, 0, 1)]
    topics = [delete.DeleteStateData(topic_id=topic_id, partitions=asked) for topic_id in (NOWHERE, ORDERS)]
    answer = world.ask(delete.DeleteShareGroupStateRequest(group_id="g", topics=topics))
    assert [(topic.topic_id, [(p.partition, p.error_code) for p in topic.partitions]) for topic in answer.results] == [
        (NOWHERE, [(1, 3), (0, 3)]),
        (ORDERS, [(1, 0), (0, 0)]),
    ]


def test_a_coordinator_that_has_gone_says_so() -> None:
    world = ShareWorld()
    world.broker.share_states.resign(0)
    assert world.read(0).error_code == ErrorCode.NOT_COORDINATOR


def test_a_client_is_refused() -> None:
    world = ShareWorld(is_broker=False)
    for answer in (world.initialize(0, 0), world.read(0), world.write(), world.delete(), world.summary()):
        assert answer.error_code == REFUSED
    assert world.find(f"g:{uuid_to_text(ORDERS)}:0").error_code == REFUSED
    assert world.host.machine.shard.partitions == {}


def test_they_are_advertised_as_by_kafka() -> None:
    assert {entry.api_key for entry in advertised(AdminWorld().broker)} >= {83, 84, 85, 86, 87}
    assert [(TABLE[key].min_version, TABLE[key].max_version) for key in range(83, 88)] == [(0, 0), (0, 0), (0, 1), (0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("g:{}:0", ErrorCode.NONE),
        ("a:b:{}:0", ErrorCode.NONE),
        ("g:{}:77", ErrorCode.NONE),
        ("g:{}:x", ErrorCode.INVALID_REQUEST),
        (":{}:0", ErrorCode.INVALID_REQUEST),
        ("g:notauuid:0", ErrorCode.INVALID_REQUEST),
        ("nonsense", ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_coordinator_of_a_share_partition(key: str, code: ErrorCode) -> None:
    world = ShareWorld()
    world.broker.internal_topics = Ensured(world)
    found = world.find(key.format(uuid_to_text(ORDERS)))
    assert (found.error_code, found.node_id) == (code, -1 if code else 0)


@pytest.mark.parametrize("version", [3, 5])
def test_older_versions_know_nothing_of_share_partitions(version: int) -> None:
    key = f"g:{uuid_to_text(ORDERS)}:0"
    body = FindCoordinatorRequest(key_type=2, key=key) if version < 4 else FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    answer = ShareWorld().ask(body, version)
    assert (answer.coordinators[0] if version >= 4 else answer).error_code == ErrorCode.INVALID_REQUEST


class Ensured:
    """`InternalTopics` over the world's controller."""

    def __init__(self, world: AdminWorld) -> None:
        self._cluster = world.cluster

    def ensure(self, topic: str, done: Any) -> None:
        self._cluster.create(topic)
        done(ErrorCode.NONE)
