"""The end of a share session whose member has records of many partitions: the records are released in steps, between which other members
are served."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.loop.turns import Turns
from ottla.sharing.in_flight import ACQUIRED
from ottla.sharing.sessions import PARTITIONS_PER_STEP, ShareSessions
from tests.handlers.share_world import GROUP, LOCK_MS, ShareWorld, acquired, connection

PARTITIONS = 3 * PARTITIONS_PER_STEP
ALL = tuple(range(PARTITIONS))


@pytest.fixture
def world() -> ShareWorld:
    """Member `a` has a record of each partition. Each step of the end of its session runs in a separate iteration of the event loop."""
    world = ShareWorld(partitions=PARTITIONS)
    turns = Turns(world.clock, world.timers, piece_ms=0, is_fair=True)
    turns.begin()
    world.shares._in_turn = turns.call_in_turn
    world.sessions = world.broker.share_sessions = ShareSessions(world.shares, 10, turns=turns)
    for partition in ALL:
        world.append(1, partition=partition)
    assert len(acquired(world.fetch(0, partitions=ALL))) == PARTITIONS
    return world


def held(world: ShareWorld, member: str = "a") -> int:
    return sum(run.state is ACQUIRED and run.member == member for share in world.shares for run in share.flight.runs)


def test_a_few_partitions_are_released_in_each_step(world: ShareWorld) -> None:
    """Each release is a write of a share coordinator. Formerly five thousand of them ran in one iteration of the loop: 200 ms."""
    other = connection()
    world.fetch(0, member="b", partitions=(0,), max_records=0, connection=other)
    world.connection.closed()
    assert held(world) == PARTITIONS - PARTITIONS_PER_STEP
    assert world.timers.run_due() >= 2
    assert held(world) == 0 and len(list(world.shares)) == PARTITIONS
    assert len(acquired(world.fetch(0, member="b", partitions=ALL, connection=other))) == PARTITIONS


def test_the_partitions_of_a_group_without_sessions_are_closed_in_steps(world: ShareWorld) -> None:
    world.connection.closed()
    assert len(list(world.shares)) == PARTITIONS - PARTITIONS_PER_STEP
    world.timers.run_due()
    assert list(world.shares) == []


def test_the_member_comes_back_when_its_records_are_released(world: ShareWorld) -> None:
    world.connection.closed()
    again = connection()
    assert world.sessions.open("g", "a", again) is None, "its new records would be released with the old ones"
    world.timers.run_due()
    assert len(acquired(world.fetch(0, partitions=ALL, connection=again))) == PARTITIONS
    world.timers.run_due()
    assert held(world) == PARTITIONS


def test_a_member_that_comes_back_too_early_tries_again_later(world: ShareWorld) -> None:
    world.connection.closed()
    pending = world.fetch(0, partitions=ALL, connection=connection(), max_wait_ms=100)
    world.timers.advance(99)
    assert not pending.is_done
    world.timers.advance(1)
    assert pending.response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_what_a_member_that_comes_meanwhile_reads_is_not_closed(world: ShareWorld) -> None:
    world.connection.closed()
    world.fetch(0, member="b", partitions=(PARTITIONS - 1,), connection=connection(), max_records=0)
    world.timers.run_due()
    assert held(world) == 0
    assert len(list(world.shares)) == PARTITIONS - PARTITIONS_PER_STEP
    assert list(acquired(world.fetch(1, member="b"))) == [PARTITIONS - 1]


def test_a_member_that_leaves_meanwhile_is_released_too(world: ShareWorld) -> None:
    other = connection()
    world.connection.closed()
    got = acquired(world.fetch(0, member="b", partitions=ALL[:PARTITIONS_PER_STEP], connection=other))
    assert len(got) == held(world, "b") == PARTITIONS_PER_STEP
    other.closed()
    assert held(world, "b") == PARTITIONS_PER_STEP, "in its turn"
    world.timers.run_due()
    assert held(world, "b") == held(world) == 0
    assert list(world.shares) == []
    assert world.sessions.open("g", "b", connection()) is not None


def test_the_partitions_of_a_deleted_topic_are_closed_in_turns(world: ShareWorld) -> None:
    world.shares.close_where(lambda share: share.key.partition > 0)
    assert len(list(world.shares)) == PARTITIONS, "in the turns that follow"
    assert world.timers.run_due() >= PARTITIONS - 1
    assert [share.key.partition for share in world.shares] == [0]


def test_the_partitions_of_a_group_are_closed_in_turns_before_the_answer(world: ShareWorld) -> None:
    """Formerly the deletion or alteration of a group with 5,000 partitions took 15 ms in one iteration of the loop."""
    left: list[int] = []
    world.shares.close_group(GROUP, lambda: left.append(len(list(world.shares))))
    assert len(list(world.shares)) == PARTITIONS and left == [], "in the turns that follow"
    assert world.timers.run_due() >= PARTITIONS
    assert left == [0]


def test_locks_that_run_out_together_are_taken_back_in_turns(world: ShareWorld) -> None:
    """The timers of these locks fire in the same iteration of the loop, and each expiry causes a write."""
    world.clock.advance(LOCK_MS)
    seen: list[int] = []

    def look() -> None:
        seen.append(held(world))
        if seen[-1]:
            world.timers.call_soon(look)

    world.timers.call_soon(look)
    world.timers.run_due()
    assert len(set(seen)) > PARTITIONS // 2, "one in each turn here"
    assert held(world) == 0
