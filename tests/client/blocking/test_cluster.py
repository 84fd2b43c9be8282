"""Leaders, coordinators and topics are learnt, remembered, and asked for again when they have moved."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import GROUP, Cluster
from ottla.client.errors import ConnectError, KafkaError
from ottla.wire.framing import load, read_request_header, write_response
from ottla.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.client.core.drive import rolling
from tests.client.fake_broker import FakeBroker

METADATA, FIND_COORDINATOR, HEARTBEAT, API_VERSIONS, CREATE_ACLS, DESCRIBE_CONFIGS = 3, 10, 12, 18, 30, 32


def test_a_leader_is_asked_for_once() -> None:
    with FakeBroker({}) as broker, Cluster(broker.address) as cluster:
        broker.topics["t"] = 3
        assert cluster.partitions("t") == [0, 1, 2]
        assert [cluster.leader(TopicPartition("t", number)) for number in range(3)] == [1, 1, 1]
        assert len(broker.asked(METADATA)) == 1
        cluster.metadata.forget([TopicPartition("t", 1)])
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
    usual: dict[int, Any] = {FIND_COORDINATOR: None, HEARTBEAT: lambda _body, _version: HeartbeatResponse(error_code=next(codes))}
    with FakeBroker(usual) as broker, Cluster(broker.address) as cluster:
        broker.script[FIND_COORDINATOR] = broker.coordinator
        answer = cluster.ask_coordinator(GROUP, "g", HeartbeatRequest())
        assert answer.error_code == 0
        assert len(broker.asked(FIND_COORDINATOR)) == 3


def test_a_broker_that_is_not_there_is_named() -> None:
    with FakeBroker({}) as broker, Cluster(broker.address) as cluster, pytest.raises(ApiError, match="no broker 9"):
        cluster.connection(9)


def test_all_addresses_are_tried_and_all_failures_named() -> None:
    with FakeBroker({}) as broker, Cluster(f"127.0.0.1:1,{broker.address}") as cluster:
        cluster.refresh([])
        assert cluster.metadata.cluster_id == "fake"
    with pytest.raises(ConnectError, match=r"127.0.0.1:1: .*127.0.0.1:2: "):
        Cluster("127.0.0.1:1,127.0.0.1:2").refresh([])


def test_the_last_refusal_is_raised_at_the_deadline() -> None:
    def refuse() -> None:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "not yet")

    with pytest.raises(ApiError, match="not yet"):
        Cluster("localhost").retrying(refuse, timeout_s=0.05)


def test_requests_leave_as_answers_come_in() -> None:
    noted: list[Any] = []

    script = {HEARTBEAT: lambda body, _version: HeartbeatResponse(error_code=int(body.group_id))}
    with FakeBroker(script) as broker, Cluster(broker.address) as cluster:
        cluster.run(rolling(cluster.core, noted))
    assert [answer.error_code for answer in noted[:-1]] == list(range(6))
    assert isinstance(noted[-1], KafkaError)


class Closing(FakeBroker):
    """Closes its first connection in the middle of the second request, or behind its end."""

    def __init__(self, *, is_read_whole: bool) -> None:
        script = {
            CREATE_ACLS: lambda body, _version: CreateAclsResponse(results=[AclCreationResult()] * len(body.creations)),
            DESCRIBE_CONFIGS: lambda _body, _version: DescribeConfigsResponse(),
        }
        super().__init__(script)
        self.is_read_whole = is_read_whole
        self.connections = 0

    def _serve(self, connection: socket.socket) -> None:
        self.connections += 1
        if self.connections > 1:
            super()._serve(connection)
            return
        frame = memoryview(self._read(connection, *struct.unpack(">i", self._read(connection, 4))))
        _, version, correlation_id, _, _ = read_request_header(frame)
        connection.sendall(write_response(load(API_VERSIONS)[1], version)(self._api_versions(None, version), correlation_id))
        (size,) = struct.unpack(">i", self._read(connection, 4))
        if self.is_read_whole:
            self._read(connection, size)
        connection.close()


MANY_ACLS = CreateAclsRequest(creations=[AclCreation(resource_name="n" * 30_000) for _ in range(400)])
"""More than the buffers of two sockets hold, so that the connection ends while the request is being written."""


def test_a_change_is_sent_again_if_the_broker_cannot_have_it() -> None:
    with Closing(is_read_whole=False) as broker, Cluster(broker.address) as cluster:
        assert len(cluster.ask_any(MANY_ACLS).results) == 400
        assert (broker.connections, len(broker.asked(CREATE_ACLS))) == (2, 1)


def test_a_change_whose_answer_is_lost_is_not_sent_again() -> None:
    with Closing(is_read_whole=True) as broker, Cluster(broker.address) as cluster:
        with pytest.raises(ConnectError):
            cluster.ask_any(CreateAclsRequest(creations=[AclCreation()]))
        assert broker.connections == 1


def test_a_question_whose_answer_is_lost_is_asked_again() -> None:
    with Closing(is_read_whole=True) as broker, Cluster(broker.address) as cluster:
        assert cluster.ask_any(DescribeConfigsRequest()).results == []
        assert broker.connections == 2
