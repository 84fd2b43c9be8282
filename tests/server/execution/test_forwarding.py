"""Requests for the controller, sent to any broker: the controller executes them for the client, also the next one (KIP-590)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.cluster_metadata import CONFIG_BROKER, CONFIG_BROKER_LOGGER, CONFIG_TOPIC
from ottla.base.errors import ErrorCode, WireError
from ottla.handlers.context import ConnectionInfo, RequestContext
from ottla.handlers.served_apis import TABLE
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import Requester
from ottla.wire.apis import KEYS
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.envelope import EnvelopeRequest
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.cluster.nodes import Nodes
from tests.fakes.authorizer import RuleAuthorizer

OTHER = 2
FORWARDED_BY_KAFKA = {
    "AlterClientQuotas", "AlterConfigs", "AlterPartitionReassignments", "AlterUserScramCredentials", "CreatePartitions", "CreateTopics",
    "DeleteTopics", "ElectLeaders", "IncrementalAlterConfigs", "ListPartitionReassignments", "UpdateFeatures",
}  # fmt: skip


def topic(name: str, *, partitions: int = 1, replicas: int = 3) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)


def create(*names: str, timeout_ms: int = 60_000) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[topic(name) for name in names], timeout_ms=timeout_ms)


class RecordingAuthorizer(RuleAuthorizer):
    """Allows all operations except `denied`, and records the requesters."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bool]] = []
        self.denied: AclOperation | None = None

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        self.asked.append((requester.principal, requester.host, requester.is_inter_broker))
        return operation is not self.denied and (operation is not AclOperation.CLUSTER_ACTION or requester.is_inter_broker)


def test_the_apis_are_kafkas() -> None:
    assert {api.name for api in TABLE.values() if api.is_forwarded} == FORWARDED_BY_KAFKA


def test_topics_are_made_changed_and_deleted_through_any_broker() -> None:
    nodes = Nodes(3)
    assert nodes.controller_id == 1
    made = nodes.ask(OTHER, create("a", "b")).topics
    assert [(one.name, one.error_code, one.num_partitions, one.replication_factor) for one in made] == [("a", 0, 1, 3), ("b", 0, 1, 3)]
    assert all(node.metadata.topic("a") is not None for node in nodes.nodes.values()), "answered when all know it"
    assert [one.error_code for one in nodes.ask(3, create("a")).topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]
    grown = nodes.ask(OTHER, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=4, assignments=None)], timeout_ms=9_000))
    assert [one.error_code for one in grown.results] == [0]
    elected = nodes.ask(3, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="a", partitions=[0])]))
    assert elected.replica_election_results[0].partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
    assert nodes.ask(OTHER, ListPartitionReassignmentsRequest(topics=None)).topics == []
    gone = nodes.ask(OTHER, DeleteTopicsRequest(topics=[DeleteTopicState(name="b"), DeleteTopicState(name="c")], timeout_ms=9_000))
    assert [(one.name, one.error_code) for one in gone.responses] == [("b", 0), ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert {len(node.partitions.of_topic("a")) for node in nodes.nodes.values()} == {4}
    assert all(node.metadata.topic("b") is None for node in nodes.nodes.values())


def test_many_topics_are_forwarded_piece_by_piece() -> None:
    nodes = Nodes(2)
    names = [f"t-{number}" for number in range(120)]
    wanted = CreateTopicsRequest(topics=[topic(name, replicas=1) for name in names], timeout_ms=60_000)
    assert [(one.name, one.error_code) for one in nodes.ask(OTHER, wanted).topics] == [(name, 0) for name in names]


def test_settings_and_quotas() -> None:
    nodes = Nodes(2)
    nodes.ask(OTHER, create("a", timeout_ms=9_000))
    change = AlterableConfig(name="retention.ms", config_operation=0, value="77000")
    resource = AlterConfigsResource(resource_type=CONFIG_TOPIC, resource_name="a", configs=[change])
    nodes.ask(OTHER, CreateTopicsRequest(topics=[topic("a", replicas=2)]))
    assert [one.error_code for one in nodes.ask(OTHER, IncrementalAlterConfigsRequest(resources=[resource])).responses] == [0]
    entry = EntryData(entity=[EntityData(entity_type="user", entity_name="u")], ops=[OpData(key="producer_byte_rate", value=5.0)])
    assert [one.error_code for one in nodes.ask(OTHER, AlterClientQuotasRequest(entries=[entry])).entries] == [0]
    known = nodes.nodes[OTHER].metadata.topic("a")
    assert known is not None and known.configs["retention.ms"] == "77000"


def test_log_levels_are_those_of_the_broker_that_is_asked() -> None:
    nodes = Nodes(2)
    levels = AlterConfigsResource(resource_type=CONFIG_BROKER_LOGGER, resource_name="2", configs=[])
    assert [one.error_code for one in nodes.ask(OTHER, IncrementalAlterConfigsRequest(resources=[levels])).responses] == [0]
    all_brokers = AlterConfigsResource(resource_type=CONFIG_BROKER, resource_name="", configs=[])
    assert [one.error_code for one in nodes.ask(OTHER, IncrementalAlterConfigsRequest(resources=[all_brokers])).responses] == [0]


def test_the_controller_authorises_the_client_and_not_the_broker() -> None:
    nodes = Nodes(2)
    authorizer = RecordingAuthorizer()
    nodes.nodes[1].broker.authorizer = authorizer
    nodes.ask(OTHER, CreateTopicsRequest(topics=[topic("a", replicas=2)]))
    assert ("User:ANONYMOUS", "10.0.0.1", False) in authorizer.asked
    authorizer.denied = AclOperation.CREATE
    answer = nodes.ask(OTHER, CreateTopicsRequest(topics=[topic("b", replicas=2)]))
    assert [one.error_code for one in answer.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("has_it", [True, False])
def test_a_request_waits_for_the_next_controller(has_it: bool) -> None:
    """The controller dies before it has received the request, or while it executes it (`has_it`)."""
    nodes = Nodes(3)
    nodes.network.is_kind = True
    if not has_it:
        nodes.kill(1)
    answers = nodes.send(OTHER, CreateTopicsRequest(topics=[topic("a", replicas=2)]))
    if has_it:
        nodes.settle(3)
        nodes.kill(1)
    nodes.until(lambda: answers)
    assert [one.error_code for one in answers[0].topics] in ([ErrorCode.NONE], [ErrorCode.TOPIC_ALREADY_EXISTS])
    assert nodes.controller_id != 1 and nodes.nodes[OTHER].metadata.topic("a") is not None


def test_without_a_controller_the_request_ends_with_its_time() -> None:
    nodes = Nodes(2)
    nodes.network.listening.pop("broker-1")  # no new connection
    begun_ms = nodes.timers.clock.monotonic_ms()
    answer = nodes.ask(OTHER, create("a", timeout_ms=3_000))
    assert [one.error_code for one in answer.topics] == [ErrorCode.NOT_CONTROLLER]
    assert 3_000 <= nodes.timers.clock.monotonic_ms() - begun_ms < 4_000


@pytest.mark.parametrize("asked", [1, OTHER])
@pytest.mark.parametrize("timeout_ms", [400, 0, -1])
def test_a_broker_that_does_not_answer_holds_up_a_request_for_its_own_time_only(asked: int, timeout_ms: int) -> None:
    """Topics are created, extended and deleted within the client's timeout, whichever broker is asked. With a timeout of 0 only the write
    is awaited."""
    nodes = Nodes(3)
    nodes.network.is_kind = True
    nodes.nodes[3].dispatcher.execute = lambda connection, frame: False  # type: ignore[method-assign]
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2, assignments=None)], timeout_ms=timeout_ms)
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=timeout_ms)
    created = CreateTopicsRequest(topics=[topic("a", replicas=2)], timeout_ms=timeout_ms)
    for body, results in ((created, "topics"), (grown, "results"), (gone, "responses")):
        begun_ms = nodes.timers.clock.monotonic_ms()
        answer = nodes.ask(asked, body)
        assert [one.error_code for one in getattr(answer, results)] == [ErrorCode.NONE]
        assert nodes.timers.clock.monotonic_ms() - begun_ms < max(timeout_ms, 0) + 200


def test_a_handler_that_fails_in_place_of_the_controller_ends_its_request() -> None:
    """Formerly the exception reached the event loop, and the client waited until its own timeout."""
    nodes, failure = Nodes(2), WireError("no such request")
    node = nodes.nodes[OTHER]
    assert node.links is not None

    def execute(_broker: Any, _request: Any, _body: Any) -> None:
        raise failure

    key = KEYS["CreateTopics"]
    handle = node.links.forwarder.forwarding(TABLE[key], 7, execute)
    client = ConnectionInfo(identity="test:1", host="10.0.0.1", listener="PLAINTEXT")
    pending = handle(node.broker, RequestContext(7, "c", client), create("a", timeout_ms=1_000))
    nodes.kill(1)
    nodes.until(lambda: pending.is_done)
    assert pending.error is failure


def ask_as_broker(nodes: Nodes, body: EnvelopeRequest, to: int = 1) -> Any:
    answers: list[Any] = []
    nodes.nodes[OTHER].peers.send(to, body, lambda response, code: answers.append(response if response is not None else code))
    nodes.until(lambda: answers)
    return answers[0]


def test_an_envelope_is_taken_from_brokers_only_and_holds_what_may_be_forwarded() -> None:
    nodes = Nodes(3)
    principal = bytes.fromhex("0000 05 55736572 02 61 00 00")
    produce = KEYS["Produce"].to_bytes(2, "big") + bytes(20)
    cases = [
        (produce, principal, ErrorCode.INVALID_REQUEST),
        (b"", principal, ErrorCode.INVALID_REQUEST),
        (KEYS["Envelope"].to_bytes(2, "big") + bytes(20), principal, ErrorCode.INVALID_REQUEST),
        (KEYS["CreateTopics"].to_bytes(2, "big") + b"\xff" * 20, principal, ErrorCode.INVALID_REQUEST),
        (KEYS["CreateTopics"].to_bytes(2, "big") + b"\0\5" + b"\xff" * 20, principal, ErrorCode.INVALID_REQUEST),
        (KEYS["CreateTopics"].to_bytes(2, "big") + b"\0\5" + bytes(7) + b"\xff" * 100_000, principal, ErrorCode.INVALID_REQUEST),
        (produce, None, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (produce, principal[:5], ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (produce, principal + b"x", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (produce, b"\0\1", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ]
    for data, named, code in cases:
        envelope = EnvelopeRequest(request_data=data, request_principal=named, client_host_address=b"nonsense")
        assert ask_as_broker(nodes, envelope).error_code == code
        assert ask_as_broker(nodes, envelope, to=3).error_code == ErrorCode.NOT_CONTROLLER
        assert nodes.ask(1, envelope).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_request_that_would_be_executed_in_steps_is_forwarded() -> None:
    world = Nodes(2)
    assert world.controller_id != OTHER
    names = [f"topic-with-a-long-name-{number:08}" for number in range(3_000)]
    body = CreateTopicsRequest(topics=[topic(name, replicas=2) for name in names], timeout_ms=60_000, validate_only=True)
    for broker_id in (world.controller_id, OTHER):
        answer = world.ask(broker_id, body)
        assert [(result.name, result.error_code) for result in answer.topics] == [(name, ErrorCode.NONE) for name in names]
