"""ShareFetch of many partitions: read in steps, between which the session may end and others may read."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers import share_fetch
from ottla.handlers.share_fetch import PARTITIONS_PER_STEP
from ottla.requests.context import RequestContext
from ottla.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from tests.handlers.records_world import TOPIC_ID
from tests.handlers.share_world import GROUP, ShareWorld, acquired, answered, codes

PARTITIONS = 3 * PARTITIONS_PER_STEP


@pytest.fixture
def world() -> ShareWorld:
    """A record in each partition."""
    world = ShareWorld(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        world.append(1, partition=partition)
    return world


def request(epoch: int = 0, named: int = PARTITIONS, member: str = "a") -> ShareFetchRequest:
    wanted = [FetchPartition(partition_index=index) for index in range(named)]
    return ShareFetchRequest(
        group_id=GROUP, member_id=member, share_session_epoch=epoch, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, max_records=500,
        batch_size=500, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=wanted)] if wanted else [],
    )  # fmt: skip


def steps_of(world: ShareWorld, body: ShareFetchRequest) -> Generator[None, None, Any]:
    return share_fetch.handle_in_steps(world.broker, RequestContext(1, "test", world.connection), body)


def finish(steps: Generator[None, None, Any]) -> Any:
    """The answer, or the `Pending` that waits for it."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return answered(end.value)


def test_so_many_partitions_are_opened_in_a_step(world: ShareWorld) -> None:
    """Each is a read of a share coordinator, which may be on this broker: five thousand took 160 ms."""
    steps = steps_of(world, request())
    for number in range(1, PARTITIONS // PARTITIONS_PER_STEP + 1):
        next(steps)
        assert len(list(world.shares)) == number * PARTITIONS_PER_STEP
    assert acquired(finish(steps)) == {partition: [(0, 0, 1)] for partition in range(PARTITIONS)}


@pytest.mark.parametrize("done", [1, 3, 5, 6, 7, 30], ids="{} steps".format)
def test_a_session_that_ends_meanwhile_acquires_nothing_more_and_leaves_nothing(world: ShareWorld, done: int) -> None:
    steps = steps_of(world, request())
    for _ in range(done):
        next(steps)
    world.connection.closed()
    acquired_before = max(done - 2 * PARTITIONS // PARTITIONS_PER_STEP, 0)
    assert len(acquired(finish(steps))) == acquired_before
    assert list(world.shares) == []


def test_a_session_that_is_replaced_meanwhile_leaves_the_records_to_the_new_one(world: ShareWorld) -> None:
    steps = steps_of(world, request())
    for _ in range(PARTITIONS // PARTITIONS_PER_STEP + 2):
        next(steps)
    again = steps_of(world, request())
    next(again)
    finish(steps)
    assert len(acquired(finish(again))) == PARTITIONS


def test_what_another_member_takes_meanwhile_is_its_own(world: ShareWorld) -> None:
    world.fetch(0, partitions=tuple(range(PARTITIONS)), max_records=0, max_wait_ms=0)
    first = steps_of(world, request(1, 0))
    for _ in range(2 * PARTITIONS // PARTITIONS_PER_STEP):
        next(first)
    second = acquired(finish(steps_of(world, request(member="b"))))
    mine = finish(first)
    mine = acquired(mine) if hasattr(mine, "responses") else {}
    assert len(second) + len(mine) == PARTITIONS
    assert not second.keys() & mine.keys()
    owners = [run.member for share in world.shares for run in share.flight.runs]
    assert sorted(owners) == ["a"] * len(mine) + ["b"] * len(second)


def test_partitions_that_are_lost_meanwhile_have_an_error(world: ShareWorld) -> None:
    steps = steps_of(world, request())
    for _ in range(2 * PARTITIONS // PARTITIONS_PER_STEP):
        next(steps)
    for share in list(world.shares)[:2]:
        share.close()
    found = codes(finish(steps))
    assert [index for index, code in found.items() if code is ErrorCode.NOT_LEADER_OR_FOLLOWER] == [0, 1]


def test_what_moves_before_the_wait_begins_is_noticed() -> None:
    world = ShareWorld(partitions=PARTITIONS)
    steps = steps_of(world, request())
    for _ in range(2 * PARTITIONS // PARTITIONS_PER_STEP):
        next(steps)
    world.append(1)
    pending = finish(steps)
    assert not pending.is_done
    world.timers.run_due()
    assert acquired(pending.response) == {0: [(0, 0, 1)]}


def test_a_request_whose_client_has_gone_does_not_look_again() -> None:
    world = ShareWorld(partitions=PARTITIONS)
    pending = finish(steps_of(world, request()))
    pending.abandon()
    world.append(1)
    world.timers.run_due()
    assert not pending.is_done
    assert not any(share.flight.runs for share in world.shares)


def test_what_a_session_wants_makes_a_small_request_long(world: ShareWorld) -> None:
    assert share_fetch.listed(world.broker, request(1, 0)) == 0
    world.fetch(0, partitions=tuple(range(PARTITIONS)))
    assert share_fetch.listed(world.broker, request(1, 0)) == PARTITIONS
