"""The inbox for control requests: messages that arrive in parts, repeated, or overtaken by newer ones."""

from __future__ import annotations

from ottla.base.control_messages import LeaderAndIsr, UpdateMetadata
from ottla.base.errors import ErrorCode
from ottla.cluster.control.inbox import ControlInbox
from ottla.cluster.control.receiver import ControlReceiver
from ottla.cluster.control.wire import ControlRequest, control_requests
from ottla.cluster.metadata_cache import MetadataCache
from tests.cluster.control.test_receiver import leader_and_isr, update_metadata
from tests.controller.cluster import RecordingReplicas


class Inbox:
    def __init__(self) -> None:
        self.replicas = RecordingReplicas()
        self.cache = MetadataCache()
        self.inbox = ControlInbox(
            ControlReceiver(
                metadata=self.cache, replicas=self.replicas, broker_epoch=lambda: 100, on_broker_configs=lambda: None,
                on_roles_taken=lambda: None,
            )
        )  # fmt: skip

    def take(self, request: ControlRequest) -> ErrorCode | None:
        answers: list[ErrorCode] = []
        self.inbox.take(request, answers.append)
        return answers[0] if answers else None

    def take_all(self, message: LeaderAndIsr | UpdateMetadata, sequence: int) -> list[ErrorCode | None]:
        return [self.take(request) for request in control_requests(message, sequence)]


def in_parts(epoch: int = 5) -> list[ControlRequest]:
    """Returns a message about three replicas, in three parts."""
    states = [state for leader_epoch in (1, 2, 3) for state in leader_and_isr(leader_epoch).states]
    return list(control_requests(LeaderAndIsr(controller_id=1, controller_epoch=epoch, broker_epoch=100, states=states), 9, 1))


def test_a_message_is_carried_out_when_its_last_part_is_there() -> None:
    inbox = Inbox()
    first, second, third = in_parts()
    assert [inbox.take(first), inbox.take(second)] == [ErrorCode.NONE] * 2 and not inbox.replicas.states
    inbox.replicas.is_settled = False
    assert inbox.take(third) is None, "answered when it is carried out"
    assert [state.partition.leader_epoch for state in inbox.replicas.states] == [1, 2, 3]


def test_parts_out_of_order_are_refused_and_a_repeated_message_is_not() -> None:
    inbox = Inbox()
    first, second, third = in_parts()
    assert inbox.take(second) is ErrorCode.INVALID_REQUEST
    assert [inbox.take(first), inbox.take(third)] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert inbox.take(second) is ErrorCode.INVALID_REQUEST, "the message has to begin anew"
    assert [inbox.take(part) for part in (first, second, first, second, third)] == [ErrorCode.NONE] * 5
    assert [state.partition.leader_epoch for state in inbox.replicas.states] == [1, 2, 3]
    assert inbox.take(in_parts(6)[1]) is ErrorCode.INVALID_REQUEST, "a part of another controller's message"


def test_a_message_that_was_overtaken_changes_nothing() -> None:
    inbox = Inbox()
    nothing = UpdateMetadata(controller_id=1, controller_epoch=5, broker_epoch=100, topics=[], brokers=[], is_complete=True)
    assert inbox.take_all(nothing, 1) == [ErrorCode.NONE]
    assert inbox.take_all(update_metadata(5), 2) == [ErrorCode.NONE]
    assert inbox.take_all(nothing, 1) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert inbox.cache.topic("t") is not None
    assert inbox.take_all(update_metadata(5), 2) == [ErrorCode.NONE], "its answer was lost"
    assert inbox.take_all(nothing, 3) == [ErrorCode.NONE] and inbox.cache.topic("t") is None
    assert inbox.take_all(update_metadata(6), 1) == [ErrorCode.NONE], "the next controller counts anew"


def test_a_replaced_controller_and_an_earlier_life_are_refused() -> None:
    inbox = Inbox()
    inbox.take_all(update_metadata(6), 1)
    assert inbox.take_all(update_metadata(5), 2) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert inbox.take_all(update_metadata(6, broker_epoch=99), 2) == [ErrorCode.STALE_BROKER_EPOCH]
