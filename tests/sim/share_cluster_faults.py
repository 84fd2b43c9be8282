"""Faults: functions that break a rule of share states between brokers, one at a time. The tests show that the verdicts notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from ottla.base.errors import ErrorCode
from ottla.base.types import SHARE_GROUP_STATE_TOPIC
from ottla.groups.share import offsets
from ottla.machine.contract import Decision, Reply
from ottla.replication.leader import Leader
from ottla.sharing.commands import WriteState
from ottla.sharing.persister import SharePersister
from ottla.sharing.share_partition import SharePartition, StoredStateCheck
from ottla.sharing.state_machine import NO_EPOCH, ShareStateMachine
from tests.sim import share_faults
from tests.sim.seed_search import catch_seed
from tests.sim.share_cluster import ShareClusterWorld


def write_of_replaced_leader() -> Any:
    """A share coordinator accepts the write of a replaced leader."""
    return share_faults.forget_leader_epoch()


def write_of_earlier_state() -> Any:
    """A share coordinator accepts a leader's write for a state that was altered after the leader had read it."""
    write = ShareStateMachine._write

    def lax_write(machine: ShareStateMachine, now_ms: int, command: WriteState, reply: Reply) -> Decision:
        return write(machine, now_ms, command._replace(state=command.state._replace(state_epoch=NO_EPOCH)), reply)

    return mock.patch.object(ShareStateMachine, "_write", lax_write)


def state_before_replicated() -> Any:
    """A write is answered when only the coordinator has it, before it is replicated."""
    committed_end = Leader.committed_end

    def end(leader: Leader) -> int:
        is_of_states = leader._state.topic_partition.topic == SHARE_GROUP_STATE_TOPIC
        return 1 << 62 if is_of_states else committed_end(leader)

    return mock.patch.object(Leader, "committed_end", end)


def altered_is_begun_again() -> Any:
    """A partition that an operator has altered is initialized again after the operator was answered."""
    return mock.patch.object(offsets, "log_initialized", lambda _change, _keys: None)


def served_from_memory() -> Any:
    """A leader delivers records from its memory to a new member, without asking whether the state was altered."""

    def check(_share: SharePartition) -> StoredStateCheck:
        answered = StoredStateCheck()
        answered.is_over = True
        return answered

    return mock.patch.object(SharePartition, "check", check)


def deleted_but_remembered() -> Any:
    """A deletion is answered although the share coordinator keeps the state."""
    return mock.patch.object(SharePersister, "delete", lambda _persister, _key, done: done(ErrorCode.NONE))


FAULTS: dict[str, Callable[[], Any]] = {fault.__name__: fault for fault in (
    write_of_replaced_leader, write_of_earlier_state, state_before_replicated, altered_is_begun_again, served_from_memory,
    deleted_but_remembered,
)}  # fmt: skip
VERDICTS = {
    "write_of_replaced_leader": r"old leader: .* was accepted after",
    "write_of_earlier_state": r"earlier state: a write of epoch \d+ is taken for t-\d, whose state is of epoch \d+",
    "state_before_replicated": r"answers \w+ before \d+, the high watermark is \d+: it may be lost \(I14\)",
    "altered_is_begun_again": r"not altered: t-\d@\d+ goes to \w+, the group begins at \d+|reset: the state of t-\d begins anew",
    "served_from_memory": r"stale: t-\d@\d+ goes to \w+ from the state of epoch \d+",
    "deleted_but_remembered": r"not altered: of t-\d there is ShareState.*, the operator was answered None",
}
"""What is said of each fault. Another verdict under it may be true as well, and shows less: it does not count as found."""


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault's verdict, and the message; (0, "") if no seed fails."""
    return catch_seed(FAULTS[name](), lambda seed: ShareClusterWorld(seed).run(), seeds, first, VERDICTS[name])
