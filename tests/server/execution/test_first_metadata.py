"""Metadata requests to a broker of a cluster that has not received the metadata yet are delayed, but not forever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.base.errors import WireError
from ottla.handlers.context import Pending
from ottla.handlers.served_apis import TABLE
from ottla.server.execution.first_metadata import WAIT_MS, FirstMetadata
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.nodes import Nodes, host_of
from tests.fakes.timers import ManualTimers

OTHER = 2
BROKER: Any = None
REQUEST: Any = SimpleNamespace()


def test_the_apis_that_show_metadata_wait() -> None:
    waiting = {"Metadata", "DescribeCluster", "DescribeQuorum", "DescribeTopicPartitions", "UnregisterBroker"}
    assert {api.name for api in TABLE.values() if api.awaits_metadata} == waiting


def test_a_broker_that_starts_says_nothing_of_topics_before_it_knows_them() -> None:
    nodes = Nodes(3)
    nodes.create("a", [1, OTHER])
    nodes.kill(OTHER)
    node = nodes.start(OTHER, is_awaited=False)
    nodes.until(lambda: host_of(OTHER) in nodes.network.listening)
    answers = nodes.send(OTHER, MetadataRequest(topics=[MetadataRequestTopic(name="a")]))
    nodes.until(lambda: node.is_ready or answers)
    assert node.is_ready
    nodes.until(lambda: answers)
    assert [(topic.name, topic.error_code) for topic in answers[0].topics] == [("a", 0)]
    assert len(answers[0].brokers) == 3


def test_questions_are_answered_one_after_the_other_and_not_if_the_client_is_gone() -> None:
    timers, order = ManualTimers(), []
    first = FirstMetadata(timers)
    handle = first.awaiting(lambda _broker, _request, body: order.append(body) or body)
    one, gone, three = (handle(BROKER, REQUEST, body) for body in (1, 2, 3))
    assert len(first) == 3 and not order
    gone.abandon()
    first.arrived()
    assert order == [1] and one.response == 1, "the others in turns of their own"
    timers.run_due()
    assert order == [1, 3] and three.response == 3 and not gone.is_done
    assert handle(BROKER, REQUEST, 4) == 4
    one.abandon()
    assert timers.pending() == 0


def test_after_a_while_the_answer_is_what_is_known() -> None:
    timers = ManualTimers()
    first = FirstMetadata(timers)
    pending = first.awaiting(lambda _broker, _request, body: body)(BROKER, REQUEST, "nothing")
    timers.advance(WAIT_MS - 1)
    assert not pending.is_done
    timers.advance(1)
    assert pending.response == "nothing" and len(first) == 0
    first.arrived()
    pending.abandon()


def test_a_handler_that_fails_later_ends_its_request_and_no_other() -> None:
    """Formerly the connection of the failed request was not closed, and the requests behind it waited until their deadlines."""
    timers, failure = ManualTimers(), WireError("no such request")
    first = FirstMetadata(timers)

    def execute(_broker: Any, _request: Any, body: str) -> str:
        if body == "bad":
            raise failure
        return body

    handle = first.awaiting(execute)
    bad, good, late = (handle(BROKER, REQUEST, body) for body in ("bad", "good", "bad"))
    timers.advance(WAIT_MS - 1)
    first.arrived()
    timers.run_due()
    assert bad.error is failure and good.response == "good" and late.error is failure
    assert timers.pending() == 0


def test_an_answer_that_takes_longer_is_given_up_with_its_client() -> None:
    timers, left = ManualTimers(), []
    first, later = FirstMetadata(timers), Pending()
    later.abandon = lambda: left.append(True)
    pending = first.awaiting(lambda _broker, _request, _body: later)(BROKER, REQUEST, None)
    first.arrived()
    assert not pending.is_done
    pending.abandon()
    assert left == [True]
    later.complete("done")
    assert pending.response == "done"
