"""Requests of clients in any order: the state equals the replay of the log (P9, I36), and each waiting request is answered once."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from ottla.base.errors import ErrorCode
from ottla.groups.admin import delete_group
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.machine import GroupMachine
from ottla.groups.states import COMPLETING_REBALANCE, EMPTY, STABLE
from ottla.machine.contract import Decision, LogRecord, Respond
from tests.fakes.coordinator_settings import group_settings
from tests.groups.hard_state import hard_state
from tests.groups.log_rules import LogRules
from tests.scenarios.groups_world import World

NAMES = st.sampled_from(["a", "b", "c"])
STATIC = st.sampled_from(["", "static=i1", "static=i2"])
PARTITIONS = st.sampled_from(["t-0", "t-1", "u-0"])
SETTINGS = group_settings(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0, offsets_retention_ms=1_200_000)


class GroupsUnderChange(LogRules):
    """Three clients and two producers of one group. A step is one command of the transcripts."""

    def __init__(self) -> None:
        super().__init__(World(SETTINGS))
        self.generations: list[int] = []

    @rule(name=NAMES, static=STATIC, version=st.sampled_from([3, 9]), protocols=st.sampled_from(["range", "range,roundrobin"]))
    def join(self, name: str, static: str, version: int, protocols: str) -> None:
        self.world.run(f"join {name} {static} version={version} protocols={protocols}")

    @rule(name=NAMES, static=STATIC)
    def join_without_id(self, name: str, static: str) -> None:
        self.world.run(f"join {name} {static} id=none")

    @rule(name=NAMES)
    def sync(self, name: str) -> None:
        self.world.run(f"sync {name} assign=a:@t-0+1,b:@t-2,c:@t-3")

    @rule(name=NAMES, share=st.sampled_from(["x", "@t-0", "@t-1"]))
    def sync_oddly(self, name: str, share: str) -> None:
        """Sends an assignment that no assignor of consumers makes: other bytes, or one partition for two members."""
        self.world.run(f"sync {name} assign=a:{share},b:@t-0")

    @rule(name=NAMES)
    def heartbeat(self, name: str) -> None:
        self.world.run(f"heartbeat {name}")

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        self.world.run(f"leave {name}")

    @rule(name=st.sampled_from(["a", "b", "x", "y"]), topics=st.sampled_from(["", "topics=t", "topics=t,u"]), owned=st.booleans())
    def beat(self, name: str, topics: str, owned: bool) -> None:
        self.world.run(f"beat {name} {topics} {'owned=' if owned else ''}")

    @rule(name=st.sampled_from(["x", "y"]), epoch=st.sampled_from([0, -1, -2]), static=st.sampled_from(["", "static=i1", "static=i3"]))
    def beat_with_epoch(self, name: str, epoch: int, static: str) -> None:
        self.world.run(f"beat {name} epoch={epoch} {static}")

    @rule(regex=st.sampled_from(["t|u", "u", ""]))
    def subscribe_by_regex(self, regex: str) -> None:
        self.world.run(f"beat y topics= regex={regex}")

    @rule(count=st.integers(1, 4))
    def change_topic(self, count: int) -> None:
        self.world.run(f"topic u {count}")

    @rule(ms=st.sampled_from([0, 1_000]))
    def set_assignment_interval(self, ms: int) -> None:
        self.world.run(f"set consumer_assignment_interval_ms={ms}")

    @rule(name=st.sampled_from(["a", "b", "-"]), partition=PARTITIONS, offset=st.integers(0, 9))
    def commit(self, name: str, partition: str, offset: int) -> None:
        self.world.run(f"commit {name} {partition}={offset}")

    @rule(producer=st.sampled_from([7, 8]), partition=PARTITIONS, offset=st.integers(10, 19))
    def commit_in_transaction(self, producer: int, partition: str, offset: int) -> None:
        self.world.run(f"txn-commit {producer} {partition}={offset}")

    @rule(producer=st.sampled_from([7, 8]), end=st.sampled_from(["commit", "abort"]))
    def end_transaction(self, producer: int, end: str) -> None:
        self.world.run(f"marker {producer} {end}")

    @rule(partition=PARTITIONS)
    def delete_offset(self, partition: str) -> None:
        self.world.run(f"delete-offset {partition}")

    @rule()
    def delete_group(self) -> None:
        self.world.run("delete-group g")

    @rule()
    def drop_topic(self) -> None:
        self.world.run("drop-topic u")

    @rule(ms=st.sampled_from([1_000, 9_000, 30_000, 700_000, 1_300_000]))
    def wait(self, ms: int) -> None:
        self.world.run(f"advance {ms}")

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        """I34: a partition that a member has, or is revoking, belongs to no other member."""
        for group in self.world.machine.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                held = [
                    (topic_id, partition)
                    for position in group.positions.values()
                    for assigned in (position.assigned, position.revoking)
                    for topic_id, partitions in assigned.items()
                    for partition in partitions
                ]
                assert len(held) == len(set(held)) == len(group.owners)
                assert group.positions.keys() <= group.facts.keys()
                assert group.target.keys() <= group.facts.keys()
                assert group.target_epoch <= group.epoch

    @invariant()
    def the_parts_of_a_group_agree(self) -> None:
        for group in self.world.machine.shard.groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            assert (group.leader_id in group.members) == bool(group.members)
            assert group.joining == sum(member.join_reply is not None for member in group.members.values())
            assert group.state is not EMPTY or not group.members
            assert all(group.members[member_id].instance_id == instance for instance, member_id in group.static_members.items())
            for name, votes in group.votes.items():
                assert votes == sum(name in dict(member.protocols) for member in group.members.values())
            if group.state in (COMPLETING_REBALANCE, STABLE):
                assert group.protocol_name is not None
                assert all(group.protocol_name in dict(member.protocols) or member.is_static for member in group.members.values())
            if group.state is STABLE and group.stored is not None:
                logged = {member.member_id: bytes(member.assignment) for member in group.stored.members}
                assert all(logged.get(member.member_id, b"") == bytes(member.assignment) for member in group.members.values())

    @invariant()
    def members_are_watched(self) -> None:
        """A silent member is removed: each member has a waiting request or a timer. Timers are effects: while a decision waits for its
        commit, its timers are not set yet.
        """
        if not self.world.host.is_idle:
            return
        scheduled = self.world.host._scheduled
        shard = self.world.machine.shard
        for group in shard.groups.values():
            if isinstance(group, ClassicGroup):
                for member_id, member in group.members.items():
                    assert member.is_waiting or member.timer_ms is not None
                    assert member.timer_ms is None or f"session/g/{member_id}" in scheduled
            else:
                for member_id in group.facts:
                    assert shard.sessions[group.group_id, member_id].timer_ms is not None
                    assert f"alive/g/{member_id}" in scheduled


TestGroupsUnderChange = GroupsUnderChange.TestCase


def folded(machine: GroupMachine) -> dict[str, Any]:
    return {**hard_state(machine), "names": sorted(machine.shard.groups)}


def test_records_that_cannot_be_read_change_nothing() -> None:
    """C3: poisoned records are skipped."""
    world = World()
    world.run("commit - t-0=5")
    before = folded(world.machine)
    for key, value in [
        (b"", b""),
        (b"\0", None),
        (b"\0\x01garbage", b"\0\x01"),
        (b"\0\x63", b"\0\0"),
        (b"\0\x02\0\x01g", b"\0\x63"),
        (b"\0\x02\0\x01g", b"\0\x03\0"),
        (b"\0\x02\0\x01g", b""),
        (b"\xff\xff", b"x"),
    ]:
        world.machine.apply(99, LogRecord(key, value), None)
    assert folded(world.machine) == before


def test_a_heartbeat_makes_no_timer_and_no_record() -> None:
    world = World()
    world.run("join a version=3")
    world.run("sync a assign=a:x")
    timers = world.timers.pending()
    for _ in range(100):
        world.run("advance 50")
        assert world.run("heartbeat a") == ["a: NONE"]
    assert world.timers.pending() == timers


def test_a_rebalance_of_many_members_answers_each_once() -> None:
    world = World()
    names = [f"m{number}" for number in range(100)]
    for name in names:
        world.run(f"join {name} version=3")
    joined = [line.split(":")[0] for line in world.run("join m0") if "joined generation=2" in line]
    assert sorted(joined) == sorted(names)


def test_a_decision_says_what_to_answer_when_the_log_refuses() -> None:
    world = World()
    decision: Decision = delete_group(world.shard, "unknown", print)
    effects = decision.refused(ErrorCode.NOT_COORDINATOR)
    assert [effect.response for effect in effects if isinstance(effect, Respond)] == [ErrorCode.NOT_COORDINATOR]


def test_two_deletions_of_one_big_group_are_both_answered() -> None:
    """Each deletion runs in its own steps. Formerly the second deletion replaced the first, which was never answered."""
    world = World()
    world.topics.counts["t"] = 3500
    for start in range(0, 3500, 500):
        world.run("commit - " + " ".join(f"t-{partition}={partition}" for partition in range(start, start + 500)))
    codes: list[ErrorCode] = []
    for _ in range(2):
        world.host.run(lambda _now: delete_group(world.shard, "g", codes.append))
    assert codes == []
    world.timers.run_due()
    assert codes == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert not world.machine.shard.groups


def test_a_big_group_is_deleted_in_steps() -> None:
    world = World()
    for start in range(0, 2500, 500):
        world.topics.counts["t"] = 2500
        world.run("commit - " + " ".join(f"t-{partition}={partition}" for partition in range(start, start + 500)))
    lines = world.run("delete-group g")
    assert lines[0] == "delete g: NONE"
    assert len(lines) == 2502
    assert world.run("list") == []
