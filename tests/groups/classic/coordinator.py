"""A group coordinator without a host: the test applies or refuses each decision, and advances the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.groups import records
from ottla.groups.answers import Joined, Synced
from ottla.groups.classic import join, leave, sync
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.member import ClassicMember
from ottla.groups.commands import Caller, Heartbeat, Join, Leave, MemberName, Protocols, Sync
from ottla.groups.machine import GroupMachine
from ottla.machine.contract import Cancel, Decision, LogRecord, Respond, Schedule
from ottla.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from tests.fakes.coordinator_settings import group_settings
from tests.fakes.randomness import SeededRandom
from tests.scenarios.groups_text import FixedTopics

RANGE: Protocols = (("range", b"r"),)
BOTH: Protocols = (("range", b"r"), ("roundrobin", b"rr"))


def member(
    member_id: str, *, instance_id: str | None = None, protocols: Protocols = RANGE, rebalance_timeout_ms: int = 60_000
) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id="client",
        client_host="/host",
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=10_000,
        protocols=protocols,
    )


def ignore(_answer: Any) -> None:
    """A reply that the test ignores."""


class Coordinator:
    """One shard. `answers` has the answers in order, each with the name that the test gave to the request."""

    def __init__(self, **settings: Any) -> None:
        self.machine = GroupMachine(group_settings(**{"initial_rebalance_delay_ms": 0, **settings}), FixedTopics({"t": 4}), SeededRandom(1))
        self.machine.shard.is_live = True
        self.shard = self.machine.shard
        self.now_ms = 1_000_000
        self.answers: list[tuple[str, Any]] = []
        self.records: list[LogRecord] = []
        self.timers: dict[str, tuple[int, Callable[[int], Decision]]] = {}

    @property
    def group(self) -> ClassicGroup:
        return self.shard.classic_group("g")

    # Requests

    def join(
        self, name: str, member_id: str = "", *, instance_id: str | None = None, protocols: Protocols = RANGE,
        refused: ErrorCode | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """Sends a JoinGroup of a client that need not get an id first, unless `needs_member_id` is given."""
        known = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", "needs_member_id": False}
        caller = Caller("client", "/host")
        command = Join(
            **{
                "group_id": "g",
                "caller": caller,
                "member_id": member_id,
                "instance_id": instance_id,
                "protocols": protocols,
                **known,
                **fields,
            }
        )
        self.take(join.join_group(self.shard, command, self._reply(name), self.now_ms), refused)

    def sync(
        self, name: str, member_id: str, assignments: dict[str, bytes] | None = None, *, refused: ErrorCode | None = None, **fields: Any
    ) -> None:
        known = {"group_id": "g", "member_id": member_id, "assignments": assignments or {}}
        command = Sync(**{**known, "generation": fields.get("generation") or self.group.generation, **fields})
        self.take(sync.sync_group(self.shard, command, self._reply(name), self.now_ms), refused)

    def beat(self, member_id: str, *, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        wanted = self.group.generation if generation is None else generation
        self.take(sync.heartbeat(self.shard, Heartbeat("g", member_id, instance_id, wanted), self._reply("beat"), self.now_ms))
        code: ErrorCode = self.answers.pop()[1]
        return code

    def leave(self, *names: MemberName, group_id: str = "g") -> Any:
        self.take(leave.leave_group(self.shard, Leave(group_id=group_id, members=names), self._reply("leave"), self.now_ms))
        return self.answers.pop()[1]

    def _reply(self, name: str) -> Callable[[Any], None]:
        return lambda answer: self.answers.append((name, answer))

    # Decisions

    def take(self, decision: Decision, refused: ErrorCode | None = None) -> None:
        """Logs and applies the records of a decision and releases its effects, or refuses the records."""
        if refused is None:
            for record in [*decision.records, *(record for part in decision.parts for record in part.records)]:
                self.machine.apply(len(self.records), record, None)
                self.records.append(record)
        for effect in decision.effects if refused is None else decision.refused(refused):
            if isinstance(effect, Respond):
                effect.reply(effect.response)
            elif isinstance(effect, Schedule):
                self.timers[effect.key] = (self.now_ms + effect.delay_ms, effect.decide)
            elif isinstance(effect, Cancel):
                self.timers.pop(effect.key, None)

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while due := [(at, key) for key, (at, _) in self.timers.items() if at <= end_ms]:
            at, key = min(due)
            _, decide = self.timers.pop(key)
            self.now_ms = max(self.now_ms, at)
            self.take(decide(self.now_ms))
        self.now_ms = end_ms

    # What tests look at

    def answered(self) -> list[tuple[str, Any]]:
        """Returns the answers since the last call."""
        answers, self.answers = self.answers, []
        return answers

    def joined(self, name: str) -> Joined:
        """Returns the only answer since the last call, which must be to the JoinGroup of this name."""
        [(found, answer)] = self.answered()
        assert found == name and isinstance(answer, Joined)
        return answer

    def synced(self, name: str) -> Synced:
        [(found, answer)] = self.answered()
        assert found == name and isinstance(answer, Synced)
        return answer

    def codes(self) -> list[tuple[str, ErrorCode]]:
        return [(name, answer.error) for name, answer in self.answered()]

    def group_records(self) -> list[GroupMetadataValue]:
        found = []
        for record in self.records:
            key = records.read_key(record.key)
            if isinstance(key, GroupMetadataKey) and record.value is not None:
                value = records.read_value(key, record.value)
                assert isinstance(value, GroupMetadataValue)
                found.append(value)
        return found

    # Groups at rest

    def stable(self, *names: str, **fields: Any) -> list[str]:
        """Makes a stable group of members with these names. Returns their ids; the first is the leader."""
        ids = [self.add(names[0], **fields)]
        for name in names[1:]:
            ids = self._with_another(name, ids, **fields)
        self.sync_all(ids)
        return ids

    def add(self, name: str, **fields: Any) -> str:
        self.join(name, **fields)
        return self.joined(name).member_id

    def _with_another(self, name: str, ids: list[str], **fields: Any) -> list[str]:
        """Lets another member join, and the earlier members join again."""
        self.join(name, **fields)
        for member_id in ids:
            self.join(member_id, member_id, **{**fields, "instance_id": self.group.members[member_id].instance_id})
        answers = dict(self.answered())
        return [*ids, answers[name].member_id]

    def sync_all(self, ids: list[str]) -> None:
        """Sends SyncGroup for all members. Each member's assignment is its own id."""
        for member_id in reversed(ids):
            assignments = {one: one.encode() for one in ids} if member_id == self.group.leader_id else None
            self.sync(member_id, member_id, assignments, instance_id=self.group.members[member_id].instance_id)
        assert {answer.error for _, answer in self.answered()} == {ErrorCode.NONE}
