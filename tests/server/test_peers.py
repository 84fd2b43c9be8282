"""Requests to other brokers over real sockets to a whole broker, and the errors if it is absent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.adapters.clock import SystemClock
from ottla.adapters.network import SocketNetwork
from ottla.adapters.timers import LoopTimers
from ottla.base.errors import ErrorCode
from ottla.base.ports import DEFAULT_LANE, FETCH_LANE
from ottla.client.core.sasl import PlainExchange
from ottla.client.errors import refused
from ottla.server.app import BrokerServer, close_loop
from ottla.server.peers import BrokerPeers
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.server.conftest import MakeServer
from tests.server.threads import run_until

OTHER = 2


class Asker:
    """Sends requests to one broker through `BrokerPeers`, and records the answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, timeout_ms: int = 30_000) -> None:
        self.peers = BrokerPeers(SocketNetwork(loop), SystemClock(), LoopTimers(loop), client_id="broker-1", timeout_ms=lambda: timeout_ms)
        self.peers.start({OTHER: ("127.0.0.1", port)}.get)
        self.answers: list[tuple[Any, int]] = []

    def send(self, request: Any, broker_id: int = OTHER, lane: str = DEFAULT_LANE) -> None:
        self.peers.send(broker_id, request, lambda response, code: self.answers.append((response, code)), lane=lane)


def waiting_fetch(server: BrokerServer) -> FetchRequest:
    """Returns a request that is not answered during the test, because the partition has no records."""
    server.node.create_topics([("waits", 1)])
    topic = server.node.metadata.topic("waits")
    assert topic is not None
    wanted = FetchTopic(topic_id=topic.topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1)])
    return FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=[wanted])


MARKER = WritableTxnMarker(
    producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=0,
    topics=[WritableTxnMarkerTopic(name="missing", partition_indexes=[0])],
)  # fmt: skip


def test_another_broker_answers_in_order(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server()
    asker = Asker(loop, server.node.endpoints[0].port)
    asker.send(WriteTxnMarkersRequest(markers=[MARKER]))
    asker.send(AddPartitionsToTxnRequest(transactions=[]))
    run_until(loop, lambda: len(asker.answers) == 2)
    (first, first_code), (second, second_code) = asker.answers
    assert (first_code, second_code) == (0, 0)
    assert first.markers[0].topics[0].partitions[0].error_code, "this broker leads no such partition"
    assert second.results_by_transaction == [], "spoken in a version that only brokers use"
    assert len(server.node.listeners.connections) == 1
    asker.peers.close()


def test_a_request_that_waits_holds_up_no_other_lane(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server()
    asker = Asker(loop, server.node.endpoints[0].port)
    asker.send(waiting_fetch(server), lane=FETCH_LANE)
    asker.send(WriteTxnMarkersRequest(markers=[MARKER]), lane=FETCH_LANE)
    asker.send(WriteTxnMarkersRequest(markers=[]))
    run_until(loop, lambda: asker.answers)
    assert [(response.markers, code) for response, code in asker.answers] == [([], 0)], "that of the other lane"
    assert len(server.node.listeners.connections) == 2
    asker.peers.close()
    run_until(loop, lambda: len(asker.answers) == 3)
    assert [code for _, code in asker.answers] == [0, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NETWORK_EXCEPTION]


def test_a_broker_that_has_moved_is_asked_at_its_new_address(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server()
    listener = SocketNetwork(loop).listen("127.0.0.1", 0, 10)  # this listener never accepts
    addresses = {OTHER: ("127.0.0.1", listener.port)}
    asker = Asker(loop, 1)
    asker.peers.start(addresses.get)
    asker.send(WriteTxnMarkersRequest(markers=[]))
    addresses[OTHER] = ("127.0.0.1", server.node.endpoints[0].port)
    asker.send(WriteTxnMarkersRequest(markers=[]))
    run_until(loop, lambda: len(asker.answers) == 2)
    assert [code for _, code in asker.answers] == [ErrorCode.NETWORK_EXCEPTION, 0]
    asker.peers.close()
    listener.close()


def test_a_broker_that_is_not_known(loop: asyncio.AbstractEventLoop) -> None:
    asker = Asker(loop, 1)
    asker.send(WriteTxnMarkersRequest(markers=[]), broker_id=3)
    assert asker.answers == [(None, ErrorCode.BROKER_NOT_AVAILABLE)]


def test_a_broker_that_is_gone_and_comes_back(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server()
    asker = Asker(loop, server.node.endpoints[0].port)
    asker.send(WriteTxnMarkersRequest(markers=[]))
    run_until(loop, lambda: asker.answers)
    server.node.listeners.close_all()
    asker.send(WriteTxnMarkersRequest(markers=[]))
    run_until(loop, lambda: len(asker.answers) == 2)
    asker.send(WriteTxnMarkersRequest(markers=[]))
    run_until(loop, lambda: len(asker.answers) == 3)
    assert asker.answers[2][1] == 0
    asker.peers.close()


class LaterAccess:
    """Implements `peers.Access` with logins that begin when the test lets them."""

    tls = ""
    logs_in = True

    def __init__(self) -> None:
        self.begun: list[Callable[[Any, Any], object]] = []
        self.is_prepared = self.is_closed = False

    def prepare(self) -> None:
        self.is_prepared = True

    def begin_login(self, done: Callable[[Any, Any], object]) -> None:
        self.begun.append(done)

    def share(self) -> float:
        return 0.5

    def close(self) -> None:
        self.is_closed = True


class AnyIdentity:
    """Accepts any identity, in place of the proof with the cluster's secret that follows the login."""

    def connecting(self, _broker_id: int, done: Callable[[Any], object]) -> None:
        done(object())


def test_requests_wait_for_a_login_that_begins_later_and_fail_with_it(loop: asyncio.AbstractEventLoop) -> None:
    access, answers = LaterAccess(), list[tuple[Any, int]]()
    identity: Any = AnyIdentity()
    peers = BrokerPeers(
        SocketNetwork(loop), SystemClock(), LoopTimers(loop), client_id="broker-1", timeout_ms=lambda: 30_000, identity=identity,
        access=access,
    )  # fmt: skip
    peers.start({OTHER: ("127.0.0.1", 1)}.get)
    run_until(loop, lambda: access.is_prepared)
    for _ in range(2):
        peers.send(OTHER, WriteTxnMarkersRequest(markers=[]), lambda response, code: answers.append((response, code)))
    assert answers == [] and len(access.begun) == 2
    access.begun[0](None, refused(ErrorCode.SASL_AUTHENTICATION_FAILED, "no token"))
    assert answers == [(None, ErrorCode.SASL_AUTHENTICATION_FAILED)]
    peers.close()
    assert access.is_closed
    access.begun[1](PlainExchange("a", "b"), None)
    assert answers[1:] == [(None, ErrorCode.NETWORK_EXCEPTION)], "nothing is opened after the end"


def test_closing_answers_what_waits(loop: asyncio.AbstractEventLoop) -> None:
    listener = SocketNetwork(loop).listen("127.0.0.1", 0, 10)  # this listener never accepts
    asker = Asker(loop, listener.port)
    asker.send(WriteTxnMarkersRequest(markers=[]))
    run_until(loop, lambda: True)
    asker.peers.close()
    run_until(loop, lambda: asker.answers)
    assert asker.answers == [(None, ErrorCode.NETWORK_EXCEPTION)]
    listener.close()


def test_a_broker_that_does_not_answer_in_time(loop: asyncio.AbstractEventLoop) -> None:
    listener = SocketNetwork(loop).listen("127.0.0.1", 0, 10)
    asker = Asker(loop, listener.port, timeout_ms=50)
    asker.send(WriteTxnMarkersRequest(markers=[]))
    run_until(loop, lambda: asker.answers)
    assert asker.answers == [(None, ErrorCode.NETWORK_EXCEPTION)]
    listener.close()


def test_a_connection_that_is_being_opened_ends_with_the_loop() -> None:
    loop, outcomes = asyncio.SelectorEventLoop(), []
    listener = SocketNetwork(loop).listen("127.0.0.1", 0, 10)
    SocketNetwork(loop).connect("127.0.0.1", listener.port, outcomes.append, outcomes.append)
    (task,) = asyncio.all_tasks(loop)
    listener.close()
    close_loop(loop)
    assert task.cancelled() and loop.is_closed() and outcomes == []
