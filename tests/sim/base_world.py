"""The base classes of all simulated worlds: a seed, virtual time with events, and producers that copy records in transactions. A world
draws all random numbers from one `random.Random`, so its seed decides the whole run.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from ottla.machine.coordinator import reader_of
from ottla.machine.host import HostState, MachineHost
from tests.fakes.clock import ManualClock
from tests.fakes.timers import ManualTimers
from tests.sim.clients import OFFSETS, Producer, committed_offset
from tests.sim.history import History
from tests.sim.machine import PowerCut
from tests.sim.network import Call
from tests.sim.process import PATIENCE_MS, Process, Steps

LOOK_MS = 250
ANSWER_MS = 5_000


class Timeline(ABC):
    """The virtual time of one world: runs its events one after the other."""

    events_max = 60_000

    def __init__(self, seed: int, chaos_ms: int) -> None:
        self.seed = seed
        self.chaos_ms = chaos_ms
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.is_ending = self.is_over = False
        self.events = self.crashes = 0
        self.notes: list[str] = []
        """What is shown when the run fails."""

    @abstractmethod
    def run(self) -> None:
        """Runs the world to its end. Raises `AssertionError` if a verdict is bad."""

    def counts(self) -> dict[str, int]:
        """How often each kind of event has happened, by its name in the plural."""
        return {"crashes": self.crashes, "events": self.events}

    def later(self, low_ms: int, high_ms: int, function: Callable[[], object]) -> None:
        self.timers.call_later(self.chance.randint(low_ms, high_ms), function)

    def run_until(self, end_ms: int) -> None:
        while (deadline_ms := self.timers.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            try:
                self._advance()
            except PowerCut as cut:
                self._power_cut(cut.owner)
            self.events += 1
            assert self.events < self.events_max, "the world does not come to rest"
            self._check()
        self.clock.advance(max(0, end_ms - self.clock.monotonic_ms()))

    def run_for(self, ms: int) -> None:
        self.run_until(self.clock.monotonic_ms() + ms)

    def wait(self, is_done: Callable[[], bool], limit_ms: int, why: str | Callable[[], str]) -> None:
        """Runs events until a condition is true. Fails with `why` if that takes too long."""
        end_ms = self.clock.monotonic_ms() + limit_ms
        while not is_done():
            assert self.clock.monotonic_ms() < end_ms, why if isinstance(why, str) else why()
            self.run_for(LOOK_MS)

    def _advance(self) -> None:
        """Runs the next due function, or all functions of that millisecond."""
        self.timers.advance_to_next()

    @abstractmethod
    def _power_cut(self, owner: Any) -> None:
        """Called after the power of a broker has failed in the middle of an event."""

    def _check(self) -> None:
        """Checks the invariants that must hold after every event."""
        return


class ProducerWorld(Timeline):
    """A world with a producer for each group. Producers are disturbed by faults, and replaced when they end.

    `groups` has the transactional ids of each group's workers, and whether they speak transactions v2. If a group has two ids, the next
    worker uses the other id. It then does not end the open transaction of the last worker, and only the wait for stable offsets prevents it
    from reading too far (KIP-447).
    """

    groups: Mapping[str, tuple[tuple[str, ...], bool]] = {}
    sleep_ms = (100, 6_000)
    disturbed_ms = (300, 1_500)

    def __init__(self, seed: int, chaos_ms: int) -> None:
        super().__init__(seed, chaos_ms)
        self.history = History()
        self._processes: dict[str, Process] = {}
        self._turns: dict[str, int] = {}

    def counts(self) -> dict[str, int]:
        return {"transactions": len(self.history.transactions), **super().counts()}

    @abstractmethod
    def send(self, call: Call, answered: Callable[[Any], None]) -> None:
        """Sends a client's request."""

    def make_producer(self, transactional_id: str, group_id: str, is_v2: bool) -> Producer:
        return Producer(self, transactional_id, group_id, is_v2)

    def start_process(self, process: Process) -> None:
        process.start()

    def _start_producer(self, name: str) -> None:
        if self.is_ending:
            return
        ids, is_v2 = self.groups[name]
        self._turns[name] = turn = self._turns.get(name, -1) + 1
        process = self._processes[name] = Process(
            self,
            self.make_producer(ids[turn % len(ids)], name, is_v2).run(),
            lambda _value: self.later(1, 300, lambda: self._replace(process, name)),
        )
        self.start_process(process)

    def _replace(self, process: Process, name: str) -> None:
        """Starts an ended process again, unless it was fenced by its successor."""
        if self._processes[name] is process:
            self._start_producer(name)

    def _disturb(self) -> None:
        """Makes a process die, sleep, or get a second process with the same transactional id. A process whose successor has another id can
        only die.
        """
        if self.is_ending:
            return
        name = self.chance.choice(sorted(self._processes))
        process = self._processes[name]
        kind = self.chance.choice(["die", "sleep", "twin"]) if len(self.groups[name][0]) == 1 else "die"
        if kind == "sleep":
            process.sleep(self.chance.randint(*self.sleep_ms))
        elif kind == "twin":
            self.later(1, 400, lambda: self._start_producer(name))
        elif not process.is_dead:  # the successor of a process that has ended by itself is already planned
            process.die()
            self.later(1, 400, lambda: self._start_producer(name))
        self.later(*self.disturbed_ms, self._disturb)

    def _end_clients(self) -> None:
        """Ends some clients permanently; timeouts must end their open transactions."""
        for name in sorted(self._processes):
            if self.chance.random() < 0.5:
                self._processes[name].die()

    def ask(self, steps: Steps, what: str) -> Any:
        """Sends a request outside of the simulated clients, and returns the answer."""
        found: list[Any] = []
        Process(self, steps, found.append).start()
        self.wait(lambda: bool(found), ANSWER_MS, f"{what} has no answer")
        return found[0]

    def committed(self, group_id: str) -> int:
        return int(self.ask(committed_offset(persistent, group_id), f"OffsetFetch of {group_id}"))


def persistent(handler: Any, version: int, body: Callable[[], Any], code_of: Callable[[Any], int]) -> Steps:
    """Repeats a request to the group coordinator until it is answered without an error."""
    while True:
        answer = yield Call(handler, version, body, OFFSETS, PATIENCE_MS)
        if answer is not None and not code_of(answer):
            return answer
        yield 20


def check_replay(host: MachineHost, partition: Any, fresh: Any, state_of: Callable[[Any], Any], start: int = 0) -> None:
    """I36: checks that the state of a coordinator equals the state of a new one that has loaded the same log."""
    if host.state is not HostState.ACTIVE:
        return
    reader, offset = reader_of(partition.log, 1 << 20), start
    while (piece := reader.read_piece(offset)) is not None:
        piece.apply_to(fresh)
        offset = piece.end
    assert state_of(fresh) == state_of(host.machine), f"live state is not the replay of {partition.topic_partition} (I36)"
