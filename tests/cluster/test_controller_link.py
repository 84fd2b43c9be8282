"""A broker's own requests to a controller on another broker: internal topics, controlled shutdown, and the search for the controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import GROUP_METADATA_TOPIC
from ottla.cluster.controller_link import RETRY_MAX_MS, ControllerLink
from ottla.cluster.controller_requests import topic_results
from ottla.controller.api import NewTopic, TopicResult
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.nodes import Nodes
from tests.fakes.timers import ManualTimers

OTHER = 2
SMALL = ("offsets.topic.num.partitions=2", "offsets.topic.replication.factor=3")


def test_a_broker_that_is_not_the_controller_creates_internal_topics() -> None:
    nodes = Nodes(3, *SMALL)
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    found = nodes.ask(OTHER, asked).coordinators[0]
    nodes.until(lambda: nodes.ask(OTHER, asked).coordinators[0].error_code == 0)
    assert found.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    topic = nodes.nodes[OTHER].metadata.topic(GROUP_METADATA_TOPIC)
    assert topic is not None and [len(partition.replicas) for partition in topic.partitions] == [3, 3]
    assert topic.configs["cleanup.policy"] == "compact"


def test_a_metadata_request_creates_a_topic_through_any_broker() -> None:
    nodes = Nodes(2, "num.partitions=3")
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
    nodes.ask(OTHER, asked)
    nodes.until(lambda: nodes.ask(OTHER, asked).topics[0].error_code == 0)
    assert len(nodes.ask(1, asked).topics[0].partitions) == 3


def test_a_creation_waits_for_the_next_controller() -> None:
    nodes = Nodes(3)
    nodes.kill(1)
    answers: list[TopicResult] = []
    nodes.nodes[OTHER].route.create_topics([NewTopic(name="a", num_partitions=1, replication_factor=2)], False, answers.extend)
    nodes.until(lambda: answers)
    assert [(one.name, one.error) for one in answers] == [("a", ErrorCode.NONE)]


def test_a_broker_hands_over_what_it_leads_through_the_controller() -> None:
    nodes = Nodes(3)
    nodes.create("a", [2, 1])
    nodes.create("alone", [2])
    answers: list[tuple[ErrorCode, list[tuple[str, int]]]] = []
    node = nodes.nodes[OTHER]
    node.route.controlled_shutdown(OTHER, node.member.broker_epoch(), lambda code, left: answers.append((code, left)))
    nodes.until(lambda: answers)
    assert answers == [(ErrorCode.NONE, [])], "what has no other replica holds up nothing"
    nodes.until(lambda: nodes.replica(1, "a").is_leading)


def test_only_what_was_asked_is_answered() -> None:
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="b", error_code=7), CreatableTopicResult(name="other")])
    wanted = [NewTopic(name="a"), NewTopic(name="b")]
    assert [(one.name, one.error) for one in topic_results(response, wanted)] == [
        ("a", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("b", ErrorCode.REQUEST_TIMED_OUT),
    ]


def test_no_request_waits_for_a_controller_that_was_replaced() -> None:
    """The controller pauses after it has received the request. The next controller is asked long before the request's time-out."""
    nodes = Nodes(3, "request.timeout.ms=60000")
    nodes.create("t", [2, 3])
    nodes.nodes[1].dispatcher.execute = lambda connection, frame: False  # type: ignore[method-assign]
    answers: list[TopicResult] = []
    codes: list[ErrorCode] = []
    node = nodes.nodes[OTHER]
    node.route.create_topics([NewTopic(name="a", num_partitions=1, replication_factor=2)], False, answers.extend)
    node.route.alter_partition(OTHER, node.member.broker_epoch(), [], lambda code, _results: codes.append(code))
    nodes.settle(100)
    assert not answers and not codes
    store = nodes.nodes[1].ports.store
    store.expire()  # type: ignore[attr-defined]
    nodes.until(lambda: answers and codes, 5_000)
    assert [(one.name, one.error) for one in answers] == [("a", ErrorCode.NONE)] and codes == [ErrorCode.NOT_CONTROLLER]


@pytest.mark.parametrize("becomes", [OTHER, 3])
def test_a_request_reaches_a_controller_that_is_found_after_many_attempts(becomes: int) -> None:
    """The pauses between attempts have become longer than the interval at which the link checks which broker is the controller. Such a
    check must not begin a new pause."""
    timers, local, metadata = ManualTimers(), SimpleNamespace(is_active=False), SimpleNamespace(controller_id=1, brokers={})
    sent: list[int] = []
    ended: list[str] = []

    def send(broker_id: int, _request: object, answered: Any, *, lane: str) -> None:
        sent.append(broker_id)
        code = ErrorCode.NOT_CONTROLLER if broker_id == 1 else ErrorCode.NONE
        timers.call_later(1, lambda: answered(SimpleNamespace(error_code=code), 0))

    parts: Any = {"local": local, "metadata": metadata, "peers": SimpleNamespace(send=send)}
    route = ControllerLink(**parts, broker_id=OTHER, timers=timers, timeout_ms=lambda: 60_000, is_alone=False)
    route.ask(object(), lambda response: response.error_code, lambda _response: ended.append("there"), lambda: ended.append("here"))
    while len(sent) < 12:
        timers.advance_one()
    timers.advance(2)  # the attempt is answered, and the next pause begins
    assert not ended
    metadata.controller_id, local.is_active = becomes, becomes == OTHER
    timers.advance(2 * RETRY_MAX_MS)
    assert ended == ["here" if becomes == OTHER else "there"]
