"""Fetch of thousands of partitions: the broker reads them in steps. Between two steps partitions may change and the client may
disconnect."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Pending
from ottla.handlers.records import fetch
from ottla.handlers.records.fetch import PARTITIONS_MAX, handle
from ottla.replication.fetch_sessions import SESSION_PARTITIONS_MAX
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from tests.handlers.records.test_fetch import append, body, results, run, values
from tests.handlers.records_world import RecordsWorld, request

PARTITIONS = 6
OFFSETS = dict.fromkeys(range(PARTITIONS), 0)


@pytest.fixture(params=["session", "more than a session may have"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RecordsWorld:
    """A broker that reads one partition in each step, and runs one step in each turn of its loop."""
    monkeypatch.setattr(fetch, "ITEMS_PER_STEP", 1)
    if request.param != "session":
        monkeypatch.setattr(fetch, "SESSION_PARTITIONS_MAX", 1)
        monkeypatch.setattr("ottla.replication.fetch_sessions.SESSION_PARTITIONS_MAX", 1)
    world = RecordsWorld(partitions=PARTITIONS)
    world.waiters.turns.piece_ms = 0
    return world


def waiting(**options: Any) -> FetchRequest:
    return body(OFFSETS, **{"wait_ms": 100, "session": (0, 0), **options})


def steps_of(world: RecordsWorld, asked: FetchRequest, version: int = 12) -> Generator[None, None, FetchResponse | Pending]:
    return handle(world.broker, request(version), asked)


def begun(world: RecordsWorld, asked: FetchRequest, looked_at: int, version: int = 12) -> Generator[None, None, FetchResponse | Pending]:
    """Starts a fetch, which has found all partitions and has read `looked_at` of them."""
    steps = steps_of(world, asked, version)
    for _ in range(2 * PARTITIONS + looked_at):
        next(steps)
    return steps


def answer_of(response: FetchResponse | Pending) -> FetchResponse:
    if isinstance(response, Pending):
        assert response.is_done
        response = response.response
    assert isinstance(response, FetchResponse)
    return response


def found_in(response: FetchResponse | Pending) -> dict[int, list[bytes | None]]:
    return {result.partition_index: values(result) for result in results(answer_of(response)) if result.records}


def test_each_step_looks_at_a_few_partitions(world: RecordsWorld) -> None:
    append(world, 3, b"a")
    steps = begun(world, waiting(), 0)
    reads = [partition.traffic.fetches for partition in world.partitions]
    for looked_at in range(1, PARTITIONS):
        next(steps)
        now = [partition.traffic.fetches for partition in world.partitions]
        assert sum(now) - sum(reads) == looked_at
    answer = run(steps)
    assert found_in(answer) == {3: [b"a"]}
    assert [result.partition_index for result in results(answer)] == list(range(PARTITIONS))


@pytest.mark.parametrize("partition", [0, PARTITIONS - 1], ids=["passed", "not yet looked at"])
def test_records_that_come_between_its_step_and_the_wait_are_sent_at_once(world: RecordsWorld, partition: int) -> None:
    steps = begun(world, waiting(), 2)
    append(world, partition, b"a")
    answer = run(steps)
    if isinstance(answer, Pending):
        world.timers.run_due()
    assert found_in(answer) == {partition: [b"a"]}


def test_a_leader_that_resigns_between_its_step_and_the_wait_is_noticed(world: RecordsWorld) -> None:
    steps = begun(world, waiting(), 2, version=10)
    world.partitions[0].become_follower(leader_id=1, leader_epoch=1, partition_epoch=1, replicas=(0, 1), isr=(1,))
    answer = run(steps)
    world.timers.run_due()
    codes = {result.partition_index: result.error_code for result in results(answer_of(answer))}
    assert codes[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER and not any(list(codes.values())[1:])


def test_a_waiting_fetch_is_woken_in_turns(world: RecordsWorld) -> None:
    pending = run(steps_of(world, waiting()))
    assert isinstance(pending, Pending) and not pending.is_done
    append(world, 1, b"b")
    assert world.timers.run_due() > PARTITIONS, "each look at a partition has a turn"
    assert found_in(pending) == {1: [b"b"]}


def test_the_time_ends_it(world: RecordsWorld) -> None:
    pending = run(steps_of(world, waiting()))
    world.timers.advance(99)
    assert isinstance(pending, Pending) and not pending.is_done
    world.timers.advance(1)
    assert found_in(pending) == {}
    assert not world.waiters.deadlines.waits()


def test_time_that_ends_within_the_first_look_ends_it(world: RecordsWorld) -> None:
    steps = begun(world, waiting(), 2)
    world.timers.advance(100)
    answer = run(steps)
    world.timers.run_due()
    assert found_in(answer) == {}


@pytest.mark.parametrize("looked_at", [0, 3])
def test_a_client_that_goes_within_the_first_look_leaves_nothing(world: RecordsWorld, looked_at: int) -> None:
    steps = begun(world, waiting(), looked_at)
    steps.close()
    assert not world.waiters.deadlines.waits()
    assert not any(partition.notifier.watchers for partition in world.partitions)


def test_a_client_that_goes_while_it_is_woken_leaves_nothing(world: RecordsWorld) -> None:
    pending = run(steps_of(world, waiting()))
    assert isinstance(pending, Pending) and pending.abandon is not None
    append(world, 1, b"b")
    world.waiters.run()
    pending.abandon()
    assert world.timers.run_due() < PARTITIONS, "nothing more is read"
    assert not pending.is_done and not world.waiters.deadlines.waits()
    assert not any(partition.notifier.watchers for partition in world.partitions)


def test_a_fetch_that_does_not_wait_watches_nothing(world: RecordsWorld) -> None:
    assert found_in(run(steps_of(world, waiting(wait_ms=0)))) == {}
    assert not world.waiters.deadlines.waits()


# Sessions


@pytest.fixture
def in_session(monkeypatch: pytest.MonkeyPatch) -> tuple[RecordsWorld, int]:
    monkeypatch.setattr(fetch, "ITEMS_PER_STEP", 1)
    world = RecordsWorld(partitions=PARTITIONS)
    answer = answer_of(run(steps_of(world, waiting(wait_ms=0))))
    assert answer.session_id and len(results(answer)) == PARTITIONS
    return world, answer.session_id


def test_what_a_session_wants_makes_a_small_request_long(in_session: tuple[RecordsWorld, int]) -> None:
    world, session_id = in_session
    assert isinstance(handle(world.broker, request(12), body({}, session=(session_id, 1))), Generator)
    assert isinstance(handle(world.broker, request(12), body({}, session=(session_id + 1, 1))), FetchResponse)
    assert isinstance(handle(world.broker, request(12), body({})), FetchResponse)


def test_a_session_is_answered_in_steps_as_it_is_at_once(in_session: tuple[RecordsWorld, int], monkeypatch: pytest.MonkeyPatch) -> None:
    world, session_id = in_session
    for index in (1, 4):
        append(world, index, b"a")
    steps = steps_of(world, body({}, session=(session_id, 1)))
    for _ in range(3 * PARTITIONS - 1):
        next(steps)
    answer = answer_of(run(steps))
    assert answer.session_id == session_id
    assert found_in(answer) == {1: [b"a"], 4: [b"a"]}
    assert [result.partition_index for result in results(answer)] == [1, 4], "only what has changed"
    assert len(answer.responses) == 1
    again = answer_of(run(steps_of(world, body({1: 1, 4: 1}, session=(session_id, 2)))))
    assert not results(again)
    monkeypatch.setattr(fetch, "ITEMS_PER_STEP", PARTITIONS)
    at_once = handle(world.broker, request(12), body({0: 0}, session=(session_id, 3)))
    assert isinstance(at_once, FetchResponse) and not at_once.error_code and not results(at_once)


def test_a_session_that_waits_goes_on_waiting_until_there_is_enough(in_session: tuple[RecordsWorld, int]) -> None:
    world, session_id = in_session
    pending = run(steps_of(world, body({}, session=(session_id, 1), wait_ms=100, min_bytes=100)))
    append(world, 2, b"a")
    world.timers.run_due()
    assert isinstance(pending, Pending) and not pending.is_done
    append(world, 2, bytes(100))
    world.timers.run_due()
    assert found_in(pending) == {2: [b"a", bytes(100)]}


def test_what_moves_within_a_later_look_is_noticed(in_session: tuple[RecordsWorld, int]) -> None:
    world, session_id = in_session
    world.waiters.turns.piece_ms = 0
    pending = run(steps_of(world, body({}, session=(session_id, 1), wait_ms=100, min_bytes=200)))
    assert isinstance(pending, Pending)
    append(world, 5, b"a")

    def append_later(turns: int) -> None:
        if turns:
            world.timers.call_soon(lambda: append_later(turns - 1))
        else:
            append(world, 0, bytes(200))

    append_later(4)
    before = world.partitions[0].traffic.fetches
    world.timers.run_due()
    assert world.partitions[0].traffic.fetches == before + 2
    assert pending.is_done
    assert found_in(pending)[0] == [bytes(200)]


# Too many for a session


def test_a_fetch_of_thousands_of_partitions_is_answered_in_steps() -> None:
    world = RecordsWorld()
    append(world, 0, b"a")
    wanted = dict.fromkeys(range(SESSION_PARTITIONS_MAX + 1), 0)
    steps = handle(world.broker, request(12), body(wanted, session=(0, 0)))
    answer = run(steps)
    found = results(answer)
    assert isinstance(answer, FetchResponse) and answer.session_id == 0, "too many for a session"
    assert values(found[0]) == [b"a"] and found[1].error_code == 0
    assert {result.error_code for result in found[2:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert isinstance(answer, FetchResponse) and len(answer.responses) == 1, "partitions of one topic stand together"


def test_a_fetch_of_too_many_partitions_is_refused() -> None:
    wanted = dict.fromkeys(range(PARTITIONS_MAX + 1), 0)
    answer = run(handle(RecordsWorld().broker, request(12), body(wanted)))
    assert isinstance(answer, FetchResponse) and answer.error_code == ErrorCode.INVALID_REQUEST and not answer.responses


@pytest.mark.parametrize("is_at_the_end", [False, True], ids=["a look", "the time's last look"])
def test_a_later_look_that_fails_ends_the_wait_and_closes_the_connection(
    world: RecordsWorld, monkeypatch: pytest.MonkeyPatch, is_at_the_end: bool
) -> None:
    """Formerly the request, and all requests behind it, never had an answer."""
    pending = run(steps_of(world, waiting()))
    assert isinstance(pending, Pending)
    failure = KeyError("a mistake of ours")

    def fail(_partition: object, *_given: object, **_options: object) -> None:
        raise failure

    monkeypatch.setattr(type(world.partitions[0]), "read", fail)
    monkeypatch.setattr(fetch.Fetch, "_read", fail)
    if is_at_the_end:
        world.timers.advance(100)
    else:
        append(world, 1, b"b")
        world.timers.run_due()
    assert pending.is_done and pending.error is failure
    assert not world.waiters.deadlines.waits() and world.waiters.turns.is_idle
    assert not any(partition.notifier.watchers for partition in world.partitions)
