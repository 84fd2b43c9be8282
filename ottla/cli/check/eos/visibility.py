"""Checks what read_committed readers get: no aborted records, no open ones, all records of a transaction or none, and each once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from ottla.base.counted import counted
from ottla.cli.check.eos.proxy import CutAnswers, Proxy
from ottla.cli.check.eos.verdict import Broken, NotSupported
from ottla.cli.check.eos.world import WAIT_SECONDS, World, shown
from ottla.client.addresses import parse_addresses

HOLD_SECONDS = 1.0
TRANSACTIONS = 40
ABORTS = 0.4
PARTITIONS = 3


def aborted_is_hidden(world: World) -> str:
    """Aborted records between committed and plain ones are never read."""
    topic = world.topic("aborted")
    producer, plain = world.transactional("aborted"), world.producer()
    wanted: list[str] = []
    for number in range(3):
        for word, end in (("kept", producer.commit_transaction), ("aborted", producer.abort_transaction)):
            producer.begin_transaction()
            world.write(producer, topic, f"{word}-{number}a", f"{word}-{number}b")
            end(WAIT_SECONDS)
        world.write(plain, topic, f"plain-{number}")
        wanted += [f"kept-{number}a", f"kept-{number}b", f"plain-{number}"]
    world.expect(topic, wanted)
    return "3 aborted transactions among committed and plain records"


def open_holds_back(world: World) -> str:
    """No record after the first one of an open transaction is read, plain ones included; after the commit all are, in order."""
    topic = world.topic("open")
    producer, plain = world.transactional("open"), world.producer()
    world.write(plain, topic, "before")
    producer.begin_transaction()
    world.write(producer, topic, "inside")
    world.write(plain, topic, "behind")
    world.expect(topic, ["before"])
    deadline = time.monotonic() + HOLD_SECONDS
    while time.monotonic() < deadline:
        seen = world.read(topic)
        if seen != ["before"]:
            raise Broken(f"with a transaction open, read_committed readers got {shown(seen)} instead of before")
    producer.commit_transaction(WAIT_SECONDS)
    world.expect(topic, ["before", "inside", "behind"])
    return f"readers waited {HOLD_SECONDS:g} s and got all after the commit"


# Atomicity


class _Watcher:
    """Reads under read_committed while transactions run; records when and how often each record was read."""

    def __init__(self, world: World, topics: list[str]) -> None:
        self.seen: Counter[str] = Counter()
        self.first_seen: dict[str, float] = {}
        self._is_over = threading.Event()
        self._consumer: Any = world.consumer("watcher", fetch_wait_max_ms=10)
        self._consumer.assign([world.kafka.TopicPartition(topic, partition, 0) for topic in topics for partition in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is None:
                    value = f"{message.topic()}/{message.partition()}/{message.value().decode()}"
                    self.seen[value] += 1
                    self.first_seen.setdefault(value, time.monotonic())

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(WAIT_SECONDS)
        self._consumer.close()


def all_or_nothing(world: World) -> str:
    """Runs transactions over two topics and six partitions, some aborted, while a reader reads."""
    topics = [world.topic("atomic-a", PARTITIONS), world.topic("atomic-b", PARTITIONS)]
    producer, dice = world.transactional("atomic"), random.Random(1)
    watcher = _Watcher(world, topics)
    committed: dict[int, float] = {}
    try:
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            for topic in topics:
                for partition in range(PARTITIONS):
                    world.write(producer, topic, str(number), partition=partition)
            if dice.random() < ABORTS and number != TRANSACTIONS - 1:
                producer.abort_transaction(WAIT_SECONDS)
            else:
                committed[number] = time.monotonic()
                producer.commit_transaction(WAIT_SECONDS)
        wanted = {f"{topic}/{partition}/{number}" for topic in topics for partition in range(PARTITIONS) for number in committed}
        deadline = time.monotonic() + WAIT_SECONDS
        while not wanted <= watcher.seen.keys() and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        watcher.stop()
    _check_reads(watcher, wanted, committed)
    return f"{len(committed)} committed and {TRANSACTIONS - len(committed)} aborted transactions over 2 topics and 6 partitions"


def _check_reads(watcher: _Watcher, wanted: set[str], committed: dict[int, float]) -> None:
    missing, extra = wanted - watcher.seen.keys(), watcher.seen.keys() - wanted
    if extra:
        raise Broken(f"{counted(len(extra), 'record')} of aborted transactions could be read")
    if missing:
        torn = {value.rsplit("/", 1)[1] for value in missing} & {value.rsplit("/", 1)[1] for value in watcher.seen}
        raise Broken(f"{counted(len(missing), 'committed record')} could not be read, {counted(len(torn), 'transaction')} showed in part")
    if max(watcher.seen.values()) > 1:
        raise Broken("a committed record was read twice")
    early = [value for value, at in watcher.first_seen.items() if at < committed[int(value.rsplit("/", 1)[1])]]
    if early:
        raise Broken(f"{counted(len(early), 'record')} could be read before the commit was asked for")


PRODUCE = 0
BATCHES = 12
BATCH_RECORDS = 5
CUT_EVERY = 3


def retry_writes_once(world: World) -> str:
    if not world.is_plaintext:
        raise NotSupported("the proxy that cuts connections cannot look into TLS")
    topic = world.topic("retry")
    cut = CutAnswers(PRODUCE, CUT_EVERY)
    wanted = [f"{batch}-{number}" for batch in range(BATCHES) for number in range(BATCH_RECORDS)]
    with Proxy(parse_addresses(world.bootstrap), cut) as proxy:
        producer = world.producer(bootstrap_servers=proxy.address)
        for start in range(0, len(wanted), BATCH_RECORDS):
            world.write(producer, topic, *wanted[start : start + BATCH_RECORDS])
    if not cut.cuts:
        raise Broken("no Produce request came through the proxy")
    world.expect(topic, wanted)
    return f"{counted(len(wanted), 'record')}, once each and in order, though {cut.cuts} answers were lost with their connections"
