"""Every move of the tables of states occurs in a transcript, and no other move does.

All transcripts run once more, and their moves are recorded. A transactional id moves where a move is decided (`metadata.move`) and to
Dead by a tombstone; a classic group moves by `move_to` and to Dead by its tombstone. The state of a consumer or share group follows from
its epochs, so it is compared before and after each command; a group that is gone, or has become one of the other kind, was Dead in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any
from unittest import mock

import pytest

from ottla.groups import states as group_states
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.machine import GroupMachine
from ottla.groups.states import ALLOWED as CLASSIC_ALLOWED
from ottla.groups.states import CONSUMER_ALLOWED, SHARE_ALLOWED, GroupState, GroupType
from ottla.machine.host import MachineHost
from ottla.transactions import metadata
from ottla.transactions.shard import Shard
from ottla.transactions.states import ALLOWED, DEAD, PREPARE_EPOCH_FENCE
from tests.scenarios.test_transcripts import TRANSCRIPTS, parse, world_of

Move = tuple[Enum, Enum]
NEVER_REACHED = {PREPARE_EPOCH_FENCE}
"""Stands in the table because Kafka's tools know its name (`transactions/states.py`)."""


class Watcher:
    """The moves of each kind: "transaction", or the type of a group."""

    def __init__(self) -> None:
        self.seen: dict[object, set[Move]] = {"transaction": set(), **{kind: set() for kind in GroupType}}
        self._run, self._move_to, self._move = MachineHost.run, ClassicGroup.move_to, metadata.move
        self._apply, self._apply_group = Shard.apply, GroupMachine._apply_group

    def run(self, host: MachineHost, decide: Any) -> None:
        before = derived_states(host.machine)
        self._run(host, decide)
        after = derived_states(host.machine)
        for kind, group_id in before.keys() | after.keys():
            place = kind, group_id
            old, new = before.get(place, group_states.EMPTY), after.get(place, group_states.DEAD)
            if old is not new:
                self.seen[kind].add((old, new))

    def move_to(self, group: ClassicGroup, state: GroupState, now_ms: int) -> None:
        self.seen[GroupType.CLASSIC].add((group.state, state))
        self._move_to(group, state, now_ms)

    def apply_group(self, machine: GroupMachine, offset: int, key: Any, value: Any, transactional: Any) -> None:
        group = machine.shard.groups.get(key.group)
        if value is None and machine.shard.is_live and type(group) is ClassicGroup:
            self.seen[GroupType.CLASSIC].add((group.state, group_states.DEAD))
        self._apply_group(machine, offset, key, value, transactional)

    def move(self, before: metadata.TransactionMetadata, state: Any, **changes: Any) -> metadata.TransactionMetadata:
        self.seen["transaction"].add((before.state, state))
        return self._move(before, state, **changes)

    def apply(self, shard: Shard, record: Any) -> None:
        before = dict(shard.transactions)
        self._apply(shard, record)
        self.seen["transaction"].update((before[name].state, DEAD) for name in before.keys() - shard.transactions.keys())

    @contextmanager
    def watching(self) -> Iterator[None]:
        with (
            mock.patch.object(MachineHost, "run", as_method(self.run)),
            mock.patch.object(ClassicGroup, "move_to", as_method(self.move_to)),
            mock.patch.object(GroupMachine, "_apply_group", as_method(self.apply_group)),
            mock.patch.object(metadata, "move", self.move),
            mock.patch.object(Shard, "apply", as_method(self.apply)),
        ):
            yield


def as_method(function: Callable[..., None]) -> Callable[..., None]:
    """A bound method is not bound again when it stands in another class, a function is."""

    def method(*arguments: Any) -> None:
        function(*arguments)

    return method


def derived_states(machine: Any) -> dict[tuple[GroupType, str], GroupState]:
    if not isinstance(machine, GroupMachine):
        return {}
    groups = machine.shard.groups.values()
    return {(group.type, group.group_id): group.state for group in groups if not isinstance(group, ClassicGroup)}


@pytest.fixture(scope="module")
def seen() -> dict[object, set[Move]]:
    watcher = Watcher()
    for path in TRANSCRIPTS:
        with watcher.watching():
            world = world_of(path.parent.name)
            for block in parse(path.read_text(encoding="utf-8")):
                if block.command:
                    world.run(block.command)
    return watcher.seen


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("transaction", ALLOWED),
        (GroupType.CLASSIC, CLASSIC_ALLOWED),
        (GroupType.CONSUMER, CONSUMER_ALLOWED),
        (GroupType.SHARE, SHARE_ALLOWED),
    ],
    ids=["transaction", "classic", "consumer", "share"],
)
def test_every_move_of_the_table_is_seen(seen: dict[object, set[Move]], kind: object, table: dict[Enum, frozenset[Enum]]) -> None:
    allowed = {(state, following) for state in table for following in table[state] if not {state, following} & NEVER_REACHED}
    assert words(allowed - seen[kind]) == [], "never seen"
    assert words(seen[kind] - allowed) == [], "not in the table"


def words(moves: Iterable[Move]) -> list[str]:
    return sorted(f"{old.value} -> {new.value}" for old, new in moves)
