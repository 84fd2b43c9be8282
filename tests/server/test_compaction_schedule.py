"""Compaction in a running broker: clients continue meanwhile, and a kill or a deletion during compaction neither loses nor revives
records."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
)

from ottla.base.types import TopicPartition as Key
from ottla.controller.api import NewTopic as CreatedTopic
from ottla.replication.partition import Partition
from ottla.server.app import BrokerServer
from ottla.storage import compaction_plan
from ottla.storage.small_files import CLEANER_OFFSET_FILE, read_offsets
from ottla.wire.records import Record, encode_batch, read_records
from tests.adapters.test_worker_process import is_alive
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.left_open import leaves_nothing_open
from tests.server.conftest import MakeServer, serving
from tests.server.threads import run_until

__all__ = ["leaves_nothing_open"]

SEGMENT_BYTES = 20_000
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
SETTINGS = (
    "log.cleaner.backoff.ms=50",
    "log.cleaner.min.cleanable.ratio=0.01",
    "offsets.topic.num.partitions=1",
    "offsets.topic.segment.bytes=10000",
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.segment.bytes=10000",
    "log.segment.delete.delay.ms=0",
    "ottla.log.format=text",
)
QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


# Against a broker process, with a stock client


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, SETTINGS)
    yield process
    if process.is_running:
        process.stop()


def create(broker: BrokerProcess, topic: str, **configs: str) -> str:
    wanted = {**COMPACTED, **{name.replace("_", "."): value for name, value in configs.items()}}
    with AdminClient({"bootstrap.servers": broker.address, **QUIET}) as client:
        client.create_topics([NewTopic(topic, 1, 1, config=wanted)])[topic].result(60)
    return topic


def producer(broker: BrokerProcess, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.address, "acks": "all", "linger.ms": 1, **QUIET, **settings})


def reader(broker: BrokerProcess, topic: str) -> Consumer:
    settings = {"group.id": "reader", "enable.partition.eof": True, "isolation.level": "read_committed", "check.crcs": True}
    client = Consumer({"bootstrap.servers": broker.address, "enable.auto.commit": False, **QUIET, **settings})
    client.assign([TopicPartition(topic, 0, 0)])
    return client


def read_all(broker: BrokerProcess, topic: str) -> list[Message]:
    """Returns all records that a reader of committed data gets, from the first to the last."""
    client = reader(broker, topic)
    found: list[Message] = []
    deadline = time.monotonic() + 30
    while True:
        for message in client.consume(5000, 0.05):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                client.close()
                return found
            found.append(message)
        assert time.monotonic() < deadline, "the end of the topic does not come"


def last_values(messages: list[Message]) -> dict[bytes, bytes | None]:
    return {message.key(): message.value() for message in messages}


def fill(client: Producer, topic: str, values: dict[bytes, bytes | None], rounds: int, *, keys: int = 50) -> None:
    """Overwrites `keys` keys repeatedly. `values` gets the last value of each key."""
    for number in range(rounds):
        for key in range(keys):
            name, value = b"key-%d" % key, b"%d-%d" % (number, key)
            values[name] = value
            client.produce(topic, value, name)
        client.flush()


def clean_to(broker: BrokerProcess, topic: str) -> int:
    """Returns the first dirty offset in the checkpoint on the disk."""
    path = broker.data / CLEANER_OFFSET_FILE
    found = path.read_text().split("\n")[2:] if path.exists() else []
    return max((int(line.split()[2]) for line in found if line.startswith(f"{topic} 0 ")), default=0)


def directory_bytes(broker: BrokerProcess, topic: str) -> int:
    total = 0
    for path in (broker.data / f"{topic}-0").glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # compacted away since the folder was listed
            total += path.stat().st_size
    return total


def workers(broker: BrokerProcess) -> list[psutil.Process]:
    return list(psutil.Process(broker.pid).children())


def transact(broker: BrokerProcess, topic: str, values: dict[bytes, bytes | None], rounds: int) -> None:
    """Writes transactions and aborts every second one. `values` gets only the committed values."""
    client = producer(broker, **{"transactional.id": f"writer-{topic}"})
    client.init_transactions(20)
    for number in range(rounds):
        is_committed = number % 2 == 0
        client.begin_transaction()
        for key in range(20):
            value = b"%s-%d" % (b"committed" if is_committed else b"aborted", number)
            client.produce(topic, value, b"txn-%d" % key)
            if is_committed:
                values[b"txn-%d" % key] = value
        if is_committed:
            client.commit_transaction(20)
        else:
            client.abort_transaction(20)


def test_i8_i24_clients_go_on_while_the_log_is_compacted(broker: BrokerProcess) -> None:
    topic = create(broker.start(), "accounts")
    plain: dict[bytes, bytes | None] = {}
    transacted: dict[bytes, bytes | None] = {}
    seen: dict[bytes, bytes | None] = {}
    is_over = threading.Event()

    def follow() -> None:
        client = reader(broker, topic)
        offset = -1
        while not is_over.is_set() or len(seen) < len(plain) + len(transacted) or seen != {**plain, **transacted}:
            for message in client.consume(500, 0.05):
                if message.error() is None:
                    assert message.offset() > offset, "offsets go up"
                    offset = message.offset()
                    seen[message.key()] = message.value()
        client.close()

    threads = [
        threading.Thread(target=work, args=arguments)
        for work, arguments in [(fill, (producer(broker), topic, plain, 150)), (transact, (broker, topic, transacted, 40)), (follow, ())]
    ]
    for thread in threads:
        thread.start()
    for thread in threads[:2]:
        thread.join(60)
    expected = {**plain, **transacted}
    is_over.set()
    threads[2].join(30)
    assert seen == expected, "a reader that followed has the same in the end"
    eventually(lambda: directory_bytes(broker, topic) < 3 * SEGMENT_BYTES)
    eventually(lambda: len(read_all(broker, topic)) < 2500)  # 7,900 committed records were written over 70 keys
    messages = read_all(broker, topic)
    assert last_values(messages) == expected
    assert not [message for message in messages if message.value().startswith(b"aborted")]
    assert clean_to(broker, topic) > 3000
    broker.restart()
    assert last_values(read_all(broker, topic)) == expected


def test_tombstones_go_after_their_time(broker: BrokerProcess) -> None:
    topic = create(broker.start(), "users", delete_retention_ms="300")
    client = producer(broker)
    values: dict[bytes, bytes | None] = {}
    client.produce(topic, b"somebody", b"gone")
    fill(client, topic, values, 2)
    client.produce(topic, None, b"gone")
    fill(client, topic, values, 20)
    eventually(lambda: clean_to(broker, topic) > 150)
    kept = [message for message in read_all(broker, topic) if message.key() == b"gone"]
    assert [message.value() for message in kept] == [None], "the value is gone at once, the tombstone is there for readers to see"
    for _ in range(100):
        fill(client, topic, values, 8)  # only a log with dirty records is examined
        if b"gone" not in last_values(read_all(broker, topic)):
            break
    assert last_values(read_all(broker, topic)) == values


def test_i36_coordinators_logs_are_compacted_and_loaded_again(broker: BrokerProcess) -> None:
    topic = create(broker.start(), "work")
    fill(producer(broker), topic, {}, 1)
    transact(broker, topic, {}, 60)
    with closing(Consumer({"bootstrap.servers": broker.address, "group.id": "workers", "enable.auto.commit": False, **QUIET})) as client:
        for offset in range(400):
            client.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    eventually(lambda: clean_to(broker, "__consumer_offsets") > 200 and clean_to(broker, "__transaction_state") > 50)
    broker.crash()
    group = ConsumerGroupTopicPartitions("workers", [TopicPartition(topic, 0)])
    with AdminClient({"bootstrap.servers": broker.address, **QUIET}) as admin:
        found = admin.list_consumer_group_offsets([group])["workers"].result(60)
    assert found.topic_partitions[0].offset == 399
    values: dict[bytes, bytes | None] = {}
    transact(broker, topic, values, 2)
    assert last_values(read_all(broker, topic))[b"txn-1"] == values[b"txn-1"], "the transactional id is kept"


def test_i43_kills_of_worker_and_broker_in_the_middle(broker: BrokerProcess) -> None:
    broker.settings.append("log.cleaner.io.max.bytes.per.second=30000")
    topic = create(broker.start(), "ledger")
    values: dict[bytes, bytes | None] = {}
    fill(producer(broker), topic, values, 60)
    directory = broker.data / f"{topic}-0"
    eventually(lambda: workers(broker) and list(directory.glob("*.cleaned")))
    workers(broker)[0].kill()
    eventually(lambda: "ended before its work did" in broker.log_text())
    assert last_values(read_all(broker, topic)) == values
    eventually(lambda: workers(broker) and list(directory.glob("*.cleaned")))
    (worker,) = workers(broker)
    broker.settings.pop()
    broker.crash()
    eventually(lambda: not is_alive(worker.pid))
    assert last_values(read_all(broker, topic)) == values
    eventually(lambda: clean_to(broker, topic) > 2000)
    assert last_values(read_all(broker, topic)) == values
    assert not list(directory.glob("*.cleaned")) and not list(directory.glob("*.swap"))


# A broker in this process


def make_topic(server: BrokerServer, name: str, **configs: str) -> Partition:
    wanted: dict[str, str | None] = {**COMPACTED, **{key.replace("_", "."): value for key, value in configs.items()}}
    server.node.controller.create_topics([CreatedTopic(name=name, num_partitions=1, configs=wanted)], False, lambda results: None)
    partition = server.node.partitions.get(name, 0)
    assert partition is not None
    return partition


def append(partition: Partition, rounds: int, *, timestamp: int = 5) -> None:
    for number in range(rounds):
        records = [Record(0, timestamp, b"key-%d" % key, b"%d" % number * 20) for key in range(50)]
        partition.require_leading().append(encode_batch(records), acks=1, now_ms=timestamp)


def table(partition: Partition) -> dict[bytes | None, bytes | None]:
    found = {}
    offset = partition.log.log_start_offset
    while (piece := partition.log.read(offset, 1, end_offset=partition.log.log_end_offset)) is not None:
        for record in read_records(piece.read()):
            found[record.key] = record.value
            offset = record.offset + 1
    return found


def worker_pid(server: BrokerServer) -> int | None:
    """Returns the pid of the worker process, or None if none is running."""
    worker = server.node.housekeeping.compaction._worker
    return worker.pid if worker is not None else None


def is_compacted(server: BrokerServer, partition: Partition) -> bool:
    return server.node.housekeeping.compaction.first_dirty_offset(partition) > 0


def one_round(loop: asyncio.AbstractEventLoop, server: BrokerServer) -> None:
    """Runs one round over all logs, and waits until it has ended."""
    compactor = server.node.housekeeping.compaction
    compactor.look()
    run_until(loop, lambda: not compactor.is_under_way)


STILL = "log.cleaner.backoff.ms=3600000"


def test_nothing_is_started_before_something_is_due(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server(STILL)
    partition = make_topic(server, "t")
    append(partition, 1)
    one_round(loop, server)
    assert worker_pid(server) is None and not is_compacted(server, partition)
    append(partition, 40)
    expected = table(partition)
    one_round(loop, server)
    assert worker_pid(server) is not None and is_compacted(server, partition)
    assert table(partition) == expected and partition.log.size_bytes < 2 * SEGMENT_BYTES
    for _ in range(5):
        one_round(loop, server)
    run_until(loop, lambda: worker_pid(server) is None)


def test_what_was_compacted_is_known_after_a_restart(make_server: MakeServer, loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    server = make_server(STILL)
    partition = make_topic(server, "t")
    append(partition, 40)
    one_round(loop, server)
    first_dirty = server.node.housekeeping.compaction.first_dirty_offset(partition)
    directory = server.directories[0]
    path = f"{directory.path}/{CLEANER_OFFSET_FILE}"
    run_until(loop, lambda: read_offsets(server.disk, path) == {Key("t", 0): first_dirty})
    loop.run_until_complete(server.stop())
    with serving(loop, server.config) as again:
        reopened = again.node.partitions.get("t", 0)
        assert reopened is not None
        assert again.node.housekeeping.compaction.first_dirty_offset(reopened) == first_dirty


def spoil(what: str, server: BrokerServer, partition: Partition) -> None:
    if what == "deleted":
        server.node.partitions.delete(partition.topic_partition, partition.topic_id)
    elif what == "truncated":
        partition.log.truncate_to(60)
    else:
        partition.go_offline("for a test")


@pytest.mark.parametrize("what", ["deleted", "truncated", "offline"])
def test_i41_a_log_that_changed_meanwhile_keeps_what_it_has(make_server: MakeServer, loop: asyncio.AbstractEventLoop, what: str) -> None:
    server = make_server(STILL)
    partition = make_topic(server, "t")
    append(partition, 40)
    compactor = server.node.housekeeping.compaction
    compactor.look()
    assert compactor.is_under_way
    spoil(what, server, partition)
    bases = [segment.base_offset for segment in partition.log.segments]
    run_until(loop, lambda: not compactor.is_under_way)
    assert [segment.base_offset for segment in partition.log.segments] == bases
    assert not is_compacted(server, partition)
    if what == "truncated":
        assert table(partition) == {b"key-%d" % key: b"0" * 20 for key in range(50)}


def test_a_log_that_cannot_be_compacted_is_logged_and_does_not_hold_up_others(
    make_server: MakeServer, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(STILL)
    damaged, sound = make_topic(server, "damaged"), make_topic(server, "sound")
    for partition in (damaged, sound):
        append(partition, 40)
    damaged.log.segments[0].file().pwrite(b"\xff", 100)
    one_round(loop, server)
    assert is_compacted(server, sound) and not is_compacted(server, damaged)
    assert "damaged-0 was not compacted" in caplog.text and damaged.is_online
    line_count = len(caplog.records)
    one_round(loop, server)
    assert len(caplog.records) == line_count, "it is left alone for a while"


def test_an_old_record_does_not_hide_in_the_active_segment(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server(STILL)
    partition = make_topic(server, "t", max_compaction_lag_ms="1000", min_cleanable_dirty_ratio="1")
    append(partition, 2)
    one_round(loop, server)
    assert partition.log.size_bytes < 2500 and len(table(partition)) == 50 and is_compacted(server, partition)


def test_young_records_wait(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server(STILL)
    partition = make_topic(server, "t", min_compaction_lag_ms="3600000")
    append(partition, 40, timestamp=server.clock.wall_ms())
    one_round(loop, server)
    assert not is_compacted(server, partition)


def test_one_log_is_planned_in_each_step(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server(STILL)
    for number in range(30):
        make_topic(server, f"t{number}")
    planned: list[object] = []

    def plan(log: object, **_: object) -> Iterator[None]:
        planned.append(log)
        return iter(())

    monkeypatch.setattr(compaction_plan, "plan_in_steps", plan)
    counts = [len(planned) for _ in server.node.housekeeping.compaction._round()]
    assert len(planned) == 30 and all(after - before <= 1 for before, after in itertools.pairwise(counts))


@pytest.mark.parametrize("setting", ["log.cleaner.enable=false", "log.cleaner.threads=0"])
def test_it_can_be_switched_off(make_server: MakeServer, loop: asyncio.AbstractEventLoop, setting: str) -> None:
    server = make_server("log.cleaner.backoff.ms=50", setting)
    partition = make_topic(server, "t")
    append(partition, 40)
    rounds = itertools.count()
    run_until(loop, lambda: next(rounds) > 40)
    assert worker_pid(server) is None and not is_compacted(server, partition)


def test_compact_and_delete_together(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server(STILL)
    partition = make_topic(server, "t", cleanup_policy="compact,delete", retention_ms="3600000")
    now_ms = server.clock.wall_ms()
    append(partition, 20, timestamp=now_ms - 7_200_000)
    append(partition, 60, timestamp=now_ms)
    one_round(loop, server)
    assert is_compacted(server, partition) and partition.log.log_start_offset == 0
    server.node.housekeeping.apply_retention()
    assert len(table(partition)) == 50
    loop.run_until_complete(asyncio.sleep(0))
    later = make_topic(server, "u", cleanup_policy="compact,delete", retention_ms="1000")
    append(later, 20)
    server.node.housekeeping.apply_retention()
    assert later.log.log_start_offset == 1000 and later.log.size_bytes == 0, "retention takes what is old, compacted or not"
