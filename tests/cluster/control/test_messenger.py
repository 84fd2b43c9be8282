"""The messenger from the controller to one broker: it sends messages in order, repeats each until there is a definite answer, and drops
those that are no longer needed."""

from __future__ import annotations

from typing import Any

from ottla.base.cluster_metadata import BrokerMetadata, TopicMetadata
from ottla.base.control_messages import ControlMessage, UpdateConfigs, UpdateMetadata
from ottla.base.errors import ErrorCode
from ottla.base.ports import CONTROL_LANE
from ottla.cluster.control.messenger import RETRY_FIRST_MS, RETRY_MAX_MS, REVIEW_MS, PeerMessenger
from ottla.wire.messages.update_metadata import UpdateMetadataResponse
from tests.cluster.control.test_wire import large_metadata
from tests.fakes.peers import Asked
from tests.fakes.world import World

NO_ANSWER = (None, ErrorCode.NETWORK_EXCEPTION)


class Sender(World):
    def __init__(self) -> None:
        self.is_wanted = True
        self.messenger = PeerMessenger(self.peers, self.timers, lambda _broker_id, _message: self.is_wanted)
        self.results: list[tuple[int, ErrorCode]] = []

    def send(self, number: int, message: ControlMessage | None = None, broker_id: int = 2) -> None:
        """Sends a message. Its number, by which the test recognises it, is the controller's epoch."""
        if message is None:
            message = UpdateMetadata(controller_id=1, controller_epoch=number, broker_epoch=5, topics=[], brokers=[])
        broker = BrokerMetadata(broker_id=broker_id, endpoints={}, epoch=5)
        self.messenger.send(broker, message, lambda code: self.results.append((number, code)))

    def asked(self) -> list[int]:
        return [one.request.controller_epoch for one in self.peers.asked]

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> Asked:
        asked = self.peers.asked.pop(0)
        asked.done(UpdateMetadataResponse(error_code=code), 0)
        return asked


def test_one_message_is_under_way_and_the_others_follow_in_order() -> None:
    sender = Sender()
    for number in (1, 2, 3):
        sender.send(number)
    sender.send(9, broker_id=4)
    assert sender.asked() == [1, 9] and {one.lane for one in sender.peers.asked} == {CONTROL_LANE}
    asked = [sender.answer() for _ in range(4)]
    assert [one.request.controller_epoch for one in asked] == [1, 9, 2, 3]
    numbers = [one.request.sequence for one in asked if one.broker_id == 2]
    assert numbers == sorted(set(numbers)) and sender.results == [(1, 0), (9, 0), (2, 0), (3, 0)]


def test_a_broker_that_is_paused_catches_up_with_the_newest_state() -> None:
    sender = Sender()
    for number in range(1_000):
        topics = [TopicMetadata(name=f"t{number % 7}", topic_id=bytes([number % 7]) * 16, partitions=(), version=number)]
        sender.send(number, UpdateMetadata(controller_id=1, controller_epoch=1, broker_epoch=5, topics=topics, brokers=[]))
    assert len(sender.peers.asked) == 1 and len(sender.messenger._outboxes[2]._waiting) == 1
    assert [number for number, _ in sender.results] == list(range(2, 1_000)), "the first of those that wait is done when it is answered"
    first, second = sender.answer(), sender.answer()
    assert len(first.request.topic_states) == 1 and len(second.request.topic_states) == 7 and not sender.peers.asked
    assert first.request.sequence < second.request.sequence and sender.results[-2:] == [(0, ErrorCode.NONE), (1, ErrorCode.NONE)]


def test_a_message_is_sent_again_after_rising_pauses_until_it_is_answered() -> None:
    sender = Sender()
    sender.send(1)
    sender.send(2)
    pauses: list[int] = []
    for _ in range(9):
        asked = sender.peers.asked.pop()
        asked.done(*NO_ANSWER)
        pause = 0
        while not sender.peers.asked:
            sender.timers.advance(1)
            pause += 1
        pauses.append(pause)
        assert sender.peers.asked[0].request.sequence == asked.request.sequence
    assert pauses[:4] == [RETRY_FIRST_MS, 20, 40, 80] and pauses[-1] == RETRY_MAX_MS and sender.results == []
    asked.done(UpdateMetadataResponse(), 0)  # a late answer to an attempt that was given up
    assert sender.results == []
    sender.answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    sender.timers.advance(RETRY_MAX_MS)
    sender.answer()
    assert sender.results == [(1, 0)] and sender.asked() == [2]


def test_a_refusal_is_an_answer() -> None:
    sender = Sender()
    sender.send(1)
    sender.answer(ErrorCode.STALE_BROKER_EPOCH)
    assert sender.results == [(1, ErrorCode.STALE_BROKER_EPOCH)] and not sender.peers.asked


def test_what_does_not_matter_any_more_is_given_up() -> None:
    sender = Sender()
    for number in (1, 2, 3):
        sender.send(number)
    late = sender.peers.asked.pop()
    sender.is_wanted = False
    sender.timers.advance(REVIEW_MS)
    assert sender.results == [(number, ErrorCode.NETWORK_EXCEPTION) for number in (1, 2, 3)] and not sender.peers.asked
    late.done(UpdateMetadataResponse(), 0)
    sender.is_wanted = True
    sender.send(4)
    sender.peers.asked.pop().done(*NO_ANSWER)
    sender.is_wanted = False
    sender.timers.advance(RETRY_FIRST_MS)
    assert sender.results[3:] == [(4, ErrorCode.NETWORK_EXCEPTION)] and not sender.peers.asked
    sender.timers.advance(10 * REVIEW_MS)
    assert not sender.peers.asked


def test_a_message_that_is_sent_by_an_answers_receiver_goes_behind_what_waits() -> None:
    sender = Sender()
    broker = BrokerMetadata(broker_id=2, endpoints={}, epoch=5)
    first: Any = UpdateMetadata(controller_id=1, controller_epoch=1, broker_epoch=5, topics=[], brokers=[])
    sender.messenger.send(broker, first, lambda _code: sender.send(3))
    sender.send(2)
    sender.answer()
    assert sender.asked() == [2]
    sender.answer()
    assert sender.asked() == [3]


def test_the_parts_of_a_large_message_go_one_by_one_and_begin_anew_after_a_lost_connection() -> None:
    sender = Sender()
    sender.send(7, large_metadata(9_000))
    assert sender.answer().request.part == 0
    assert sender.peers.asked[0].request.part == 1
    sender.peers.asked.pop().done(*NO_ANSWER)
    sender.timers.advance(RETRY_FIRST_MS)
    parts = []
    while sender.peers.asked:
        parts.append(sender.answer().request)
    assert [part.part for part in parts] == list(range(len(parts))) and len(parts) > 2
    assert sum(len(topic.partition_states) for part in parts for topic in part.topic_states) == 9_099
    assert sender.results == [(7, ErrorCode.NONE)]


def test_settings_do_not_travel() -> None:
    sender = Sender()
    sender.send(1, UpdateConfigs(controller_id=1, controller_epoch=1, broker_epoch=5, changes=[]))
    assert sender.results == [(1, ErrorCode.NONE)] and not sender.peers.asked
