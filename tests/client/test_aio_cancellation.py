"""Cancelling a task of the asyncio client, at every place where it can wait, costs no other task its answer and leaves no socket open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client import aio
from ottla.client.core.operation import ClientOperation
from ottla.client.core.operations import Operations
from ottla.client.errors import ClientError, KafkaError
from ottla.testing.broker import Broker
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.records import Record, encode_batch
from tests.client.fake_group import GroupBroker

A = TopicPartition("t", 0)
HEARTBEAT = 12

Operation = Callable[[aio.AsyncClient], Coroutine[Any, Any, Any]]

OPERATIONS: dict[str, Operation] = {
    "topics": lambda client: client.topics(),
    "brokers": lambda client: client.brokers(),
    "describe_topic": lambda client: client.describe_topic("t"),
    "list_offsets": lambda client: client.list_offsets({A: -2}),
    "fetch": lambda client: client.fetch({A: 0}, isolation="read_uncommitted"),
    "committed": lambda client: client.committed("g", require_stable=False),
    "commit": lambda client: client.commit("g", {A: 3}),
}

TOKEN = bytes(range(16))
BATCH = bytes(encode_batch([Record(0, 0, None, b"v", ())]))
OTHERS: dict[str, Operation] = {
    "create_topic": lambda client: client.create_topic("made", partitions=2),
    "add_partitions": lambda client: client.add_partitions("grows", 3),
    "delete_topic": lambda client: client.delete_topic("goes"),
    "topic_configs": lambda client: client.topic_configs("t"),
    "alter_topic_configs": lambda client: client.alter_topic_configs("t", {"retention.ms": "86400000"}),
    "delete_records": lambda client: client.delete_records({A: 0}),
    "produce_batches": lambda client: client.produce_batches({A: [BATCH, BATCH]}),
    "offers_staging": lambda client: client.offers_staging(),
    "stage": lambda client: client.stage(TOKEN, 1, {A: {0: BATCH}}, timeout_s=1.0),
    "groups": lambda client: client.groups(),
    "describe_group": lambda client: client.describe_group("g"),
    "delete_group": lambda client: client.delete_group("g"),
    "transactions": lambda client: client.transactions(),
    "describe_transaction": lambda client: client.describe_transaction("x"),
    "fence": lambda client: client.fence("x"),
}
"""Operations that a real broker carries out; it may refuse what an earlier try has done."""
TOPICS = ("t", "grows", "goes", "u", "v")


class CancelledAt:
    """Awaits a coroutine and cancels it where it waits for the `place`th time; `was_reached`: whether it waited so often."""

    def __init__(self, work: Coroutine[Any, Any, Any], place: int) -> None:
        self.work = work
        self.place = place
        self.was_reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        waits = self.work.__await__()
        step: Callable[[Any], Any] = waits.send
        argument: Any = None
        for number in range(1_000_000):
            try:
                waiting_for = step(argument)
            except StopIteration as stop:
                return stop.value
            if number == self.place:
                self.was_reached = True
                if waiting_for is not None:
                    waiting_for._asyncio_future_blocking = False
                step, argument = waits.throw, asyncio.CancelledError()
                continue
            try:
                argument, step = (yield waiting_for), waits.send
            except BaseException as error:
                step, argument = waits.throw, error


async def _check(client: aio.AsyncClient) -> None:
    """Others on the same connections get their own answers."""
    answers = await asyncio.gather(*(client.cluster.run(client.cluster.core.ask_any(HeartbeatRequest(group_id=str(n)))) for n in range(5)))
    assert [answer.error_code for answer in answers] == list(range(5))


async def _check_topics(client: aio.AsyncClient) -> None:
    names = [name for name in await client.topics() if name in TOPICS]
    assert [found.name for found in await asyncio.gather(*(client.describe_topic(name) for name in names))] == names


async def _cancel_everywhere(address: str, operation: Operation, check: Callable[[aio.AsyncClient], Awaitable[None]] = _check) -> int:
    """Cancels an operation at its first place, then at its second, and so on; on a new client and on one that is connected."""
    places = 0
    for is_connected in (False, True):
        for place in range(100):
            async with aio.AsyncClient(aio.AsyncCluster(address, with_extensions=True)) as client:
                if is_connected:
                    await operation(client)
                cancelled = CancelledAt(operation(client), place)
                try:
                    await _awaited(cancelled)
                except asyncio.CancelledError:
                    assert cancelled.was_reached
                await check(client)
                await operation(client)
            if not cancelled.was_reached:
                break
            places += 1
    return places


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def _broker() -> GroupBroker:
    broker = GroupBroker(1)
    broker.values[0] = [b"a"]
    broker.script[HEARTBEAT] = lambda body, _version: HeartbeatResponse(error_code=int(body.group_id))
    return broker


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_may_be_cancelled_at_every_await(name: str) -> None:
    with _broker() as broker:
        places = asyncio.run(asyncio.wait_for(_cancel_everywhere(broker.address, OPERATIONS[name]), 120))
    assert places >= 3


@pytest.fixture(scope="module")
def real() -> Iterator[Broker]:
    with Broker(topics=TOPICS) as broker:
        yield broker


@pytest.mark.parametrize("name", OTHERS)
def test_an_operation_of_a_real_broker_may_be_cancelled_at_every_await(real: Broker, name: str) -> None:
    async def operation(client: aio.AsyncClient) -> None:
        with suppress(KafkaError):
            await OTHERS[name](client)

    assert asyncio.run(asyncio.wait_for(_cancel_everywhere(real.direct_server, operation, _check_topics), 120)) >= 1


def test_every_operation_is_cancelled() -> None:
    operations = {name for name, call in vars(Operations).items() if isinstance(call, ClientOperation)}
    assert operations == {*OPERATIONS, *OTHERS}


async def _close_while_connecting(broker: GroupBroker, turns: int) -> list[Any]:
    client = aio.AsyncClient(aio.AsyncCluster(broker.address))
    tasks = [asyncio.create_task(client.topics()), asyncio.create_task(client.fetch({A: 0}))]
    for _ in range(turns):
        await asyncio.sleep(0)
    await client.close()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    end = asyncio.get_running_loop().time() + 20
    while any(one.fileno() >= 0 for one in broker._sockets):  # the broker closes its end when this client has closed the other one
        assert asyncio.get_running_loop().time() < end, f"a socket is open after {turns} turns"
        await asyncio.sleep(0.001)
    return found


def test_closing_while_other_tasks_connect_refuses_them_and_leaves_no_socket() -> None:
    with _broker() as broker:
        for turns in range(40):
            found = asyncio.run(_close_while_connecting(broker, turns))
            assert all(isinstance(one, list | ClientError) for one in found), (turns, found)


def test_a_cancelled_task_is_cancelled_and_a_closed_client_refuses() -> None:
    async def work(broker: GroupBroker) -> None:
        client = aio.AsyncClient(aio.AsyncCluster(broker.address))
        task = asyncio.create_task(client.topics())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.topics() == ["t"]
        await client.close()
        with pytest.raises(ClientError, match="the client was closed"):
            await client.topics()

    with _broker() as broker:
        asyncio.run(work(broker))
