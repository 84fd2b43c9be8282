"""ShareFetch of many partitions: they are read in steps. Between two steps the session may end, and other members may read."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.context import RequestContext
from ottla.handlers.share_groups import share_fetch
from ottla.handlers.share_groups.acquiring import PARTITIONS_PER_STEP
from ottla.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from tests.fakes.answers import answer_of
from tests.handlers.records_world import TOPIC_ID
from tests.handlers.share_world import GROUP, ShareWorld, acquired, codes

PARTITIONS = 3 * PARTITIONS_PER_STEP


@pytest.fixture
def world() -> ShareWorld:
    """Each partition has a record."""
    world = ShareWorld(partitions=PARTITIONS)
    world.append_to_each()
    return world


def request(epoch: int = 0, named: int = PARTITIONS, member: str = "a") -> ShareFetchRequest:
    wanted = [FetchPartition(partition_index=index) for index in range(named)]
    return ShareFetchRequest(
        group_id=GROUP, member_id=member, share_session_epoch=epoch, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, max_records=500,
        batch_size=500, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=wanted)] if wanted else [],
    )  # fmt: skip


def steps_of(world: ShareWorld, body: ShareFetchRequest) -> Generator[None, None, Any]:
    return share_fetch.handle(world.broker, RequestContext(1, "test", world.connection), body)


def test_so_many_partitions_are_opened_in_a_step(world: ShareWorld) -> None:
    """Opening a partition is a read of a share coordinator, which may be on this broker. Formerly five thousand were opened in one step:
    160 ms."""
    steps = steps_of(world, request())
    for number in range(1, PARTITIONS // PARTITIONS_PER_STEP + 1):
        next(steps)
        assert len(list(world.shares)) == number * PARTITIONS_PER_STEP
    assert acquired(answer_of(steps)) == {partition: [(0, 0, 1)] for partition in range(PARTITIONS)}


@pytest.mark.parametrize("done", [1, 3, 5, 6, 7, 30], ids="{} steps".format)
def test_a_session_that_ends_meanwhile_acquires_nothing_more_and_leaves_nothing(world: ShareWorld, done: int) -> None:
    steps = steps_of(world, request())
    for _ in range(done):
        next(steps)
    world.connection.closed()
    acquired_before = max(done - 2 * PARTITIONS // PARTITIONS_PER_STEP, 0)
    assert len(acquired(answer_of(steps))) == acquired_before
    assert list(world.shares) == []


def test_a_session_that_is_replaced_meanwhile_leaves_the_records_to_the_new_one(world: ShareWorld) -> None:
    steps = steps_of(world, request())
    for _ in range(PARTITIONS // PARTITIONS_PER_STEP + 2):
        next(steps)
    again = steps_of(world, request())
    next(again)
    answer_of(steps)
    assert len(acquired(answer_of(again))) == PARTITIONS


def test_what_another_member_takes_meanwhile_is_its_own(world: ShareWorld) -> None:
    world.fetch(0, partitions=tuple(range(PARTITIONS)), max_records=0, max_wait_ms=0)
    first = steps_of(world, request(1, 0))
    for _ in range(2 * PARTITIONS // PARTITIONS_PER_STEP):
        next(first)
    second = acquired(answer_of(steps_of(world, request(member="b"))))
    mine = answer_of(first)
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
    found = codes(answer_of(steps))
    assert [index for index, code in found.items() if code is ErrorCode.NOT_LEADER_OR_FOLLOWER] == [0, 1]


def test_what_moves_before_the_wait_begins_is_noticed() -> None:
    world = ShareWorld(partitions=PARTITIONS)
    steps = steps_of(world, request())
    for _ in range(2 * PARTITIONS // PARTITIONS_PER_STEP):
        next(steps)
    world.append(1)
    pending = answer_of(steps)
    assert not pending.is_done
    world.timers.run_due()
    assert acquired(answer_of(pending.response)) == {0: [(0, 0, 1)]}


def test_a_request_whose_client_has_gone_does_not_look_again() -> None:
    world = ShareWorld(partitions=PARTITIONS)
    pending = answer_of(steps_of(world, request()))
    pending.abandon()
    world.append(1)
    world.timers.run_due()
    assert not pending.is_done
    assert not any(share.flight.runs for share in world.shares)


# Waiting


@pytest.fixture
def empty() -> ShareWorld:
    """There are no records, and each turn of the loop runs one step."""
    world = ShareWorld(partitions=PARTITIONS)
    world.waiters.turns.piece_ms = 0
    return world


def appended_after(world: ShareWorld, turns: int, partition: int) -> None:
    """Appends a record after `turns` turns of the loop."""
    if turns:
        world.timers.call_soon(lambda: appended_after(world, turns - 1, partition))
    else:
        world.append(1, partition=partition)


def test_a_waiting_request_is_woken_in_turns(empty: ShareWorld) -> None:
    """Formerly five thousand partitions were looked at in one turn of the loop: 50 ms."""
    pending = answer_of(steps_of(empty, request()))
    empty.append(1, partition=PARTITIONS - 1)
    assert empty.timers.run_due() > PARTITIONS // PARTITIONS_PER_STEP, "each step has a turn"
    assert acquired(answer_of(pending.response)) == {PARTITIONS - 1: [(0, 0, 1)]}
    assert not empty.waiters.deadlines.waits()


def test_what_becomes_available_within_a_later_look_is_noticed(empty: ShareWorld) -> None:
    """After the first append there are too few bytes; the second append is in a partition that the look has already passed."""
    body = request()
    body.min_bytes = 100
    pending = answer_of(steps_of(empty, body))
    empty.append(1, partition=PARTITIONS - 1)
    appended_after(empty, PARTITIONS // PARTITIONS_PER_STEP, 1)
    empty.timers.run_due()
    assert acquired(answer_of(pending.response)) == {1: [(0, 0, 1)], PARTITIONS - 1: [(0, 0, 1)]}


def test_records_that_are_released_before_the_wait_begins_are_noticed(empty: ShareWorld) -> None:
    empty.append(1)
    empty.fetch(0, member="b", partitions=(0,))
    steps = steps_of(empty, request())
    for _ in range(2 * PARTITIONS // PARTITIONS_PER_STEP):
        next(steps)
    empty.acknowledge(1, (0, 0, 0, [2]), member="b")
    pending = answer_of(steps)
    empty.timers.run_due()
    assert acquired(answer_of(pending.response)) == {0: [(0, 0, 2)]}


def test_a_client_that_goes_while_its_request_looks_again_has_nothing_locked(empty: ShareWorld) -> None:
    pending = answer_of(steps_of(empty, request()))
    empty.append(1)
    empty.timers.call_soon(lambda: empty.timers.call_soon(pending.abandon))
    assert empty.timers.run_due() > 2
    assert not pending.is_done and not empty.waiters.deadlines.waits()
    assert not any(run.member == "a" for share in empty.shares for run in share.flight.runs)


def test_the_time_ends_the_wait(empty: ShareWorld) -> None:
    pending = answer_of(steps_of(empty, request()))
    empty.timers.advance(499)
    assert not pending.is_done
    empty.timers.advance(1)
    assert acquired(answer_of(pending.response)) == {}
    assert not empty.waiters.deadlines.waits()


def test_an_answer_is_made_in_steps(monkeypatch: pytest.MonkeyPatch, world: ShareWorld) -> None:
    monkeypatch.setattr(share_fetch, "ITEMS_PER_STEP", 10)
    steps, end = steps_of(world, request()), None
    while end is None:
        try:
            next(steps)
        except StopIteration as over:
            end = over
    made = end.value.response
    assert sum(1 for _ in made) == 2 * PARTITIONS // 10, "those with records, then all"


@pytest.mark.parametrize(("owner", "method"), [(share_fetch.ShareReading, "_attempt"), (share_fetch.ShareFetchAnswer, "_response")])
def test_a_later_look_that_fails_ends_the_wait_and_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, empty: ShareWorld, owner: type, method: str
) -> None:
    """Formerly the request, and all requests behind it, never had an answer."""
    pending = answer_of(steps_of(empty, request()))
    failure = KeyError("a mistake of ours")

    def fail(*_given: object) -> None:
        raise failure

    monkeypatch.setattr(owner, method, fail)
    empty.append(1)
    empty.timers.run_due()
    assert pending.is_done and pending.error is failure
    assert not empty.waiters.deadlines.waits() and empty.waiters.turns.is_idle
