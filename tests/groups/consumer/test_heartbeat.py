"""Simulated clients of the consumer protocol and the coordinator: no partition has two readers, and every group becomes stable."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.groups.answers import Beat
from ottla.groups.commands import Caller, ConsumerHeartbeat
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.heartbeat import heartbeat
from ottla.groups.states import EMPTY, STABLE
from tests.scenarios.groups_world import World

ROUNDS_MAX = 20  # heartbeats of each member until a group of this size must be stable


class Client:
    """A consumer that immediately stops reading partitions that are no longer assigned to it, and reports that in its next heartbeat."""

    def __init__(self, world: World, member_id: str, *, is_terse: bool = False) -> None:
        self.world = world
        self.is_terse = is_terse  # sends only changed fields, even after a lost answer, as librdkafka does
        self.has_news = True
        self.connections = 0
        self.member_id = member_id
        self.epoch = 0
        self.is_in = False
        self.topics: list[str] = ["t"]
        self.owned: dict[bytes, list[int]] = {}

    def beat(self, *, is_answer_lost: bool = False) -> None:
        is_full = not (self.is_terse and self.epoch)
        command = ConsumerHeartbeat(
            group_id="g",
            caller=self._caller(),
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if is_full else -1,
            topics=self.topics,
            owned=self.owned if is_full or self.has_news else None,
        )
        answers: list[Beat] = []
        self._send(command, answers.append)
        (answer,) = answers
        if answer.error is ErrorCode.FENCED_MEMBER_EPOCH:
            # Two answers in a row were lost: the client gives up all its partitions and joins again.
            self.epoch, self.owned = 0, {}
            self.beat()
            return
        if is_answer_lost:
            self.connections += 1
        assert not answer.error, answer.message
        if is_answer_lost and self.is_in:
            return
        self.is_in = True
        self.epoch = answer.member_epoch
        self.has_news = answer.assignment is not None
        if answer.assignment is not None:
            self.owned = {topic_id: list(partitions) for topic_id, partitions in answer.assignment.items()}

    def leave(self) -> None:
        command = ConsumerHeartbeat(group_id="g", caller=self._caller(), member_id=self.member_id, member_epoch=-1)
        self._send(command, lambda _answer: None)
        self.epoch, self.is_in, self.owned = 0, False, {}

    def _caller(self) -> Caller:
        return Caller(self.member_id, "/10.0.0.1", f"{self.member_id}:{self.connections}")

    def _send(self, command: ConsumerHeartbeat, reply: Any) -> None:
        self.world.host.run(lambda now: heartbeat(self.world.shard, command, reply, now))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["beat", "beat", "beat", "lost", "leave", "t", "tu", "u", "grow", "restart"]),
    ),
    max_size=60,
)


def take(world: World, client: Client, step: str) -> None:
    """Executes one step of a random run (`STEPS`)."""
    if step in ("t", "tu", "u"):
        client.topics = list(step)
    elif step == "grow":
        world.run(f"topic u {world.topics.counts['u'] + 1}")
    elif step == "restart":
        world.run("restart")
    elif step == "leave" and client.is_in:
        client.leave()
    else:
        client.beat(is_answer_lost=step == "lost")


@given(STEPS)
def test_no_partition_has_two_owners_and_all_members_settle(steps: list[tuple[int, str]]) -> None:
    world = World()
    clients = [Client(world, f"m{number}", is_terse=number % 2 == 1) for number in range(5)]
    for number, step in steps:
        take(world, clients[number], step)
        check_no_overlap(clients)
    for _ in range(ROUNDS_MAX):
        for client in clients:
            if client.is_in:
                client.beat()
                check_no_overlap(clients)
    check_at_rest(world, [client for client in clients if client.is_in])


def check_no_overlap(clients: list[Client]) -> None:
    held = [(topic_id, partition) for client in clients for topic_id, held in client.owned.items() for partition in held]
    assert len(held) == len(set(held)), "two clients read one partition"


def check_at_rest(world: World, members: list[Client]) -> None:
    group = world.machine.shard.groups.get("g")
    if group is None:
        assert not members
        return
    assert isinstance(group, ConsumerGroup)
    assert group.state is (STABLE if members else EMPTY)
    for client in members:
        assert client.owned == {topic_id: list(partitions) for topic_id, partitions in group.position(client.member_id).assigned.items()}
    read = {topic for client in members for topic in client.topics}
    held = sorted(
        (topic_id.rstrip(b"\0").decode(), partition) for client in members for topic_id, ps in client.owned.items() for partition in ps
    )
    assert held == sorted((topic, partition) for topic in read for partition in range(world.topics.counts[topic]))


def test_a_heartbeat_that_changes_nothing_logs_nothing_and_makes_no_timer() -> None:
    world = World()
    client = Client(world, "m")
    client.beat()
    logged, timers = len(world.log.entries), world.timers.pending()
    for _ in range(20):
        world.run("advance 100")
        client.beat()
    assert (len(world.log.entries), world.timers.pending()) == (logged, timers)


def test_a_lost_answer_with_a_new_epoch_does_not_fence() -> None:
    """The member repeats its former epoch, with a part of the partitions that it owns now."""
    world = World()
    first, second = Client(world, "a"), Client(world, "b")
    first.beat()
    second.beat()
    first.beat()
    first.beat(is_answer_lost=True)
    first.beat()
    assert first.epoch == 3


def test_a_member_that_missed_what_to_give_up_gets_it_again() -> None:
    """The coordinator paused for a second. The member's request timed out, so the answer was lost with the closed connection. The member
    then sends a heartbeat without fields over a new connection.
    """
    world = World()
    here, there = Client(world, "m1", is_terse=True), Client(world, "m2", is_terse=True)
    here.beat()
    here.beat()
    there.beat()
    here.beat(is_answer_lost=True)
    for _ in range(3):
        here.beat()
        there.beat()
    check_at_rest(world, [here, there])


@pytest.mark.parametrize("group_id", ["", " ", "\t "])
def test_a_group_id_of_nothing_but_spaces_is_none(group_id: str) -> None:
    """As in Kafka, which accepts such an id for the classic protocol only."""
    world = World()
    client = Client(world, "a")
    answers: list[Beat] = []
    command = ConsumerHeartbeat(
        group_id=group_id, caller=client._caller(), member_id="a", member_epoch=0, rebalance_timeout_ms=60_000, topics=["t"], owned={}
    )
    client._send(command, answers.append)
    assert [answer.error for answer in answers] == [ErrorCode.INVALID_REQUEST]
