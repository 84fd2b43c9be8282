"""Clients that claim to be brokers, and brokers that send nonsense, are refused, and all other connections are served."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.ports import CONTROL_LANE
from ottla.base.types import TopicPartition
from ottla.cluster.control.wire import ControlRequest
from ottla.security.cluster_identity import MECHANISM, Hello, hello_bytes
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from ottla.wire.schema import Request
from tests.cluster.nodes import Nodes, host_of
from tests.sim.network import Call
from tests.wire.samples import sample


class Conversation:
    """A connection of a client that sends one request after the other."""

    def __init__(self, nodes: Nodes, broker_id: int) -> None:
        self._nodes = nodes
        self._host = host_of(broker_id)
        self._caller = nodes.network.caller("hostile")

    def ask(self, body: Request, version: int | None = None) -> Any:
        answers: list[Any] = []
        call = Call(None, type(body).VERSIONS[1] if version is None else version, lambda: body, TopicPartition("", 0))
        self._caller.send(call, self._host, answers.append)
        self._nodes.until(lambda: answers)
        return answers[0]


def hello(nodes: Nodes, receiver: int = 1) -> bytes:
    """Returns the hello of broker 2; a client can know all of its contents."""
    cluster_id, epoch = nodes.nodes[1].metadata.cluster_id, nodes.nodes[2].member.broker_epoch()
    return hello_bytes(Hello(nonce=bytes(16), sender=2, receiver=receiver, broker_epoch=epoch, cluster_id=cluster_id))


@pytest.mark.parametrize("tokens", [[b""], [b"\xff" * 300], [b"hello", b"proof"], None], ids=["empty", "long", "words", "a broker's"])
def test_a_client_that_claims_to_be_a_broker_stays_a_client(tokens: list[bytes] | None) -> None:
    nodes = Nodes(2)
    client = Conversation(nodes, 1)
    assert client.ask(SaslHandshakeRequest(mechanism=MECHANISM)).error_code == 0
    assert client.ask(SaslHandshakeRequest(mechanism=MECHANISM)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    answers = [client.ask(SaslAuthenticateRequest(auth_bytes=token)) for token in tokens or [hello(nodes), bytes(32)]]
    codes = [answer.error_code for answer in answers]
    assert ErrorCode.SASL_AUTHENTICATION_FAILED in codes and codes[-1] != 0
    for body in (LeaderAndIsrRequest(controller_epoch=9), WriteTxnMarkersRequest(markers=[]), UpdateMetadataRequest(is_complete=True)):
        answer = client.ask(body)
        assert getattr(answer, "error_code", ErrorCode.CLUSTER_AUTHORIZATION_FAILED) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert len(nodes.nodes[1].metadata.brokers) == 2, "the metadata is what it was"


def test_a_proof_is_asked_for_on_the_listener_for_brokers_only() -> None:
    listeners = f"listeners=OTHER://{host_of(1)}:9093,PLAINTEXT://{host_of(1)}:9092"  # clients of this network connect to the last one
    protocols = "listener.security.protocol.map=OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    nodes = Nodes(1, listeners, protocols, "inter.broker.listener.name=OTHER")
    answer = Conversation(nodes, 1).ask(SaslHandshakeRequest(mechanism=MECHANISM))
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


def tame(request: Any, random: Random, topic_id: bytes) -> None:
    """Changes a random request so that a faulty controller of the current epoch could have sent it: small numbers and valid names."""
    request.controller_epoch, request.controller_id, request.part, request.sequence = 1, 1, 0, -1
    request.has_more_parts = random.random() < 0.2
    if isinstance(request, UpdateMetadataRequest):
        request.live_brokers, request.is_complete = [], False
    for topic in request.topic_states:
        topic.topic_name, topic.topic_id = random.choice("tuv"), random.choice((topic_id, b"\1" * 16, b"\2" * 16))
        for number, state in enumerate(topic.partition_states):
            state.partition_index = random.choice((number, number, 3, 0x7FFFFFFF))
            for name in ("leader", "leader_epoch", "partition_epoch", "zk_version"):
                if hasattr(state, name):
                    setattr(state, name, random.randrange(-1, 5))
            for name in ("replicas", "isr", "adding_replicas", "removing_replicas", "offline_replicas", "eligible_replicas"):
                if hasattr(state, name):
                    setattr(state, name, [random.randrange(0, 5) for _ in range(random.randrange(4))])


@pytest.mark.parametrize("cls", [LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest])
def test_a_broker_that_sends_nonsense_breaks_nothing(cls: type[ControlRequest]) -> None:
    """Random requests of an authenticated broker are all answered, and the cluster works afterwards."""
    nodes = Nodes(3)
    nodes.create("t", [1, 2, 3])
    nodes.until(lambda: nodes.leader().isr == (1, 2, 3))
    node, random = nodes.nodes[2], Random(5)
    topic_id = nodes.leader().log.topic_id or b""
    for number in range(200):
        request = sample(cls, cls.VERSIONS[1], random)
        if number % 2:
            tame(request, random, topic_id)
            request.broker_epoch = nodes.nodes[3].member.broker_epoch()
        else:
            request.controller_epoch = 0
        answers: list[tuple[Any, int]] = []
        node.peers.send(3, request, lambda response, code, answers=answers: answers.append((response, code)), lane=CONTROL_LANE)  # type: ignore[misc]
        nodes.until(lambda answers=answers: answers)  # type: ignore[misc]
        assert answers[0][1] == 0, "the connection holds"
    nodes.create("after", [3, 1])
    nodes.write("x", topic="after")
    nodes.until(lambda: nodes.leader("after").high_watermark == 1)
