"""Sends the leaders' proposals for new in-sync sets to the controller. One AlterPartition request with all proposals is in flight at a
time.

A proposal is pending until a definite answer or newer state ends it (KIP-497). Until then it is sent again, because the controller may have
changed, the answer may be lost, or this broker may have registered again. Each change names the partition epoch that it was proposed from,
so a second request has no effect. The answers of the controller:

- NONE: the ISR of the answer is in force.
- INVALID_UPDATE_VERSION with a newer state: an earlier request was executed, or the controller has changed the partition. The newer state
  is in force.
- INELIGIBLE_REPLICA, INVALID_REQUEST, OPERATION_NOT_ATTEMPTED: refused, the ISR has not changed (KIP-903). A refused replica is not
  proposed for a while.
- FENCED_LEADER_EPOCH, NEW_LEADER_ELECTED, UNKNOWN_TOPIC_OR_PARTITION and others: not decided. The proposal is sent again until the
  controller's next message ends it.

`replication/leader.py` makes the proposals; `controller_link.py` sends the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ottla.base.errors import ErrorCode
from ottla.base.loop.procedure import Procedure, Runner, pause
from ottla.base.ports import Timers
from ottla.controller.api import AlterPartitionDone, IsrChangeRequest, PartitionResult
from ottla.replication.isr import IsrProposal
from ottla.replication.leader import Leader
from ottla.replication.state import PartitionState

log = logging.getLogger("ottla.replication")

RETRY_MS_MIN = 10
RETRY_MS_MAX = 1_000

REFUSALS = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.OPERATION_NOT_ATTEMPTED})

Key = tuple[bytes, int]
"""Topic id and partition."""


class AltersPartitions(Protocol):
    """The part of `controller.api.Controller` that is used here."""

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], done: AlterPartitionDone) -> None: ...


class IsrChanges:
    """Sends the proposals of the leaders on this broker, and passes the answers to them."""

    def __init__(
        self,
        controller: AltersPartitions,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        leader_of: Callable[[Key], Leader | None],
        timers: Timers,
    ) -> None:
        self.controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._leader_of = leader_of
        self._timers = timers
        self._pending: dict[Key, IsrProposal] = {}
        self._sizes: dict[Key, int] = {}
        """Size of the in-sync set before the proposal."""
        self._failures = 0
        self.expansions = 0
        self.shrinks = 0
        """Numbers of accepted proposals that enlarged or shrank an in-sync set."""
        self._asking = Runner()
        self._is_closed = False

    def propose(self, state: PartitionState, proposal: IsrProposal) -> None:
        """Implements `PartitionState.on_isr_proposal`. The proposals of one iteration of the event loop are sent in one request."""
        key = (state.log.topic_id or bytes(16), state.topic_partition.partition)
        self._pending[key], self._sizes[key] = proposal, len(state.isr_state.members)
        if not self._asking.is_running and not self._is_closed:
            self._asking.start(self._ask_until_answered())

    def close(self) -> None:
        self._is_closed = True
        self._asking.cancel()
        self._pending.clear()

    def _ask_until_answered(self) -> Procedure[None]:
        """Sends requests with all pending proposals until none is pending."""
        delay_ms = 0
        while True:
            yield from pause(self._timers, delay_ms)
            self._drop_ended()
            if not self._pending:
                return
            asked = dict(self._pending)
            changes = [_change(key, proposal) for key, proposal in asked.items()]
            code, results = yield partial(self.controller.alter_partition, self._broker_id, self._broker_epoch(), changes)
            self._take_all(asked, code, results)
            if not self._pending:
                return
            is_new = any(asked.get(key) is not proposal for key, proposal in self._pending.items())
            delay_ms = 0 if is_new and not self._failures else self._delay_ms()

    def _drop_ended(self) -> None:
        """Drops proposals that newer state of their partitions has ended."""
        self._pending = {key: proposal for key, proposal in self._pending.items() if self._is_open(key, proposal)}
        self._sizes = {key: self._sizes[key] for key in self._pending if key in self._sizes}

    def _is_open(self, key: Key, proposal: IsrProposal) -> bool:
        leader = self._leader_of(key)
        return leader is not None and leader.has_proposed(proposal)

    def _take_all(self, asked: dict[Key, IsrProposal], code: ErrorCode, results: Sequence[PartitionResult]) -> None:
        """Passes the answer to one request to the leaders."""
        is_answered = False
        if code is ErrorCode.NONE:
            for result in results:
                key = (result.topic_id, result.partition)
                if key in asked and self._take(key, asked[key], result):
                    is_answered = True
                    if self._pending.get(key) is asked[key]:
                        del self._pending[key]
        elif not self._failures:
            log.info("the in-sync sets of %d partitions are proposed again: %s", len(asked), code.name)
        self._failures = 0 if is_answered else self._failures + 1

    def _delay_ms(self) -> int:
        return min(RETRY_MS_MIN << min(self._failures, 20), RETRY_MS_MAX)

    def _take(self, key: Key, proposal: IsrProposal, result: PartitionResult) -> bool:
        """Passes a definite answer to the leader. Returns whether the answer was definite."""
        leader, code = self._leader_of(key), result.error
        if code is ErrorCode.NONE:
            self._count(key, proposal)
        if leader is None or not leader.has_proposed(proposal):
            return True
        is_newer = result.leader_epoch == leader.epoch and result.partition_epoch > proposal.partition_epoch
        if code is ErrorCode.NONE or (code is ErrorCode.INVALID_UPDATE_VERSION and is_newer):
            if not _is_sound(result, self._broker_id, proposal):
                return False
            leader.on_isr_answer(
                result.isr, leader_epoch=result.leader_epoch, partition_epoch=result.partition_epoch, eligible=result.eligible
            )
            return True
        if code in REFUSALS:
            log.info("%s: the controller refuses the in-sync set %s: %s", leader.log.topic_partition, proposal.members, code.name)
            leader.on_isr_answer(None, leader_epoch=proposal.leader_epoch, partition_epoch=proposal.partition_epoch)
            return True
        return False

    def _count(self, key: Key, proposal: IsrProposal) -> None:
        """Counts an accepted proposal. The controller's message about it may have arrived before this answer."""
        size = len(proposal.members)
        grown = size - self._sizes.pop(key, size)
        self.expansions += grown > 0
        self.shrinks += grown < 0


def _change(key: Key, proposal: IsrProposal) -> IsrChangeRequest:
    topic_id, index = key
    return IsrChangeRequest(
        topic_id=topic_id, partition=index, isr=proposal.members,
        leader_epoch=proposal.leader_epoch, partition_epoch=proposal.partition_epoch,
    )  # fmt: skip


def _is_sound(result: PartitionResult, broker_id: int, proposal: IsrProposal) -> bool:
    """Whether the answer is a possible state of a partition that this broker leads in the proposal's leader epoch."""
    return (
        broker_id in result.isr
        and result.leader_epoch == proposal.leader_epoch
        and result.partition_epoch >= proposal.partition_epoch
        and result.leader == broker_id
    )
