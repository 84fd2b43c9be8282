"""A large update of a group runs in time slices. Heartbeats are answered meanwhile, and the result is the same as in one step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.base.name_pattern import NamePattern
from ottla.groups.consumer import assignors
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.machine import GroupMachine
from ottla.groups.modern import update as epoch_update
from ottla.groups.states import ASSIGNING, STABLE
from ottla.machine.memory import CoordinatorMemory
from tests.groups.consumer.test_heartbeat import ROUNDS_MAX, STEPS, Client, check_at_rest, check_no_overlap, take
from tests.groups.hard_state import hard_state
from tests.groups.turns_world import TurnsWorld
from tests.instructions import instructions
from tests.scenarios.groups_text import FixedTopics

MEMBERS = 60
TOPICS = [f"topic-{number:03}" for number in range(200)]


class ConsumerWorld(TurnsWorld):
    """The world of the tests, with their group."""

    @property
    def group(self) -> ConsumerGroup:
        group = self.machine.shard.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ConsumerWorld:
    monkeypatch.setattr(epoch_update, "STEPS_AT_ONCE", 5)
    made = ConsumerWorld()
    made.topics = FixedTopics(dict.fromkeys(TOPICS, 5))
    made.machine.shard.topics = made.topics
    return made


def large_group(world: ConsumerWorld) -> list[Client]:
    """Makes a stable group of members with different topics. The last member has not joined yet."""
    clients = []
    for number in range(MEMBERS):
        client = Client(world, f"m{number}")
        client.topics = [TOPICS[(7 * number + place) % len(TOPICS)] for place in range(100)]
        clients.append(client)
        client.beat()
        world.finish()
    settle(world, clients)
    return clients


def settle(world: ConsumerWorld, clients: list[Client]) -> None:
    for _ in range(ROUNDS_MAX):
        for client in clients:
            if client.is_in:
                client.beat()
                check_no_overlap(clients)
        world.finish()


def one_more(world: ConsumerWorld) -> Client:
    client = Client(world, "one-more")
    client.topics = TOPICS[:100]
    client.beat()
    return client


def test_heartbeats_are_answered_while_a_target_is_made(world: ConsumerWorld) -> None:
    """Formerly a target for a thousand members with different topics blocked the loop for a quarter of a second."""
    clients = large_group(world)
    epoch = world.group.epoch
    clients.append(one_more(world))
    assert world.waiting and world.group.state is ASSIGNING and world.group.epoch == epoch + 1
    assert not clients[-1].owned
    for client in clients:
        client.beat()
    assert world.group.target_epoch == epoch and len(world.waiting) == 1, "one update at a time"
    settle(world, clients)
    assert world.group.target_epoch == epoch + 1 and world.group.state is STABLE
    check_at_rest(world, clients)


def test_no_step_is_much_work(world: ConsumerWorld) -> None:
    """Counts the instructions of each step: a hundred thousand take some milliseconds."""
    clients = large_group(world)
    assert instructions(lambda: clients.append(one_more(world))) < 500_000
    costs = []
    while world.waiting:
        costs.append(instructions(world.step))
    assert len(costs) > 10 and max(costs) < 100_000


def test_the_target_is_that_of_an_update_at_once(world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    large_group(world)
    monkeypatch.setattr(epoch_update, "STEPS_AT_ONCE", 1 << 30)
    at_once = ConsumerWorld()
    at_once.topics = at_once.machine.shard.topics = world.topics
    large_group(at_once)
    one_more(at_once)
    assert not at_once.waiting
    monkeypatch.setattr(epoch_update, "STEPS_AT_ONCE", 5)
    one_more(world)
    assert world.waiting
    world.finish()
    assert world.group.target == at_once.group.target and world.group.target_epoch == at_once.group.target_epoch


def test_members_that_leave_meanwhile_get_nothing(world: ConsumerWorld) -> None:
    clients = large_group(world)
    clients.append(one_more(world))
    world.step()
    clients[3].leave()
    settle(world, clients)
    assert "m3" not in world.group.target and world.group.target_epoch == world.group.epoch
    check_at_rest(world, [client for client in clients if client.is_in])


def test_a_refusal_in_between_is_made_up_for(world: ConsumerWorld) -> None:
    clients = large_group(world)
    clients.append(one_more(world))
    world.log.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.finish()
    assert world.group.state is ASSIGNING and not world.machine.shard.updates
    settle(world, clients)
    check_at_rest(world, clients)


def test_a_coordinator_that_is_replaced_does_no_more_of_it(world: ConsumerWorld) -> None:
    clients = large_group(world)
    clients.append(one_more(world))
    world.step()
    world.run("restart")
    logged = len(world.log.entries)
    assert not world.step() and len(world.log.entries) == logged
    settle(world, clients)
    check_at_rest(world, clients)


def test_an_expression_is_matched_a_few_topics_at_a_time(world: ConsumerWorld) -> None:
    """Formerly matching an expression with more than eighteen thousand topics blocked the loop for 50 ms."""
    names = [f"topic-{number:05}" for number in range(20_000)]
    world.machine.shard.topics = world.topics = FixedTopics(dict.fromkeys(names, 1))
    world.run("beat a epoch=0 regex=topic-.*99")
    assert not world.group.regexes and world.group.state is ASSIGNING
    costs = []
    while world.waiting:
        costs.append(instructions(world.step))
    assert len(costs) > 100 and max(costs) < 100_000
    assert list(world.group.regexes["topic-.*99"].topics) == [name for name in names if name.endswith("99")]
    world.run("beat a")
    assert len(world.group.position("a").assigned) == 200


def test_a_dear_expression_is_matched_with_few_names_at_a_time(world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly an expression with hundreds of instructions for each letter took half a second for two thousand long names."""
    matched = 0
    matches = NamePattern.matches

    def counted(pattern: NamePattern, name: str) -> bool:
        nonlocal matched
        matched += 1
        return matches(pattern, name)

    monkeypatch.setattr(NamePattern, "matches", counted)
    world.machine.shard.topics = world.topics = FixedTopics({"a" * 240 + f"{number:05}": 1 for number in range(200)})
    world.run("beat a epoch=0 regex=(a?){90}a{40}b")
    assert 0 < matched <= 10 and world.waiting
    while world.waiting:
        before = matched
        world.step()
        assert matched - before <= 2
    assert matched == 200


def test_i46_an_expression_that_finds_no_room_later_leaves_the_coordinator_as_it_was(world: ConsumerWorld) -> None:
    names = [f"topic-{number:05}" for number in range(20_000)]
    world.machine.shard.topics = world.topics = FixedTopics(dict.fromkeys(names, 1))
    world.machine.shard.memory = CoordinatorMemory(20_000).share(world.machine.shard._sizes)
    world.run("beat a epoch=0 regex=topic-.*")
    world.finish()
    assert not world.group.regexes and not world.machine.shard.updates


@given(STEPS, st.integers(1, 12), st.randoms())
def test_no_partition_has_two_owners_whatever_comes_between_the_steps(steps: list[tuple[int, str]], at_once: int, random: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epoch_update, "STEPS_AT_ONCE", at_once)
        patch.setattr(epoch_update, "TARGETS_PER_STEP", 1)
        patch.setattr(assignors, "WORK_PER_STEP", 1)
        world = ConsumerWorld()
        clients = [Client(world, f"m{number}", is_terse=number % 2 == 1) for number in range(5)]
        for number, step in steps:
            take(world, clients[number], step)
            check_no_overlap(clients)
            for _ in range(random.randint(0, 6)):  # type: ignore[attr-defined]
                world.step()
        settle(world, clients)
        check_at_rest(world, [client for client in clients if client.is_in])
        replica = GroupMachine(world.settings, world.topics, world.random)
        world.log.replay(replica)
        assert hard_state(replica) == hard_state(world.machine)
