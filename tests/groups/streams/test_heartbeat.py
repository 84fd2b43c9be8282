"""Simulated members of streams groups and the coordinator: each task is active once, every group becomes stable, and wrong requests are
refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.base.identifiers import ID_CHARACTERS_MAX
from ottla.groups.answers import StreamsBeat
from ottla.groups.commands import Caller, CommitOffsets, OffsetToCommit, StreamsHeartbeat
from ottla.groups.offsets.commit import commit_offsets
from ottla.groups.states import ASSIGNING, EMPTY, NOT_READY, RECONCILING, STABLE, STREAMS_ALLOWED
from ottla.groups.streams.group import ACTIVE, STANDBY, StreamsGroup, TaskKey
from ottla.groups.streams.heartbeat import ASSIGNMENT_DELAYED, SHUTDOWN_APPLICATION, STALE_TOPOLOGY, streams_heartbeat
from ottla.groups.streams.topology import MISSING_INTERNAL_TOPICS, MISSING_SOURCE_TOPICS, InternalTopic, Subtopology, Topology
from tests.fakes.coordinator_settings import group_settings
from tests.scenarios.groups_world import World

ROUNDS_MAX = 30  # heartbeats of each member until a group of this size must be stable
STATELESS = Topology(0, (Subtopology("0", ("t",)), Subtopology("1", ("u",))))
WORDS = Topology(
    0,
    (
        Subtopology("0", ("t",), repartition_sinks=("words",)),
        Subtopology("1", repartition_sources=(InternalTopic("words"),), changelogs=(InternalTopic("totals"),)),
    ),
)


def streams_world(**settings: Any) -> World:
    fast = {"streams_initial_rebalance_delay_ms": 0, "streams_assignment_interval_ms": 0}
    return World(group_settings(**{**fast, **settings}))


def ready_world(**settings: Any) -> World:
    """A world with the internal topics of `WORDS`."""
    world = streams_world(**settings)
    world.topics.counts.update(words=4, totals=4)
    return world


class Client:
    """A member that immediately gives up tasks that are no longer assigned to it, and reports that in its next heartbeat."""

    def __init__(self, world: World, member_id: str, process: str = "", topology: Topology = WORDS, **fields: Any) -> None:
        self.world = world
        self.member_id = member_id
        self.process = process or f"process of {member_id}"
        self.topology = topology
        self.fields = fields
        self.epoch = 0
        self.connections = 0
        self.tasks: dict[TaskKey, list[int]] = {}

    def send(self, **changes: Any) -> StreamsBeat:
        is_joining = self.epoch == 0
        command = StreamsHeartbeat(
            group_id="g",
            caller=Caller(self.member_id, "/10.0.0.1", f"{self.member_id}:{self.connections}"),
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if is_joining else -1,
            topology=self.topology if is_joining else None,
            owned=self.tasks,
            process_id=self.process if is_joining else None,
        )
        answers: list[StreamsBeat] = []
        changed = replace(command, **{**self.fields, **changes})
        self.world.host.run(lambda now: streams_heartbeat(self.world.shard, changed, answers.append, now))
        (answer,) = answers
        return answer

    def beat(self, *, is_answer_lost: bool = False) -> StreamsBeat:
        answer = self.send()
        if answer.error is ErrorCode.FENCED_MEMBER_EPOCH:
            self.epoch, self.tasks = 0, {}
            return self.beat()
        assert not answer.error, answer.message
        if is_answer_lost and self.epoch:
            self.connections += 1
            return answer
        self.epoch = answer.member_epoch
        if answer.tasks is not None:
            self.tasks = {key: list(mine) for key, mine in answer.tasks.items()}
        return answer

    def leave(self, epoch: int = -1) -> StreamsBeat:
        answer = self.send(member_epoch=epoch, topology=None)
        self.epoch, self.tasks = 0, {}
        return answer


def group_of(world: World) -> StreamsGroup:
    group = world.shard.groups["g"]
    assert isinstance(group, StreamsGroup)
    return group


def settle(*clients: Client) -> None:
    for _ in range(ROUNDS_MAX):
        for client in clients:
            client.beat()


def tasks_of(clients: Sequence[Client]) -> list[tuple[TaskKey, int]]:
    return sorted((key, partition) for client in clients for key, mine in client.tasks.items() for partition in mine)


def check_no_overlap(clients: Sequence[Client]) -> None:
    active = [task for task in tasks_of(clients) if task[0].role is ACTIVE]
    assert len(active) == len(set(active)), "a task is active twice"
    for process in {client.process for client in clients}:
        held = [(key.subtopology, partition) for key, partition in tasks_of([one for one in clients if one.process == process])]
        assert len(held) == len(set(held)), "a process has a task twice"


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["beat", "beat", "beat", "lost", "leave", "late", "grow", "restart"])), max_size=60
)


@given(STEPS, st.integers(0, 2))
def test_no_task_is_active_twice_and_all_members_settle(steps: list[tuple[int, str]], replicas: int) -> None:
    world = ready_world(streams_num_standby_replicas=replicas)
    clients = [Client(world, f"m{number}", process="pqrpq"[number]) for number in range(5)]
    for number, step in steps:
        client = clients[number]
        if step == "grow":
            for topic in ("t", "words", "totals"):
                world.run(f"topic {topic} {world.topics.counts[topic] + 1}")
        elif step == "restart":
            world.run("restart")
        elif step == "late":
            world.run("advance 1000")
        elif step == "leave":
            if client.epoch:
                client.leave()
        else:
            client.beat(is_answer_lost=step == "lost")
        check_no_overlap(clients)
    members = [client for client in clients if client.epoch]
    for _ in range(ROUNDS_MAX):
        for client in members:
            client.beat()
            check_no_overlap(clients)
    if "g" not in world.shard.groups:
        return
    group = group_of(world)
    assert group.state is (STABLE if members else EMPTY)
    for client in members:
        assert client.tasks == {key: list(mine) for key, mine in group.position(client.member_id).assigned.items()}
    if members:
        count = world.topics.counts["t"]
        active = [task for task in tasks_of(members) if task[0].role is ACTIVE]
        assert active == sorted((TaskKey(ACTIVE, name), partition) for name in "01" for partition in range(count))
        copies = min(replicas, len({client.process for client in members}) - 1)
        assert len([task for task in tasks_of(members) if task[0].role is STANDBY]) == copies * count


def test_a_heartbeat_that_changes_nothing_logs_nothing_and_makes_no_timer() -> None:
    world = ready_world()
    client = Client(world, "m")
    settle(client)
    logged, timers = len(world.log.entries), world.timers.pending()
    for _ in range(20):
        world.run("advance 100")
        client.beat()
    assert (len(world.log.entries), world.timers.pending()) == (logged, timers)


def test_missing_internal_topics_are_to_be_created_and_then_tasks_are_given() -> None:
    world = streams_world()
    client = Client(world, "m")
    answer = client.beat()
    assert [code for code, _ in answer.statuses] == [MISSING_INTERNAL_TOPICS] and answer.tasks == {}
    assert answer.missing == (InternalTopic("totals", 4), InternalTopic("words", 4))
    assert group_of(world).state is NOT_READY
    world.run("topic words 4")
    world.run("topic totals 4")
    settle(client)
    assert client.tasks == {TaskKey(ACTIVE, "0"): [0, 1, 2, 3], TaskKey(ACTIVE, "1"): [0, 1, 2, 3]}
    assert group_of(world).state is STABLE and not client.beat().statuses


def test_a_source_topic_that_is_deleted_takes_the_tasks_away() -> None:
    world = ready_world()
    client = Client(world, "m")
    settle(client)
    del world.topics.counts["t"]
    world.machine.topics_changed()
    assert [code for code, _ in client.beat().statuses] == [MISSING_SOURCE_TOPICS]
    settle(client)
    assert client.tasks == {}


def test_the_first_assignment_waits_for_more_members() -> None:
    world = ready_world(streams_initial_rebalance_delay_ms=3_000)
    first, second = Client(world, "a"), Client(world, "b")
    assert [code for code, _ in first.beat().statuses] == [ASSIGNMENT_DELAYED]
    second.beat()
    assert first.tasks == second.tasks == {} and group_of(world).state is ASSIGNING
    world.run("advance 3000")
    answer = first.beat()
    assert not answer.statuses and sum(map(len, first.tasks.values())) == 4
    second.beat()
    assert group_of(world).state is STABLE and group_of(world).target_epoch == group_of(world).epoch == 3


def test_tasks_whose_answer_was_lost_and_then_refused_are_sent_again() -> None:
    world = ready_world()
    first, second = Client(world, "a", process="p"), Client(world, "b", process="p")
    settle(first, second)
    world.run("set-group streams.num.standby.replicas=1")  # a new epoch with the same target
    first.connections += 1
    world.run("refuse NOT_ENOUGH_REPLICAS")
    assert first.send().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = first.send()
    assert answer.tasks == {key: tuple(mine) for key, mine in first.tasks.items()}


def test_a_revoked_task_is_given_only_when_it_is_released() -> None:
    world = ready_world()
    first, second = Client(world, "a"), Client(world, "b")
    settle(first)
    second.beat()
    assert second.tasks == {} and group_of(world).state is RECONCILING
    answer = first.send()
    assert answer.tasks is not None and sum(map(len, answer.tasks.values())) == 4
    assert second.beat().tasks is None, "the first member has not confirmed yet"
    first.tasks = {key: list(mine) for key, mine in answer.tasks.items()}
    first.beat()
    second.beat()
    assert sum(map(len, second.tasks.values())) == 4
    check_no_overlap([first, second])


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    world = ready_world(streams_session_timeout_ms=100_000)
    first, second = Client(world, "a"), Client(world, "b")
    settle(first)
    second.beat()
    first.send()
    world.run("advance 60000")
    assert list(group_of(world).facts) == ["b"]
    settle(second)
    assert sum(map(len, second.tasks.values())) == 8


def test_a_member_without_heartbeats_is_removed_also_after_a_failover() -> None:
    world = ready_world()
    first, second = Client(world, "a"), Client(world, "b")
    settle(first, second)
    world.run("restart")
    world.run("advance 44000")
    second.beat()
    world.run("advance 1000")
    assert list(group_of(world).facts) == ["b"]


def test_a_static_member_keeps_its_tasks_over_a_restart() -> None:
    world = ready_world()
    first, other = Client(world, "a", instance_id="i", process="p"), Client(world, "b")
    settle(first, other)
    had = first.tasks
    assert first.send(member_epoch=-2, topology=None).member_epoch == -2
    settle(other)
    assert sum(map(len, other.tasks.values())) == 4, "the tasks wait for the next process"
    after = Client(world, "c", instance_id="i", process="p")
    after.beat()
    assert after.tasks == had and sorted(group_of(world).facts) == ["b", "c"]
    assert first.send(member_epoch=2, topology=None).error is ErrorCode.FENCED_INSTANCE_ID
    assert Client(world, "d", instance_id="i").send().error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_member_of_another_process_begins_without_tasks() -> None:
    """The member's new process may already have one of the member's tasks, and no process may have a task twice."""
    world = ready_world(streams_num_standby_replicas=1)
    first, other = Client(world, "a", process="p", instance_id="i"), Client(world, "b", process="q")
    settle(first, other)
    first.send(member_epoch=-2, topology=None)
    after = Client(world, "c", process="q", instance_id="i")
    after.beat()
    check_no_overlap([after, other])
    settle(other, after)
    check_no_overlap([after, other])
    assert sum(map(len, after.tasks.values())) == sum(map(len, other.tasks.values())) == 4
    assert other.send(process_id="r").error is ErrorCode.INVALID_REQUEST, "only a member that joins is of another process"


def test_another_topology_is_refused_while_the_group_has_members() -> None:
    world = ready_world()
    first, second = Client(world, "a"), Client(world, "b", topology=STATELESS)
    first.beat()
    answer = second.send()
    assert (answer.error, answer.message) == (ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    first.leave()
    settle(second)
    assert sorted(second.tasks) == [TaskKey(ACTIVE, "0"), TaskKey(ACTIVE, "1")] and group_of(world).topology == STATELESS


def test_a_member_with_an_earlier_topology_gets_no_tasks() -> None:
    world = ready_world()
    first, old = Client(world, "a", topology=WORDS._replace(epoch=1)), Client(world, "b")
    settle(first)
    assert [code for code, _ in old.beat().statuses] == [STALE_TOPOLOGY]
    settle(first, old)
    assert old.tasks == {} and sum(map(len, first.tasks.values())) == 8


def test_a_member_may_end_the_whole_application() -> None:
    world = ready_world()
    first, second = Client(world, "a"), Client(world, "b")
    settle(first, second)
    first.send(shutdown_application=True)
    ((code, detail),) = second.beat().statuses
    assert (code, detail.split()[3]) == (SHUTDOWN_APPLICATION, "a")
    first.leave()
    second.leave()
    assert not first.beat().statuses, "a group that begins again runs"


def test_endpoints_are_sent_when_tasks_change() -> None:
    world = ready_world()
    first, second = Client(world, "a", endpoint=("host", 9)), Client(world, "b")
    answer = first.beat()
    assert answer.endpoints is not None and answer.endpoint_epoch == 1
    ((endpoint, active, standby),) = answer.endpoints
    assert (endpoint, dict(active), standby) == (("host", 9), {"t": [0, 1, 2, 3], "words": [0, 1, 2, 3]}, [])
    assert first.send(endpoint_epoch=1).endpoints is None
    assert second.beat().endpoints is not None
    idle = Client(world, "c", endpoint=("other", 9)).beat()
    assert idle.endpoint_epoch == 2 and idle.endpoints is not None
    assert [(one.endpoint[0], one.active) for one in idle.endpoints][1:] == [("other", [])], "a member without tasks is shown"


def test_offsets_are_fenced_by_the_epoch_and_by_the_task() -> None:
    world = ready_world()
    client, other = Client(world, "a"), Client(world, "b")
    settle(client)
    joined = client.epoch
    settle(other, client)
    kept, lost = client.tasks[TaskKey(ACTIVE, "1")][0], other.tasks[TaskKey(ACTIVE, "1")][0]

    def commit(epoch: int, topic: str, partition: int, member_id: str = "a") -> Any:
        offset = OffsetToCommit(topic, b"\0" * 16, partition, 5, -1, "")
        codes: list[Any] = []
        command = CommitOffsets("g", member_id, None, epoch, [offset])
        world.host.run(lambda now: commit_offsets(world.shard, command, codes.append, now))
        return codes[0][0]

    assert client.epoch > joined
    assert commit(client.epoch, "words", kept) is ErrorCode.NONE
    assert commit(joined, "words", kept) is ErrorCode.NONE, "it has had the task since that epoch"
    assert commit(joined, "words", lost) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(joined, "v", 0) is ErrorCode.STALE_MEMBER_EPOCH, "the topology does not read it"
    assert commit(client.epoch + 1, "words", kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(client.epoch, "words", kept, "c") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(-1, "words", kept, "") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_change_of_the_standby_replicas_makes_a_new_target() -> None:
    world = ready_world()
    clients = Client(world, "a"), Client(world, "b")
    settle(*clients)
    assert not [task for task in tasks_of(clients) if task[0].role is STANDBY]
    world.run("set-group streams.num.standby.replicas=1")
    settle(*clients)
    assert len([task for task in tasks_of(clients) if task[0].role is STANDBY]) == 4


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 0, "rebalance_timeout_ms": 1, "owned": {}}, ErrorCode.INVALID_REQUEST),
        ({"topology": WORDS}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x" * (ID_CHARACTERS_MAX + 1)}, ErrorCode.INVALID_REQUEST),
        ({"tags": (("x" * 5_000, ""),)}, ErrorCode.INVALID_REQUEST),
        ({"tags": (("zone", "a"), ("rack", "r"), ("zone", "b"))}, ErrorCode.INVALID_REQUEST),
        ({"tags": (("zone", "a"), ("zone", "a"))}, ErrorCode.INVALID_REQUEST),
        ({"owned": {TaskKey(ACTIVE, "7"): [0]}}, ErrorCode.INVALID_REQUEST),
        ({"owned": {TaskKey(ACTIVE, "1"): [4]}}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "other"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": 9}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_epoch": -1, "member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_wrong_heartbeat_is_refused(changes: Mapping[str, Any], code: ErrorCode) -> None:
    world = ready_world()
    client = Client(world, "m")
    settle(client)
    logged = len(world.log.entries)
    assert client.send(**changes).error is code
    assert len(world.log.entries) == logged


def test_a_full_group_takes_no_more_members() -> None:
    world = ready_world(streams_members_max=1)
    Client(world, "a").beat()
    assert Client(world, "b").send().error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_an_empty_classic_group_becomes_a_streams_group_and_other_kinds_do_not() -> None:
    world = ready_world()
    world.run("commit - t-0=5")
    Client(world, "a").beat()
    assert world.shard.offsets.get("g", "t", 0) is not None
    assert "INCONSISTENT_GROUP_PROTOCOL" in "".join(world.run("join x"))
    assert "GROUP_ID_NOT_FOUND" in "".join(world.run("beat x"))
    other = ready_world()
    other.run("beat x")
    assert Client(other, "a").send().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_is_listed_and_deleted() -> None:
    world = ready_world()
    client = Client(world, "a")
    settle(client)
    assert "NON_EMPTY_GROUP" in "".join(world.run("delete-group g"))
    client.leave()
    assert "streams" in "".join(world.run("list types=streams"))
    world.run("delete-group g")
    assert "g" not in world.shard.groups and not world.shard.streams_states


def test_a_group_that_is_not_created_leaves_nothing() -> None:
    world = ready_world()
    world.run("refuse NOT_ENOUGH_REPLICAS")
    assert Client(world, "a").send().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    twice = Topology(0, (*STATELESS.subtopologies, *STATELESS.subtopologies))
    assert Client(world, "a", topology=twice).send().error is ErrorCode.STREAMS_INVALID_TOPOLOGY
    loop = Topology(0, (Subtopology("0", repartition_sinks=("r",), repartition_sources=(InternalTopic("r"),)),))
    assert Client(world, "a", topology=loop).send().error is ErrorCode.STREAMS_INVALID_TOPOLOGY
    shard = world.shard
    assert not (shard.groups or shard.streams_states or shard.refreshes)


def test_the_offsets_of_tasks_are_kept_for_members_only() -> None:
    world = ready_world()
    client = Client(world, "a", instance_id="i")
    settle(client)
    offsets = {("1", 0): 5, ("1", 9): 6, ("7", 0): 7}
    client.send(task_offsets=offsets, task_end_offsets={("1", 0): 8})
    assert world.shard.streams_states["g"].offsets == {"a": ({("1", 0): 5}, {("1", 0): 8})}
    client.send(member_epoch=-2)
    Client(world, "b", instance_id="i").beat()
    assert not world.shard.streams_states["g"].offsets


def test_the_states_of_a_group_are_those_of_the_table() -> None:
    """The test visits every state. Each transition must be in the table of allowed transitions."""
    world = streams_world(streams_initial_rebalance_delay_ms=3_000)
    first, second = Client(world, "a"), Client(world, "b")
    seen = [EMPTY]

    def look() -> None:
        state = group_of(world).state
        if state is not seen[-1]:
            assert state in STREAMS_ALLOWED[seen[-1]]
            seen.append(state)

    def step(client: Client, *commands: str) -> None:
        for command in commands:
            world.run(command)
        client.beat()
        look()

    step(first)
    step(first, "topic words 4", "topic totals 4")
    step(first, "advance 3000")
    step(second)
    for client in (first, first, second):
        step(client)
    for client in (first, second):
        client.leave()
        look()
    assert seen == [EMPTY, NOT_READY, ASSIGNING, STABLE, RECONCILING, STABLE, ASSIGNING, EMPTY]
