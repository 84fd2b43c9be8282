"""Quotas of created and deleted partitions (KIP-599), in the three handlers that apply them."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.topics.mutation_quota import EXCEEDED, EXCEEDED_TEXT
from ottla.security.quotas.clients import ClientQuotas
from ottla.security.quotas.rates import Windows
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.fakes import ManualClock
from tests.handlers.admin_world import AdminWorld


class World(AdminWorld):
    """A client that may create or delete one partition a second on average, and ten at once."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        windows = Windows(10, 1000)
        self.broker.quotas = ClientQuotas(self.clock.monotonic_ms, windows, windows)
        self.broker.quotas.update({(("client-id", "test"),): {"controller_mutation_rate": 1.0}})

    def create(self, version: int = 7, *, validate_only: bool = False, **counts: int) -> Any:
        topics = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in counts.items()]
        return self.ask(CreateTopicsRequest(topics=topics, validate_only=validate_only), version)

    def delete(self, *names: str, version: int = 6) -> Any:
        if version < 6:
            return self.ask(DeleteTopicsRequest(topic_names=list(names)), version)
        return self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names]), version)

    def grow(self, version: int = 3, **counts: int) -> Any:
        topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()]
        return self.ask(CreatePartitionsRequest(topics=topics, timeout_ms=1000), version)


def codes(answer: Any) -> dict[str, int]:
    elements = getattr(answer, "topics", None) or getattr(answer, "results", None) or answer.responses
    return {element.name: element.error_code for element in elements}


def test_topics_beyond_the_quota_are_refused_with_the_time_to_wait() -> None:
    world = World()
    answer = world.create(a=4, b=9, c=1)
    assert codes(answer) == {"a": 0, "b": 0, "c": EXCEEDED}
    assert answer.throttle_time_ms == 3000
    assert answer.topics[2].error_message == EXCEEDED_TEXT
    assert world.cluster.metadata.topic("c") is None
    world.clock.advance(3000)
    again = world.create(c=1)
    assert (codes(again), again.throttle_time_ms) == ({"c": 0}, 0)


def test_the_quota_is_one_for_all_three_requests() -> None:
    world = World()
    world.create(a=4)
    assert codes(world.grow(a=9)) == {"a": 0}
    assert codes(world.delete("a")) == {"a": 0}
    assert world.delete("a").throttle_time_ms == 0, "a topic that is not there costs nothing"
    answer = world.create(b=1)
    assert (codes(answer), answer.throttle_time_ms) == ({"b": EXCEEDED}, 8000)
    world.clock.advance(1000)
    world.broker.quotas.update({})
    world.create(b=3)


@pytest.mark.parametrize("version", [5, 6])
def test_older_clients_are_throttled_and_not_refused(version: int) -> None:
    world = World()
    world.create(a=12)
    answer = world.create(version, b=3)
    assert codes(answer) == {"b": 0 if version < 6 else EXCEEDED}
    assert answer.throttle_time_ms == (5000 if version < 6 else 2000)


@pytest.mark.parametrize("version", [4, 5])
def test_deletion_of_older_clients(version: int) -> None:
    world = World()
    world.create(a=12)
    assert codes(world.delete("a", version=version)) == {"a": 0 if version < 5 else EXCEEDED}


@pytest.mark.parametrize("version", [2, 3])
def test_new_partitions_of_older_clients(version: int) -> None:
    world = World()
    world.create(a=12)
    answer = world.grow(version, a=13)
    assert codes(answer) == {"a": 0 if version < 3 else EXCEEDED}
    assert answer.throttle_time_ms > 0


def test_what_is_not_done_costs_nothing() -> None:
    world = World()
    for _ in range(5):
        assert codes(world.create(**{"bad/name": 9})) == {"bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert codes(world.create(validate_only=True, a=9)) == {"a": 0}
    world.create(a=10)
    for _ in range(5):
        assert codes(world.create(a=10)) == {"a": ErrorCode.TOPIC_ALREADY_EXISTS}
        assert codes(world.grow(a=2)) == {"a": ErrorCode.INVALID_PARTITIONS}
    assert codes(world.create(b=1)) == {"b": 0}


def test_assigned_partitions_and_the_default_count() -> None:
    world = World()
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[0]) for index in range(11)]
    assigned = CreatableTopic(name="a", num_partitions=-1, replication_factor=-1, assignments=assignments)
    default = CreatableTopic(name="b", num_partitions=-1, replication_factor=-1)
    assert codes(world.ask(CreateTopicsRequest(topics=[default, assigned]))) == {"a": 0, "b": 0}
    assert world.create(c=1).throttle_time_ms == 2000


def test_without_a_quota_everything_is_admitted() -> None:
    world = World()
    world.broker.quotas.update({(("user", "alice"),): {"controller_mutation_rate": 1.0}})
    assert codes(world.create(a=100, b=100)) == {"a": 0, "b": 0}
    world.broker.quotas = None
    assert codes(world.create(c=100)) == {"c": 0}
