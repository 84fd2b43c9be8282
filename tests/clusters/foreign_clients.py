"""Runs third-party clients on a cluster, each in its own process: kafka-python and aiokafka leave sockets of refused connections to the
garbage collector, and the test that runs at that time would fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from typing import Any, ParamSpec, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError

from tests.clients.broker_process import eventually

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
COUNT = 300
SECONDS = 60


def in_a_process(work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
    """Calls a function of this module in a new process. Returns its result or raises its exception."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **named).result()


def values(prefix: str) -> list[bytes]:
    return [b"%s %d" % (prefix.encode(), number) for number in range(COUNT)]


# Each client writes some values without a transaction, then in a transaction that it aborts, then in one that it commits; and reads the
# committed values.


def write_by_confluent(address: str, topic: str) -> None:
    plain = Producer({"bootstrap.servers": address, "enable.idempotence": True, "acks": "all"})
    for value in values("plain"):
        plain.produce(topic, value)
    assert plain.flush(SECONDS) == 0
    client = Producer({"bootstrap.servers": address, "transactional.id": topic})
    client.init_transactions(SECONDS)
    for prefix in ("aborted", "committed"):
        client.begin_transaction()
        for value in values(prefix):
            client.produce(topic, value)
        if prefix == "aborted":
            client.abort_transaction(SECONDS)
        else:
            client.commit_transaction(SECONDS)


def read_by_confluent(address: str, topic: str, group: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    found: list[bytes] = []
    with closing(Consumer(settings)) as client:
        client.subscribe([topic])

        def has_all() -> bool:
            found.extend(message.value() for message in client.consume(1000, 0.2) if message.error() is None)
            return len(found) >= count

        eventually(has_all, SECONDS)
        client.commit(asynchronous=False)
    return found


def write_by_kafka_python(address: str, topic: str) -> None:
    with closing(KafkaProducer(bootstrap_servers=address, acks="all")) as plain:
        for sent in [plain.send(topic, value) for value in values("plain")]:
            sent.get(SECONDS)
    with closing(KafkaProducer(bootstrap_servers=address, transactional_id=topic)) as client:
        client.init_transactions()
        for prefix in ("aborted", "committed"):
            client.begin_transaction()
            for sent in [client.send(topic, value) for value in values(prefix)]:
                sent.get(SECONDS)
            if prefix == "aborted":
                client.abort_transaction()
            else:
                client.commit_transaction()


def read_by_kafka_python(address: str, topic: str, group: str, count: int) -> list[bytes]:
    # A member that assigns partitions before it has the topic's metadata assigns them again only after the metadata was refreshed.
    settings = {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": "read_committed", "metadata_max_age_ms": 1_000}
    found: list[bytes] = []
    with closing(KafkaConsumer(topic, bootstrap_servers=address, **settings)) as client:

        def has_all() -> bool:
            try:
                polled = client.poll(200)
            except KafkaConnectionError:  # raised if the broker that is asked for metadata has stopped; the next call asks another one
                return False
            found.extend(record.value for records in polled.values() for record in records)
            return len(found) >= count

        eventually(has_all, SECONDS)
        client.commit()
    return found


def finish(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(asyncio.wait_for(work, SECONDS))


def write_by_aiokafka(address: str, topic: str) -> None:
    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True) as plain:
            await asyncio.gather(*[await plain.send(topic, value) for value in values("plain")])
        async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as client:
            for prefix in ("aborted", "committed"):
                await client.begin_transaction()
                await asyncio.gather(*[await client.send(topic, value) for value in values(prefix)])
                await (client.abort_transaction() if prefix == "aborted" else client.commit_transaction())

    finish(work())


def read_by_aiokafka(address: str, topic: str, group: str, count: int) -> list[bytes]:
    async def work() -> list[bytes]:
        settings = {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with AIOKafkaConsumer(topic, bootstrap_servers=address, **settings) as client:
            found = [(await client.getone()).value for _ in range(count)]
            await client.commit()
            return found

    return finish(work())


Write = Callable[[str, str], None]
Read = Callable[[str, str, str, int], list[bytes]]
CLIENTS: dict[str, tuple[Write, Read]] = {
    "confluent": (write_by_confluent, read_by_confluent),
    "kafka-python": (write_by_kafka_python, read_by_kafka_python),
    "aiokafka": (write_by_aiokafka, read_by_aiokafka),
}
