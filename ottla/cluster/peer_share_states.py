"""Sends commands to the share coordinator on another broker, as requests of keys 83 to 87, and decodes the answers to `StateResult`.

It implements the interface `sharing.persister.PeerShareCoordinators`. A request has one share partition. An answer without it becomes
UNKNOWN_SERVER_ERROR, because answers of peers are not trusted. The modules of the requests are imported on use, which saves memory in a
single broker.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode, error_code
from ottla.base.ports import Peers
from ottla.base.share_state import UNKNOWN_DELIVERY_COMPLETE_COUNT, ShareState, StateBatch
from ottla.sharing.commands import DeleteState, DoneResult, InitializeState, ReadState, ReadSummary, StateCommand, StateResult, WriteState


class PeerShareStates:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def ask(self, broker_id: int, command: StateCommand, done: DoneResult) -> None:
        def answered(response: Any, code: int) -> None:
            done(StateResult(error_code(code)) if response is None else result_of(command, response))

        self._peers.send(broker_id, request_of(command), answered)


def request_of(command: StateCommand) -> Any:
    group_id, topic_id, partition = command.key
    if isinstance(command, WriteState):
        from ottla.wire.messages import write_share_group_state as write

        written = write.WriteStateData(topic_id=topic_id, partitions=[changed_partition(command)])
        return write.WriteShareGroupStateRequest(group_id=group_id, topics=[written])
    if isinstance(command, ReadState):
        from ottla.wire.messages import read_share_group_state as read

        wanted = read.PartitionData(partition=partition, leader_epoch=command.leader_epoch)
        return read.ReadShareGroupStateRequest(group_id=group_id, topics=[read.ReadStateData(topic_id=topic_id, partitions=[wanted])])
    if isinstance(command, ReadSummary):
        from ottla.wire.messages import read_share_group_state_summary as summary

        asked = summary.PartitionData(partition=partition, leader_epoch=command.leader_epoch)
        topic = summary.ReadStateSummaryData(topic_id=topic_id, partitions=[asked])
        return summary.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=[topic])
    if isinstance(command, InitializeState):
        from ottla.wire.messages import initialize_share_group_state as initialize

        begun = initialize.PartitionData(partition=partition, state_epoch=command.state_epoch, start_offset=command.start_offset)
        state = initialize.InitializeStateData(topic_id=topic_id, partitions=[begun])
        return initialize.InitializeShareGroupStateRequest(group_id=group_id, topics=[state])
    assert isinstance(command, DeleteState), f"{command} is no command"
    from ottla.wire.messages import delete_share_group_state as delete

    gone = delete.DeleteStateData(topic_id=topic_id, partitions=[delete.PartitionData(partition=partition)])
    return delete.DeleteShareGroupStateRequest(group_id=group_id, topics=[gone])


def changed_partition(command: WriteState) -> Any:
    from ottla.wire.messages import write_share_group_state as write

    state = command.state
    return write.PartitionData(
        partition=command.key.partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=[
            write.StateBatch(first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count)
            for first, last, delivery_state, count in state.batches
        ],
    )


def result_of(command: StateCommand, response: Any) -> StateResult:
    found = [
        partition
        for topic in response.results
        for partition in topic.partitions
        if (topic.topic_id, partition.partition) == (command.key.topic_id, command.key.partition)
    ]
    if len(found) != 1:
        return StateResult(ErrorCode.UNKNOWN_SERVER_ERROR, message="the answer is about another share partition")
    (answer,) = found
    if answer.error_code:
        return StateResult(error_code(answer.error_code), message=answer.error_message)
    if isinstance(command, ReadState):
        batches = tuple(StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in answer.state_batches)
        state = ShareState(answer.state_epoch, command.leader_epoch, answer.start_offset, UNKNOWN_DELIVERY_COMPLETE_COUNT, batches)
        return StateResult(ErrorCode.NONE, state)
    if isinstance(command, ReadSummary):
        return StateResult(
            ErrorCode.NONE, ShareState(answer.state_epoch, answer.leader_epoch, answer.start_offset, answer.delivery_complete_count)
        )
    return StateResult(ErrorCode.NONE)
