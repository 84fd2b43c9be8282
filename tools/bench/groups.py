"""Measures the coordinator's cost of a change in a large consumer group (KIP-848): CPU time of the heartbeat that makes a new target
assignment.

usage: python -m tools.bench.groups [--members 1000] [--partitions 5000] [--rounds 7]

`measure` returns the median over joins: one more member joins a stable group, and the time is taken from its first heartbeat until its
records and those of the new target assignment are applied. A broker computes the target in several iterations of its event loop; here they
run one after another. `measure` also measures the other kinds of change, and a heartbeat without a change. The log is a list, because the
load `produce` measures appends.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.base.config import BrokerConfig
from ottla.base.uuids import Uuid
from ottla.groups.answers import Beat
from ottla.groups.commands import Caller, ConsumerHeartbeat
from ottla.groups.consumer.heartbeat import heartbeat
from ottla.groups.machine import GroupMachine
from ottla.groups.settings import GroupCoordinatorSettings
from ottla.machine.contract import Call, Decision, Respond
from ottla.server.coordinator_views import group_settings

TOPICS = 10
BEATS = 1000
ROUNDS_TO_REST_MAX = 10


class Topics:
    """A `groups.settings.TopicsView` of topics `0`, `1`, ... that all have the same number of partitions."""

    def __init__(self, topics: int, partitions: int) -> None:
        self._counts = {f"topic-{number}": partitions // topics for number in range(topics)}

    def topic_names(self) -> Iterable[str]:
        return list(self._counts)

    def topic_id(self, name: str) -> Uuid | None:
        return name.encode().ljust(16, b"\0") if name in self._counts else None

    def topic_name(self, topic_id: Uuid) -> str | None:
        return topic_id.rstrip(b"\0").decode()

    def partition_count(self, name: str) -> int:
        return self._counts.get(name, 0)


class Numbers:
    """The part of `ports.Random` that a coordinator uses. Its ids are consecutive numbers."""

    def __init__(self) -> None:
        self._last = 0

    def token_bytes(self, count: int) -> bytes:
        self._last += 1
        return self._last.to_bytes(count, "big")


def _settings(**changes: Any) -> GroupCoordinatorSettings:
    return replace(group_settings(BrokerConfig()), **changes)


class Coordinator:
    """The coordinator's state machine with a list as log. Its members revoke partitions immediately."""

    def __init__(self, partitions: int) -> None:
        self.topics = Topics(TOPICS, partitions)
        self.machine: Any = GroupMachine(_settings(consumer_assignment_interval_ms=0), self.topics, Numbers())  # type: ignore[arg-type]
        self.owned: dict[str, dict[Uuid, frozenset[int]]] = {}
        self.epochs: dict[str, int] = {}
        self.machine.shard.run = self.run
        self.logged = 0

    def run(self, decide: Callable[[int], Decision]) -> None:
        self.carry_out(lambda: decide(0))

    def carry_out(self, decide: Callable[[], Decision]) -> list[Beat]:
        """Carries out a decision and returns the responses. Work that a broker would do in later iterations of its event loop is done
        immediately.
        """
        decision, machine = decide(), self.machine
        for record in decision.records:
            machine.apply(self.logged, record, None)
            self.logged += 1
        for effect in decision.effects:
            if isinstance(effect, Call):
                effect.function()
        return [effect.response for effect in decision.effects if isinstance(effect, Respond)]

    def request(self, member_id: str, topics: int = TOPICS) -> ConsumerHeartbeat:
        epoch = self.epochs.get(member_id, 0)
        return ConsumerHeartbeat(
            group_id="large",
            caller=Caller(member_id, "/127.0.0.1"),
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            topics=list(self.topics.topic_names())[:topics] if epoch == 0 else None,
            owned=self.owned.get(member_id, {}),
        )

    def beat(self, command: ConsumerHeartbeat) -> None:
        """Runs one heartbeat. The member takes the epoch and the partitions from the response."""
        (answer,) = self.carry_out(lambda: heartbeat(self.machine.shard, command, print, 0))
        if answer.error:
            raise AssertionError(f"{command.member_id}: {answer.message}")
        if answer.member_epoch < 0:
            self.epochs.pop(command.member_id), self.owned.pop(command.member_id, None)
            return
        self.epochs[command.member_id] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[command.member_id] = {topic: frozenset(partitions) for topic, partitions in answer.assignment.items()}

    def leave(self, member_id: str) -> None:
        self.beat(ConsumerHeartbeat(group_id="large", caller=Caller(member_id, "/127.0.0.1"), member_id=member_id, member_epoch=-1))

    def settle(self) -> None:
        """Sends heartbeats of all members until no heartbeat appends a record any more."""
        for _ in range(ROUNDS_TO_REST_MAX):
            before = self.logged
            for member_id in list(self.epochs):
                self.beat(self.request(member_id))
            if self.logged == before:
                return
        raise AssertionError("the group does not settle")


class Cost(NamedTuple):
    label: str
    milliseconds: float


def timed_ms(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / 1e6


def large_group(members: int, partitions: int) -> Coordinator:
    coordinator = Coordinator(partitions)
    for number in range(members):
        coordinator.beat(coordinator.request(f"member-{number:04d}"))
    coordinator.settle()
    return coordinator


def _beat_often(coordinator: Coordinator) -> None:
    request = coordinator.request("member-0000")
    for _ in range(BEATS):
        coordinator.beat(request)


def measure(members: int = 1000, partitions: int = 5000, rounds: int = 7) -> list[Cost]:
    """Returns medians in milliseconds of CPU time, for a group of `members` over `partitions`."""
    coordinator = large_group(members, partitions)
    join: list[float] = []
    leave: list[float] = []
    settle: list[float] = []
    rest: list[float] = []
    for number in range(rounds):
        newcomer = coordinator.request(f"newcomer-{number}")
        join.append(timed_ms(lambda request=newcomer: coordinator.beat(request)))  # type: ignore[misc]
        settle.append(timed_ms(coordinator.settle))
        rest.append(timed_ms(lambda: _beat_often(coordinator)) / BEATS)
        coordinator.leave(f"newcomer-{number}")
        after = coordinator.request("member-0001")
        leave.append(timed_ms(lambda request=after: coordinator.beat(request)))  # type: ignore[misc]
        coordinator.settle()
    return [*_usual(join, leave, settle, rest), *_unusual(coordinator)]


def _usual(join: list[float], leave: list[float], settle: list[float], rest: list[float]) -> list[Cost]:
    return [
        Cost("a member joins: new target assignment", statistics.median(join)),
        Cost("a member has left: new target assignment", statistics.median(leave)),
        Cost("all members move to the new target", statistics.median(settle)),
        Cost("a heartbeat that changes nothing", statistics.median(rest)),
    ]


def _unusual(coordinator: Coordinator) -> list[Cost]:
    """Measures expensive and rare changes, each once, on a stable group."""
    other = coordinator.request("newcomer-other", TOPICS // 2)
    unequal = timed_ms(lambda: coordinator.beat(other))
    coordinator.leave("newcomer-other")
    coordinator.settle()
    coordinator.machine.configure(_settings(consumer_assignors=("range", "uniform"), consumer_assignment_interval_ms=0))
    last, logged = coordinator.request("newcomer-last"), coordinator.logged
    by_range = timed_ms(lambda: coordinator.beat(last))
    moved, members = coordinator.logged - logged, len(coordinator.epochs)
    assert moved >= members, f"only {moved} records of {members} members whose shares have all moved"
    return [Cost("a member joins that reads other topics", unequal), Cost("the assignor changes: every share moves", by_range)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for cost in measure(options.members, options.partitions, options.rounds):
        print(f"{cost.label:45} {cost.milliseconds:10.3f} ms")


if __name__ == "__main__":
    main()
