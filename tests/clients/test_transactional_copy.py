"""Consume, transform and produce with stock clients: the output is exactly right, whatever is aborted, abandoned or killed (I23).
`test_random_aborts` runs a copy with each client library and ends its transactions at random: commit, abort, abort without offsets, or the
client is dropped and a new one takes over the transactional id. `test_kills` kills the broker and the worker with -9 while numbers are
written. `OTTLA_COPY_ROUNDS` is the number of kills; a table is printed at the end (`pytest -s` shows it).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.copied import SECONDS, Feed, Worker, consumed, doubled, fill, make_topics, numbers_in
from tests.clients.copying import PATIENT

Fresh = Callable[[str], str]
COPY_ROUNDS = int(os.environ.get("OTTLA_COPY_ROUNDS", "6"))
RECORDS = 300
BATCH_MAX = 25
ENDS = {"commit": 12, "abort": 5, "abort early": 2, "abandon": 1}
"""How a transaction ends, and how often."""


class Plan:
    """How each transaction is to end, and how it ended."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.done: Counter[str] = Counter()

    def next_end(self) -> str:
        names = list(ENDS)
        # The first four transactions end in the four ways, so that every run has each of them.
        number = self.done.total()
        name = names[-1 - number] if number < len(names) else self._chance.choices(names, list(ENDS.values()))[0]
        self.done[name] += 1
        return name


# Random aborts, by each client


def copy_by_confluent(address: str, source: str, target: str, group: str, plan: Plan) -> None:
    def producer() -> Producer:
        client = Producer({"bootstrap.servers": address, "transactional.id": group, "linger.ms": 0})
        client.init_transactions(SECONDS)
        return client

    reading = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    writer, copied = producer(), 0
    with closing(Consumer({"bootstrap.servers": address, "fetch.wait.max.ms": 50, **reading})) as reader:
        reader.subscribe([source])
        while copied < RECORDS:
            messages = [message for message in reader.consume(BATCH_MAX, 0.2) if message.error() is None]
            if not messages:
                continue
            end = plan.next_end()
            writer.begin_transaction()
            for message in messages:
                writer.produce(target, b"%d" % (2 * int(message.value())), partition=message.partition())
            if end != "abort early":
                writer.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(), SECONDS)
            if end == "commit":
                writer.commit_transaction(SECONDS)
                copied += len(messages)
                continue
            writer.flush(SECONDS)
            if end == "abandon":
                writer = producer()
            else:
                writer.abort_transaction(SECONDS)
            first = {message.partition(): message.offset() for message in reversed(messages)}
            for partition, offset in first.items():
                reader.seek(TopicPartition(source, partition, offset))


def copy_by_kafka_python(address: str, source: str, target: str, group: str, plan: Plan) -> None:
    def producer() -> Any:
        client = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=group)
        client.init_transactions()
        return client

    writers, copied = [producer()], 0
    reader = kafka.KafkaConsumer(
        source,
        bootstrap_servers=address,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=50,
    )
    with closing(reader):
        while copied < RECORDS:
            polled = reader.poll(200, max_records=BATCH_MAX)
            if not polled:
                continue
            end, writer = plan.next_end(), writers[-1]
            writer.begin_transaction()
            for place, records in polled.items():
                for record in records:
                    writer.send(target, b"%d" % (2 * int(record.value)), partition=place.partition)
            if end != "abort early":
                offsets = {place: kafka.OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in polled.items()}
                writer.send_offsets_to_transaction(offsets, reader.group_metadata())
            if end == "commit":
                writer.commit_transaction()
                copied += sum(map(len, polled.values()))
                continue
            writer.flush()
            if end == "abandon":
                writers.append(producer())
            else:
                writer.abort_transaction()
            for place, records in polled.items():
                reader.seek(place, records[0].offset)
    for writer in writers:
        writer.close(timeout=1)


async def copy_by_aiokafka(address: str, source: str, target: str, group: str, plan: Plan) -> None:
    async def producer() -> Any:
        client = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id=group)
        await client.start()
        return client

    writers, copied = [await producer()], 0
    reader = aiokafka.AIOKafkaConsumer(
        source,
        bootstrap_servers=address,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=50,
    )
    await reader.start()
    while copied < RECORDS:
        polled = await reader.getmany(timeout_ms=200, max_records=BATCH_MAX)
        if not polled:
            continue
        end, writer = plan.next_end(), writers[-1]
        await writer.begin_transaction()
        for place, records in polled.items():
            for record in records:
                await writer.send(target, b"%d" % (2 * int(record.value)), partition=place.partition)
        if end != "abort early":
            await writer.send_offsets_to_transaction({place: records[-1].offset + 1 for place, records in polled.items()}, group)
        if end == "commit":
            await writer.commit_transaction()
            copied += sum(map(len, polled.values()))
            continue
        await writer.flush()
        if end == "abandon":
            writers.append(await producer())
        else:
            await writer.abort_transaction()
        for place, records in polled.items():
            reader.seek(place, records[0].offset)
    await reader.stop()
    for writer in writers:
        await writer.stop()


Copy = Callable[[str, str, str, str, Plan], None]
COPIES: dict[str, Copy] = {
    "confluent": copy_by_confluent,
    "kafka-python": copy_by_kafka_python,
    "aiokafka": lambda *arguments: asyncio.run(asyncio.wait_for(copy_by_aiokafka(*arguments), 3 * SECONDS)),
}


@pytest.mark.parametrize("name", COPIES)
def test_random_aborts(broker: BrokerProcess, fresh: Fresh, name: str) -> None:
    """I23, I26, I32: the copy is exact, and the log contains aborted records, which proves that they were hidden."""
    source, target, plan = fresh("source"), fresh("target"), Plan(seed=len(name))
    make_topics(broker.address, source, target)
    fill(broker.address, source, range(RECORDS))
    COPIES[name](broker.address, source, target, fresh("copier"), plan)
    assert numbers_in(broker.address, target) == doubled(RECORDS)
    assert all(plan.done[end] for end in ENDS), plan.done
    assert sum(map(len, numbers_in(broker.address, target, "read_uncommitted").values())) > RECORDS


# Kills


def table(rounds: Counter[str], figures: dict[str, object]) -> str:
    cells = {"rounds": rounds.total(), **{f"kills of {name}": count for name, count in sorted(rounds.items())}, **figures}
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (cells, ["---"] * len(cells), cells.values()))


@pytest.mark.timeout(120 + 30 * COPY_ROUNDS)
def test_kills(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """I23, I28, I32, I43: each kill interrupts running work, because the copy must have advanced since the previous kill."""
    broker, chance, started = own_broker.start(), random.Random(7), time.monotonic()
    make_topics(broker.address, "source", "target")
    with AdminClient({"bootstrap.servers": broker.address, **PATIENT}) as admin:
        feed, worker = Feed(broker.address, "source"), Worker(broker.address, "source", "target", "copiers", log=tmp_path / "worker.log")
        worker.start()
        rounds: Counter[str] = Counter()
        position = 0
        try:
            for number in range(COPY_ROUNDS):
                eventually(lambda position=position: consumed(admin, "copiers") > position, 120, 0.05)  # type: ignore[misc]
                time.sleep(chance.random() * 0.5)
                position = max(position, consumed(admin, "copiers"))
                victim = ("broker", "worker", "both")[number % 3]
                rounds[victim] += 1
                if victim == "both":
                    worker.kill()
                    broker.crash()
                    worker.start()
                else:
                    (broker if victim == "broker" else worker).crash()
            count = feed.stop()
            eventually(lambda: consumed(admin, "copiers") >= count, 180 + COPY_ROUNDS, 0.2)
        finally:
            worker.kill()
    copied = numbers_in(broker.address, "target")
    written = sum(map(len, numbers_in(broker.address, "target", "read_uncommitted").values()))
    found, expected = (Counter(chain.from_iterable(one.values())) for one in (copied, doubled(count)))
    duplicates, losses = (found - expected).total(), (expected - found).total()
    figures = {"records": count, "aborted": written - found.total(), "duplicates": duplicates, "losses": losses}
    print("\n" + table(rounds, {**figures, "seconds": round(time.monotonic() - started)}))
    assert (duplicates, losses) == (0, 0)
    assert copied == doubled(count)
