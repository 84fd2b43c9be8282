"""Reports the events at one broker to the history of share groups: acquisitions when they are decided, acknowledgements when they arrive,
answers when they are sent, and the leaders that the share coordinator accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.share_state import SharePartitionKey
from ottla.handlers.context import Pending, RequestContext
from ottla.machine.contract import Decision, Reply
from ottla.replication.partition import Partition
from ottla.sharing.acknowledgement import ranges
from ottla.sharing.acquisition import Acquired
from ottla.sharing.commands import DeleteState, ReadState, StateCommand, StateResult, WriteState
from ottla.sharing.registry import FindStart
from ottla.sharing.sessions import FINAL_EPOCH
from ottla.sharing.share_partition import SharePartition
from ottla.wire.messages.share_fetch import ShareFetchResponse
from tests.fakes.answers import answer_of
from tests.sim.share_history import LOCK_MS, Holder, ShareHistory

if TYPE_CHECKING:
    from tests.fakes.clock import ManualClock
    from tests.sim.machine import LifeTimers

SHARE_FETCH, SHARE_ACKNOWLEDGE, VERSION = 78, 79, 2

Statement = tuple[int, int, int, int, int]
"""An acknowledgement of one record: partition, state epoch, offset, kind, deliveries so far."""


class ShareJudge:
    """The reporter for one process of a broker. `node` is its node."""

    def __init__(self, history: ShareHistory, clock: ManualClock, life: LifeTimers, node: Any, topic: str) -> None:
        self._history = history
        self._clock = clock
        self._life = life
        self._node = node
        self._topic = topic

    def watch_members(self) -> None:
        """Starts to report acquisitions and the requests of members."""
        self._watch_shares()
        for key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
            route = self._node.dispatcher._route(key, VERSION)
            route.handle = self._judged(route.handle)

    def watch_coordinator(self) -> None:
        """Starts to report the leaders that the coordinator accepts."""
        node = self._node
        lead = node.share_states.lead

        def judged_lead(partition: Partition) -> None:
            lead(partition)
            for host in node.share_states.all_hosts():
                host.machine.decide = self._judged_decide(host.machine, partition)

        node.share_states.lead = judged_lead

    def _judged_decide(self, machine: Any, partition: Partition) -> Callable[..., Decision]:
        decide = type(machine).decide

        def judged(now_ms: int, command: StateCommand, reply: Reply) -> Decision:
            def answered(result: StateResult) -> None:
                if not result.code:
                    self._judge_result(partition, command, end)
                reply(result)

            decision: Decision = decide(machine, now_ms, command, answered)
            end = partition.log.log_end_offset + len(decision.records)
            if isinstance(command, DeleteState) and decision.records:
                self._history.forgotten(command.key.partition)
            return decision

        return judged

    def _judge_result(self, partition: Partition, command: StateCommand, end: int) -> None:
        where, high = f"the share coordinator answers {type(command).__name__}", partition.high_watermark
        assert partition.leader is not None, f"{where} and does not lead {partition.topic_partition} (I37)"
        assert high >= end, f"{where} before {end}, the high watermark is {high}: it may be lost (I14)"
        if isinstance(command, ReadState):
            self._history.coordinator_accepted(command.key.partition, command.leader_epoch)
        elif isinstance(command, WriteState):
            self._history.coordinator_accepted(command.key.partition, command.state.leader_epoch)
            self._history.wrote(command.key.partition, command.state.state_epoch)

    def _watch_shares(self) -> None:
        shares, judged_shares = self._node.share_partitions, dict[int, SharePartition]()
        get = shares.get

        def judged_get(key: SharePartitionKey, leader_epoch: int, find_start: FindStart) -> SharePartition:
            share: SharePartition = get(key, leader_epoch, find_start)
            if id(share) not in judged_shares:
                judged_shares[id(share)] = share
                self._judge_share(share, leader_epoch)
            return share

        shares.get = judged_get

    def _judge_share(self, share: SharePartition, leader_epoch: int) -> None:
        acquire, index = share.acquire, share.key.partition

        def judged(member: str, *arguments: Any) -> list[Acquired]:
            taken = acquire(member, *arguments)
            now_ms = self._clock.monotonic_ms()
            partition = self._node.partitions.get(self._topic, index)
            for first, last, count in taken:
                assert partition is not None and last < partition.high_watermark, f"s-{index}@{last} is not committed"
                for offset in range(first, last + 1):
                    self._history.acquired(index, offset, Holder(member, now_ms + LOCK_MS, share, count), now_ms, leader_epoch)
            return taken

        share.acquire = judged  # type: ignore[method-assign]

    # Requests of members

    def _judged(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        def judged(broker: Any, request: RequestContext, body: Any) -> Any:
            life, member, history = self._life, body.member_id, self._history
            request.connection.call_when_closed(("judge", member), lambda _: None if life.is_over else history.left(member))
            statements = self._read(body)
            answer = answer_of(handle(broker, request, body))
            if not isinstance(answer, Pending):
                self._judge_answer(answer, statements)
                return answer
            outer = Pending()
            outer.abandon = answer.abandon

            def complete(response: Any) -> None:
                if not life.is_over:
                    self._judge_answer(response, statements)
                outer.complete(response)

            def fail(error: Exception) -> None:
                raise error  # a verdict, or an error of the product

            answer.then(complete, fail)
            return outer

        return judged

    def _read(self, body: Any) -> list[Statement]:
        """Reports to the history what a member acknowledges."""
        history, now_ms = self._history, self._clock.monotonic_ms()
        statements = []
        for topic in body.topics:
            for partition in topic.partitions:
                era = history.eras[partition.partition_index]
                for batch in partition.acknowledgement_batches:
                    statement = batch.first_offset, batch.last_offset, batch.acknowledge_types
                    for first, last, kind in ranges(statement):  # type: ignore[arg-type]
                        for offset in range(first, last + 1):
                            count = history.note_acknowledgement(partition.partition_index, body.member_id, offset, kind, now_ms)
                            if count:
                                statements.append((partition.partition_index, era.state_epoch, offset, kind, count))
        if body.share_session_epoch == FINAL_EPOCH:
            history.left(body.member_id)
        return statements

    def _judge_answer(self, answer: Any, statements: list[Statement]) -> None:
        if answer.error_code:
            return
        is_fetch = isinstance(answer, ShareFetchResponse)
        for topic in answer.responses:
            for found in topic.partitions:
                code = found.acknowledge_error_code if is_fetch else found.error_code
                for partition, state_epoch, offset, kind, count in statements:
                    if partition == found.partition_index and not code:
                        self._history.settled(partition, state_epoch, offset, kind, count)
