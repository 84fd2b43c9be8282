"""Commands for a share coordinator on another broker: each is sent as its request, and the answer becomes its result."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.share_state import ShareState, StateBatch
from ottla.cluster.peer_share_states import PeerShareStates, request_of, result_of
from ottla.handlers.share_groups import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.sharing.commands import DeleteState, InitializeState, ReadState, ReadSummary, StateCommand, StateResult, WriteState
from tests.fakes.peers import HeldPeers
from tests.sharing.state_world import KEY

STATE = ShareState(3, 7, 100, 2, (StateBatch(101, 103, 2, 1), StateBatch(104, 104, 0, 4)))
HANDLERS: dict[type, Any] = {
    InitializeState: initialize_share_group_state,
    ReadState: read_share_group_state,
    ReadSummary: read_share_group_state_summary,
    WriteState: write_share_group_state,
    DeleteState: delete_share_group_state,
}


def answer_to(command: StateCommand, result: StateResult) -> Any:
    """Returns the answer of the other broker's handler."""
    return HANDLERS[type(command)].API.respond({KEY: result})


@pytest.mark.parametrize(
    ("command", "result"),
    [
        (InitializeState(KEY, 3, 100), StateResult(ErrorCode.NONE)),
        (ReadState(KEY, 7), StateResult(ErrorCode.NONE, STATE._replace(delivery_complete_count=-1))),
        (ReadSummary(KEY, 7), StateResult(ErrorCode.NONE, STATE._replace(batches=()))),
        (WriteState(KEY, STATE), StateResult(ErrorCode.NONE)),
        (DeleteState(KEY), StateResult(ErrorCode.NONE)),
        (WriteState(KEY, STATE), StateResult(ErrorCode.FENCED_LEADER_EPOCH, message="an older leader")),
        (ReadState(KEY, 7), StateResult(ErrorCode.INVALID_REQUEST)),
    ],
)
def test_the_result_travels(command: StateCommand, result: StateResult) -> None:
    assert result_of(command, answer_to(command, result)) == result


def test_what_is_written_travels() -> None:
    [topic] = request_of(WriteState(KEY, STATE)).topics
    [partition] = topic.partitions
    assert (topic.topic_id, partition.partition) == (KEY.topic_id, KEY.partition)
    assert (partition.state_epoch, partition.leader_epoch, partition.start_offset, partition.delivery_complete_count) == STATE[:4]
    batches = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in partition.state_batches]
    assert batches == [tuple(batch) for batch in STATE.batches]


def test_each_broker_is_asked_by_one_request() -> None:
    peers, results = HeldPeers(), list[StateResult]()
    states = PeerShareStates(peers)
    states.ask(2, DeleteState(KEY), results.append)
    states.ask(3, DeleteState(KEY), results.append)
    assert [asked.broker_id for asked in peers.asked] == [2, 3]
    peers.asked[0].done(answer_to(DeleteState(KEY), StateResult(ErrorCode.NONE)), 0)
    peers.asked[1].done(None, ErrorCode.NETWORK_EXCEPTION)
    assert results == [StateResult(ErrorCode.NONE), StateResult(ErrorCode.NETWORK_EXCEPTION)]


def test_an_answer_about_something_else_is_an_error() -> None:
    response = HANDLERS[DeleteState].API.respond({KEY._replace(partition=KEY.partition + 1): StateResult(ErrorCode.NONE)})
    assert result_of(DeleteState(KEY), response).code is ErrorCode.UNKNOWN_SERVER_ERROR
