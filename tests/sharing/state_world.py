"""A share coordinator on a log in memory. A crash can lose the end of the log, and pruning removes its beginning."""

from __future__ import annotations

from typing import Any

from ottla.base.share_state import SharePartitionKey
from ottla.base.uuids import Uuid
from ottla.machine.host import HostState, MachineHost
from ottla.machine.memory import CoordinatorMemory
from ottla.sharing.commands import StateCommand, StateResult
from ottla.sharing.state_machine import ShareStateMachine
from ottla.sharing.state_settings import ShareStateSettings
from tests.fakes.coordinator_settings import share_state_settings
from tests.fakes.machine_log import MemoryLog
from tests.fakes.world import World

ORDERS, PAYMENTS = bytes([1] * 16), bytes([2] * 16)
KEY = SharePartitionKey("g", ORDERS, 0)


class Topics:
    """`state_settings.TopicsView`: topics of two partitions."""

    def __init__(self) -> None:
        self.known = [ORDERS, PAYMENTS]
        self.not_here_yet: list[Uuid] = []

    def has_partition(self, topic_id: Uuid, partition: int) -> bool:
        return topic_id in self.known and 0 <= partition < 2

    def is_deleted(self, topic_id: Uuid) -> bool:
        return topic_id not in self.known and topic_id not in self.not_here_yet


class StateWorld(World):
    """One shard. `restart` loads it again from the rest of the log."""

    def __init__(
        self, settings: ShareStateSettings | None = None, *, is_instant: bool = True, memory: CoordinatorMemory | None = None
    ) -> None:
        self.settings = settings if settings is not None else share_state_settings(updates_per_snapshot=3)
        self.memory = memory
        self.topics = Topics()
        self.log = MemoryLog(is_instant=is_instant)
        self.pruned_to = 0
        self.start()

    def start(self) -> None:
        self.machine = self.new_machine()
        self.host = MachineHost(self.machine, self.log, self.clock, self.timers)
        host = self.host
        self.machine.begin(lambda decide: host.run(decide) if host.state is HostState.ACTIVE else None)
        self.host.load(self.log.reader(), self.pruned_to)
        self.timers.run_due()

    def new_machine(self) -> ShareStateMachine:
        return ShareStateMachine(self.settings, self.topics, self.prune, self.memory)

    def prune(self, end: int) -> None:
        assert end <= self.log.high_watermark, "what is not committed must not push anything out"
        self.pruned_to = max(self.pruned_to, end)
        self.log.entries = [entry for entry in self.log.entries if entry.offset >= self.pruned_to]

    def crash(self) -> None:
        """Simulates a crash: uncommitted records are lost."""
        self.host.close()
        old, self.log = self.log, MemoryLog(is_instant=self.log.is_instant)
        self.log.entries = [entry for entry in old.entries if entry.offset < old.high_watermark]
        self.log.end = self.log.high_watermark = old.high_watermark
        self.start()

    def ask(self, command: StateCommand) -> list[StateResult]:
        """Sends a command. Returns a list that gets the answer."""
        results: list[StateResult] = []
        self.host.run(lambda now_ms: self.machine.decide(now_ms, command, results.append))
        return results

    def answer(self, command: StateCommand) -> StateResult:
        [result] = self.ask(command)
        return result

    def replayed(self) -> ShareStateMachine:
        machine = self.new_machine()
        self.log.replay(machine)
        return machine


def hard_state(machine: ShareStateMachine) -> dict[Any, Any]:
    """Returns the hard state, to compare a running state machine with a replayed one."""
    return dict(machine.shard.partitions)
