"""Requests of members and operators, and answers of share coordinators, in any order: the state equals the replay of the log, each request
is answered once, and the group agrees with its share coordinators when all have answered."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState, StateWritten
from ottla.groups.machine import GroupMachine
from ottla.groups.share.group import ShareGroup
from tests.fakes.coordinator_settings import group_settings
from tests.groups.log_rules import LogRules
from tests.scenarios.share_groups_world import World

NAMES = st.sampled_from(["a", "b", "c"])
SETTINGS = group_settings(
    initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0, share_assignment_interval_ms=500, share_members_max=2
)


class ShareGroupsUnderChange(LogRules):
    """Three members of one share group, an operator, and share coordinators that fail and recover. A step is a command of the
    transcripts."""

    world: World

    def __init__(self) -> None:
        super().__init__(World(SETTINGS))

    @rule(name=NAMES, topics=st.sampled_from(["", "topics=t", "topics=t,u", "topics=u", "topics=w"]))
    def beat(self, name: str, topics: str) -> None:
        self.world.run(f"share {name} {topics}")

    @rule(name=NAMES, epoch=st.sampled_from([-1, 0, 1, 3]))
    def beat_with_epoch(self, name: str, epoch: int) -> None:
        self.world.run(f"share {name} epoch={epoch}")

    @rule(name=NAMES)
    def join_otherwise(self, name: str) -> None:
        self.world.run(f"beat {name}")
        self.world.run("commit - t-0=5")

    @rule(count=st.integers(1, 3))
    def grow_topic(self, count: int) -> None:
        if count >= self.world.topics.counts.get("u", 0):
            self.world.run(f"topic u {count}")

    @rule()
    def drop_topic(self) -> None:
        self.world.run("drop-topic u")

    @rule(offset=st.integers(0, 9))
    def alter(self, offset: int) -> None:
        self.world.run(f"share-alter t-0={offset} u-0={offset}")

    @rule(topic=st.sampled_from(["t", "u"]))
    def forget(self, topic: str) -> None:
        self.world.run(f"share-forget {topic}")

    @rule()
    def delete_group(self) -> None:
        self.world.run("delete-group g")

    @rule(what=st.sampled_from(["fine", "hold", "release", "fail=COORDINATOR_NOT_AVAILABLE"]))
    def change_share_coordinators(self, what: str) -> None:
        self.world.run(f"persister {what}")

    @rule(ms=st.sampled_from([600, 6_000, 31_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.world.run(f"advance {ms}")

    @invariant()
    def the_parts_of_a_group_agree(self) -> None:
        for group in self.world.machine.shard.groups.values():
            if not isinstance(group, ShareGroup):
                continue
            assert group.positions.keys() == group.facts.keys() and group.target.keys() <= group.facts.keys()
            assert group.target_epoch <= group.epoch and len(group.facts) <= 2
            topics = group.state_topics
            assert not topics.deleting.keys() & (topics.initializing.keys() | topics.initialized.keys())
            for topic_id, share in topics.initializing.items():
                ready = topics.initialized.get(topic_id)
                assert ready is None or not set(share.partitions) & set(ready.partitions)

    @invariant()
    def members_are_watched(self) -> None:
        """Timers are effects: while a decision waits for its commit, its timers are not set yet."""
        if not self.world.host.is_idle:
            return
        for group in self.world.machine.shard.groups.values():
            for member_id in group.facts if isinstance(group, ShareGroup) else ():
                assert self.world.machine.shard.sessions[group.group_id, member_id].timer_ms is not None
                assert f"alive/g/{member_id}" in self.world.host._scheduled

    def teardown(self) -> None:
        """When everything works again and time has passed, no request waits and nothing is unfinished."""
        world = self.world
        world.log.refuse_next = None
        for command in ("release", "persister fine", "persister release", "advance 31000", "advance 31000"):
            world.run(command)
        group = world.machine.shard.groups.get("g")
        assert not world.machine.shard.deferred
        if isinstance(group, ShareGroup):
            assert not group.state_topics.initializing and not group.state_topics.deleting
            for topic_id, share in group.state_topics.initialized.items():
                for partition in share.partitions:
                    assert any(key.topic_id == topic_id and key.partition == partition for key in world.persister.states)
        super().teardown()


TestShareGroupsUnderChange = ShareGroupsUnderChange.TestCase


def test_a_heartbeat_makes_no_timer_and_no_record() -> None:
    world = World()
    world.run("share a")
    timers = world.timers.pending()
    for _ in range(20):
        world.run("advance 50")
        assert world.run("share a") == ["a: epoch=3"]
    assert world.timers.pending() == timers


def test_a_machine_without_share_coordinators_assigns_nothing() -> None:
    world = World()
    world.host.machine.shard.persister = GroupMachine(world.settings, world.topics, world.random).shard.persister
    lines = world.run("share a")
    assert lines[0] == "a: epoch=2 has nothing"


def test_a_group_that_changes_its_kind_keeps_its_members_watched() -> None:
    """A timer of the former consumer group with this id must not remove the session of the share group's member."""
    world = World()
    world.run("beat a id=a")
    world.run("beat a id=a epoch=-1")
    world.run("delete-group g")
    world.run("share a")
    world.run("advance 44000")
    world.run("share a")
    world.run("advance 2000")
    assert world.run("state") == ["Stable epoch=3 target=3 a:3:t-0,1,2,3"]
    world.run("advance 46000")
    assert world.run("state")[0].startswith("Empty")


def test_states_of_a_former_group_are_deleted_first() -> None:
    """The state epoch of a former group of this name may be higher than the epochs of the new group."""
    world = World()
    key = SharePartitionKey("g", b"v".ljust(16, b"\0"), 0)
    world.persister.states[key] = ShareState(99, 0, 5, 0)
    lines = world.run("share a topics=v")
    assert lines[:4] == ["a: epoch=3 has v-0", "asked: initialize g v-0 epoch=2 start=-1", "asked: delete g v-0", lines[1]]
    assert world.persister.states[key].start_offset == -1


def test_a_group_of_many_partitions_begins_in_time() -> None:
    world = World()
    world.topics.counts["t"] = 20_000
    assert world.run("share a")[0].startswith("a: epoch=3 has t-0,1,2,")
    assert len(world.persister.states) == 20_000


def start_of(world: World, topic: str, partition: int) -> int:
    """Returns the start offset of a stored share state."""
    return next(
        state.start_offset
        for key, state in world.persister.states.items()
        if (key.topic_id, key.partition) == (world.topics.topic_id(topic), partition)
    )


def test_a_late_copy_of_an_alteration_does_not_undo_the_next() -> None:
    world = World()
    world.run("share-alter t-0=5")
    (key, first), *_ = world.persister.states.items()
    world.run("share-alter t-0=7")
    codes: list[ErrorCode] = []
    world.persister.initialize(key, first.state_epoch, 5, codes.append)
    assert codes == [ErrorCode.FENCED_STATE_EPOCH] and start_of(world, "t", 0) == 7


def test_a_late_beginning_does_not_undo_an_alteration() -> None:
    """An initialization was requested for members that have left. It arrives before the alteration is answered. It must not mistake the
    altered state for the state of an earlier group with this name, and delete it."""
    world, answers = World(), list[Callable[[], None]]()
    initialize = world.persister.initialize

    def answered_late(key: SharePartitionKey, state_epoch: int, start_offset: int, done: StateWritten) -> None:
        is_altered = start_offset >= 0
        initialize(key, state_epoch, start_offset, lambda code: answers.append(lambda: done(code)) if is_altered else done(code))

    with mock.patch.object(world.persister, "initialize", answered_late):
        world.run("persister hold")
        world.run("share a")
        world.run("share a epoch=-1")
        world.run("share-alter t-0=5")
        world.persister.reverse()
        world.run("persister release")
        answers.pop()()
    world.run("advance 31000")
    group = world.machine.shard.groups["g"]
    assert isinstance(group, ShareGroup) and not group.state_topics.initializing
    assert start_of(world, "t", 0) == 5 and start_of(world, "t", 1) == -1


def test_a_beginning_that_is_tried_again_does_not_undo_an_alteration() -> None:
    """The alteration is in flight when the initialization is due to be retried (I54)."""
    world = World()
    world.run("persister fail=COORDINATOR_NOT_AVAILABLE")
    world.run("share a")
    world.run("share a epoch=-1")
    world.run("persister fine")
    world.run("persister hold")
    world.run("share-alter t-0=5")
    world.run("advance 31000")
    assert "alter: NONE t-0 NONE" in world.run("persister release")
    assert start_of(world, "t", 0) == 5 and start_of(world, "t", 1) == -1


def test_a_new_coordinator_of_the_group_fences_an_alteration_under_way() -> None:
    """The new coordinator initializes the state with a higher epoch, so a late copy of the alteration cannot reset it while members
    read."""
    world = World()
    world.run("persister fail=COORDINATOR_NOT_AVAILABLE")
    assert "alter: NONE t-0 COORDINATOR_NOT_AVAILABLE" in world.run("share-alter t-0=5")
    world.run("persister fine")
    epoch = world.machine.shard.groups["g"].epoch  # type: ignore[union-attr]
    world.run("restart")
    ((key, state),) = world.persister.states.items()
    codes: list[ErrorCode] = []
    world.persister.initialize(key, epoch, 5, codes.append)
    assert codes == [ErrorCode.FENCED_STATE_EPOCH] and state.start_offset == -1 and start_of(world, "t", 0) == -1


def test_a_share_coordinator_is_asked_to_begin_once_at_a_time() -> None:
    """A request for another partition must not repeat the first initialization, which could reset a state that members read already."""
    world = World()
    world.run("topic t 1")
    world.run("persister hold")
    world.run("share a")
    world.run("topic t 2")
    calls = [line for line in world.run("share b") if line.startswith("asked: ")]
    assert len(calls) == 1 and calls[0].startswith("asked: initialize g t-1")


def test_each_beginning_has_an_epoch_of_its_own() -> None:
    """When the second initialization was executed, a late copy of the first is fenced."""
    world = World()
    world.run("persister fail=COORDINATOR_NOT_AVAILABLE")
    world.run("topic t 1")
    first = world.run("share a")
    world.run("persister fine")
    second = world.run("advance 31000")

    def epochs(lines: list[str]) -> list[int]:
        return [int(line.partition("epoch=")[2].split()[0]) for line in lines if line.startswith("asked: initialize")]

    assert max(epochs(first)) < min(epochs(second))


def test_a_join_is_answered_once_when_its_log_fails() -> None:
    """The log directory fails, which ends the coordinator, before the log refuses the records."""
    world = World()

    def failing(*_arguments: object) -> None:
        world.host.close()
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    with mock.patch.object(world.log, "append_records", failing):
        lines = world.run("share a")
    assert len([line for line in lines if line.startswith("a: ")]) == 1, lines


def test_nothing_stays_of_members_that_waited_for_partitions_in_vain() -> None:
    """Otherwise a group whose partitions never become ready, or that is deleted meanwhile, would collect a callback for each such
    member."""
    world = World()
    world.run("persister hold")
    for number in range(3):
        world.run(f"share m{number}")
    assert world.machine.shard.share_joiners
    answers = [line for line in world.run("advance 1100") if not line.startswith("log: ")]
    assert answers == [f"m{number}: epoch=4 has nothing" for number in range(3)]
    assert not world.machine.shard.share_joiners
