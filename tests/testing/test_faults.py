"""Faults of the proxy, with a client that retries nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.addresses import Address, parse_addresses
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.blocking.readable import readable
from ottla.client.errors import ClientError
from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster
from ottla.testing.faults import FaultProxy
from ottla.testing.refusals import can_refuse
from ottla.wire.apis import API_NAMES
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch

NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


@pytest.fixture
def connection(broker: Broker) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(parse_addresses(broker.bootstrap_server)[0], request_timeout_s=5).open()
    yield connection
    connection.close()


def produce_request(topic: str, *, acks: int = -1) -> ProduceRequest:
    batch = encode_batch([Record(0, int(time.time() * 1000), b"key", b"value")])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def code_of_produce(connection: BlockingConnection, topic: str) -> int:
    answer = connection.request(produce_request(topic))
    return int(answer.responses[0].partition_responses[0].error_code)


def wait_for_coordinator(connection: BlockingConnection, group: str) -> Coordinator:
    """Waits for the coordinator: the first request creates the internal topic, and errors are answered until it is loaded."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        (found,) = connection.request(FindCoordinatorRequest(coordinator_keys=[group])).coordinators
        if found.error_code == 0 and connection.request(HeartbeatRequest(group_id=group)).error_code not in NOT_YET:
            return found
        time.sleep(0.005)
    raise TimeoutError(f"no coordinator for {group}")


def test_the_next_requests_fail_and_the_one_after_does_not(broker: Broker, connection: BlockingConnection, topic: str) -> None:
    broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    assert [code_of_produce(connection, topic) for _ in range(3)] == [19, 19, 0]
    assert len(broker.records(topic)) == 1, "a request that failed must not have been carried out"


def test_a_fault_hits_its_own_api_only(broker: Broker, connection: BlockingConnection, topic: str) -> None:
    wait_for_coordinator(connection, "g")
    broker.fail_next("Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
    assert code_of_produce(connection, topic) == 0
    assert connection.request(HeartbeatRequest(group_id="g")).error_code == 27
    assert connection.request(HeartbeatRequest(group_id="g")).error_code == 25


def test_answers_keep_their_order_around_a_made_up_one(broker: Broker, connection: BlockingConnection, topic: str) -> None:
    broker.fail_next("Produce", 2)
    for request in (ListGroupsRequest(), produce_request(topic), produce_request(topic), ListGroupsRequest()):
        connection.send(request)
    first, refused, accepted, last = (connection.receive() for _ in range(4))
    assert (first.error_code, last.error_code) == (0, 0)
    assert [found.responses[0].partition_responses[0].error_code for found in (refused, accepted)] == [2, 0]


def test_requests_that_want_no_answer_are_not_waited_for(broker: Broker, connection: BlockingConnection, topic: str) -> None:
    broker.fail_next("Produce", 2)
    for _ in range(2):
        connection.send(produce_request(topic, acks=0), is_answered=False)
    assert connection.request(ListGroupsRequest()).error_code == 0
    assert len(broker.records(topic)) == 1


def test_a_connection_may_fail_instead_of_a_request(broker: Broker, connection: BlockingConnection, topic: str) -> None:
    broker.fail_next("Produce", None)
    with pytest.raises(ClientError):
        connection.request(produce_request(topic))
    assert broker.records(topic) == []


def test_an_answer_may_be_lost_after_the_request_was_carried_out(broker: Broker, connection: BlockingConnection, topic: str) -> None:
    broker.lose_answer("Produce")
    with pytest.raises(ClientError):
        connection.request(produce_request(topic))
    assert len(broker.records(topic)) == 1
    again = BlockingConnection(connection.address).open()
    assert code_of_produce(again, topic) == 0
    again.close()


def test_metadata_may_refuse_its_topics(broker: Broker, connection: BlockingConnection, topic: str) -> None:
    broker.fail_next("Metadata", "LEADER_NOT_AVAILABLE")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    refused, accepted = connection.request(request), connection.request(request)
    assert [found.topics[0].error_code for found in (refused, accepted)] == [5, 0]
    assert len(refused.brokers) == 1


def test_every_address_is_the_proxys(broker: Broker, connection: BlockingConnection) -> None:
    metadata = connection.request(MetadataRequest(topics=[]))
    assert [(node.host, node.port) for node in metadata.brokers] == [broker.address]
    found = wait_for_coordinator(connection, "g")
    assert (found.host, found.port) == broker.address


def test_dropped_connections_are_closed_and_new_ones_work(broker: Broker, connection: BlockingConnection) -> None:
    assert broker.drop_connections() >= 1
    with pytest.raises(ClientError):
        connection.request(ListGroupsRequest())
    again = BlockingConnection(connection.address).open()
    assert again.request(ListGroupsRequest()).error_code == 0
    again.close()


def test_no_frame_passes_while_the_proxy_pauses(broker: Broker) -> None:
    host, port = parse_addresses(broker.direct_server)[0]
    proxy = FaultProxy((host, port))
    connection = BlockingConnection(parse_addresses(f"{proxy.address[0]}:{proxy.address[1]}")[0]).open()
    proxy.pause()
    connection.send(ListGroupsRequest())
    assert not readable([connection.fileno()], 0.1)
    proxy.resume()
    assert connection.receive(5).error_code == 0
    connection.close()
    proxy.stop()


def test_a_stopped_proxy_leaves_nothing_behind(broker: Broker) -> None:
    host, port = parse_addresses(broker.direct_server)[0]
    before = threading.active_count()
    proxy = FaultProxy((host, port))
    BlockingConnection(parse_addresses(f"{proxy.address[0]}:{proxy.address[1]}")[0]).open().close()
    proxy.stop()
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.005)
    assert threading.active_count() <= before
    with pytest.raises(OSError):
        socket.create_connection(proxy.address, timeout=1)


def test_a_stopped_broker_closes_its_port_of_the_proxy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    proxy = FaultProxy(("127.0.0.1", port))
    with socket.create_connection(proxy.address, timeout=5) as sock:
        assert sock.recv(1) == b""
    proxy.stop()


def test_apis_that_cannot_fail_are_refused(broker: Broker) -> None:
    with pytest.raises(ValueError, match="no field for an error"):
        broker.fail_next("DescribeGroups", "NOT_COORDINATOR")
    with pytest.raises(ValueError, match="no API is called"):
        broker.fail_next("Nonsense", 1)


def test_the_connection_can_be_closed_at_a_request_of_any_api(broker: Broker, connection: BlockingConnection) -> None:
    """Closing needs no field for an error in the answer."""
    for name in API_NAMES.values():
        broker.fail_next(name, None)
    with pytest.raises(ClientError):
        connection.request(DescribeGroupsRequest(groups=["g"]))
    broker.end_faults()
    unable = [name for key, name in API_NAMES.items() if not can_refuse(key)]
    assert "DescribeGroups" in unable
    with pytest.raises(ValueError, match=r"use fail_next.'DescribeGroups', None. to close the connection instead"):
        broker.fail_next("DescribeGroups", 15)


def test_a_client_that_is_sent_to_the_leader_stays_behind_the_proxy(need_zookeeper: None) -> None:
    """KIP-951: the answer of a broker that does not lead has the leader's address."""
    with Cluster(2, settings={"default.replication.factor": 2}, topics=["t"]) as cluster:
        leader = cluster.leader_of("t")
        (other,) = [found for found in cluster.brokers if found is not leader]
        proxied = cluster._faults().address_of(("127.0.0.1", other.process.port))
        found = BlockingConnection(Address(*proxied), request_timeout_s=30).open()
        answer = found.request(produce_request("t"))
        (endpoint,) = answer.node_endpoints
        assert endpoint.node_id == leader.broker_id and endpoint.port != leader.process.port
        assert (endpoint.host, endpoint.port) == cluster._faults().address_of(("127.0.0.1", leader.process.port))
        found.close()
