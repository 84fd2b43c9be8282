"""Leaders, coordinators and topics are learnt, remembered, and asked for again when they have moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import GROUP, Cluster
from ottla.client.core.procedure import Ask, AskRolling, Procedure
from ottla.client.errors import ConnectError, KafkaError
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.client.fake_broker import FakeBroker

METADATA, FIND_COORDINATOR, HEARTBEAT = 3, 10, 12


def _coordinator(broker_port: list[int]) -> Any:
    def answer(body: Any, _version: int) -> FindCoordinatorResponse:
        found = [Coordinator(key=key, node_id=1, host="127.0.0.1", port=broker_port[0]) for key in body.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)

    return answer


def test_a_leader_is_asked_for_once() -> None:
    with FakeBroker({}) as broker, Cluster(broker.address) as cluster:
        broker.topics["t"] = 3
        assert cluster.partitions("t") == [0, 1, 2]
        assert [cluster.leader(TopicPartition("t", number)) for number in range(3)] == [1, 1, 1]
        assert len(broker.asked(METADATA)) == 1
        cluster.forget([TopicPartition("t", 1)])
        assert cluster.leader(TopicPartition("t", 1)) == 1
        assert len(broker.asked(METADATA)) == 2


def test_an_unknown_topic_gets_a_suggestion() -> None:
    with FakeBroker({}) as broker, Cluster(broker.address) as cluster:
        broker.topics["orders"] = 1
        with pytest.raises(ApiError, match="did you mean 'orders'") as caught:
            cluster.topic("ordrs")
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_is_not_there_is_named() -> None:
    with FakeBroker({}) as broker, Cluster(broker.address) as cluster:
        broker.topics["t"] = 2
        with pytest.raises(ApiError, match="has 2 partitions, so no partition 5"):
            cluster.leader(TopicPartition("t", 5))


def test_a_coordinator_that_has_moved_is_found_again() -> None:
    codes = iter([int(ErrorCode.NOT_COORDINATOR), int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), 0])
    port: list[int] = []
    script = {FIND_COORDINATOR: _coordinator(port), HEARTBEAT: lambda _body, _version: HeartbeatResponse(error_code=next(codes))}
    with FakeBroker(script) as broker, Cluster(broker.address) as cluster:
        port.append(broker.port)
        answer = cluster.ask_coordinator(GROUP, "g", HeartbeatRequest(), error_of=lambda found: found.error_code)
        assert answer.error_code == 0
        assert len(broker.asked(FIND_COORDINATOR)) == 3


def test_a_broker_that_is_not_there_is_named() -> None:
    with FakeBroker({}) as broker, Cluster(broker.address) as cluster, pytest.raises(ApiError, match="no broker 9"):
        cluster.connection(9)


def test_all_addresses_are_tried_and_all_failures_named() -> None:
    with FakeBroker({}) as broker, Cluster(f"127.0.0.1:1,{broker.address}") as cluster:
        cluster.refresh([])
        assert cluster.cluster_id == "fake"
    with pytest.raises(ConnectError, match=r"127.0.0.1:1: .*127.0.0.1:2: "):
        Cluster("127.0.0.1:1,127.0.0.1:2").refresh([])


def test_the_last_refusal_is_raised_at_the_deadline() -> None:
    def refuse() -> None:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "not yet")

    with pytest.raises(ApiError, match="not yet"):
        Cluster("localhost").retrying(refuse, timeout_s=0.05)


def test_requests_leave_as_answers_come_in() -> None:
    noted: list[Any] = []

    def procedure(cluster: Cluster) -> Procedure[None]:
        link = yield from cluster.core.any_link()

        def asks() -> Iterator[Ask | None]:
            for number in range(6):
                yield Ask(link, HeartbeatRequest(group_id=str(number)))
                if number >= 2:
                    yield None
                    assert len(noted) == number - 1
            yield Ask(link, HeartbeatRequest(group_id="x" * 70_000))

        yield AskRolling(asks(), noted.append)

    script = {HEARTBEAT: lambda body, _version: HeartbeatResponse(error_code=int(body.group_id))}
    with FakeBroker(script) as broker, Cluster(broker.address) as cluster:
        cluster.run(procedure(cluster))
    assert [answer.error_code for answer in noted[:-1]] == list(range(6))
    assert isinstance(noted[-1], KafkaError)
