"""The checks of `ottla check eos`: which records read_committed readers get, what ends a producer's transaction, and when offsets that were
sent in a transaction become visible.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.cli.check.eos.proxy import CutAnswers, Proxy
from ottla.cli.check.eos.world import WAIT_SECONDS, NotSupported, Violation, World, shown
from ottla.client.addresses import parse_addresses
from ottla.client.blocking.cluster import TRANSACTION
from ottla.client.errors import RETRIABLE
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch

HOLD_SECONDS = 1.0
TRANSACTIONS = 40
ABORTS = 0.4
PARTITIONS = 3


def aborted_is_hidden(world: World) -> str:
    """Checks that aborted records between committed and plain records are never read."""
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
    """Checks that readers get no record after the first record of an open transaction, and all records in order after the commit."""
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
            raise Violation(f"with a transaction open, read_committed readers got {shown(seen)} instead of before")
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
    """Runs transactions over two topics and six partitions, some of them aborted. Checks that a concurrent reader gets each committed
    record once and not before the commit, and no aborted record."""
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
        raise Violation(f"{counted(len(extra), 'record')} of aborted transactions could be read")
    if missing:
        torn = {value.rsplit("/", 1)[1] for value in missing} & {value.rsplit("/", 1)[1] for value in watcher.seen}
        lost, parts = counted(len(missing), "committed record"), counted(len(torn), "transaction")
        raise Violation(f"{lost} could not be read, {parts} showed in part")
    if max(watcher.seen.values()) > 1:
        raise Violation("a committed record was read twice")
    early = [value for value, at in watcher.first_seen.items() if at < committed[int(value.rsplit("/", 1)[1])]]
    if early:
        raise Violation(f"{counted(len(early), 'record')} could be read before the commit was asked for")


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
        raise Violation("no Produce request came through the proxy")
    world.expect(topic, wanted)
    return f"{counted(len(wanted), 'record')}, once each and in order, though {cut.cuts} answers were lost with their connections"


PRODUCE_WITHOUT_ADD = 12  # from this version on Produce itself adds a partition to the transaction (KIP-890)
END_WITH_NEW_EPOCH = 5  # the first version of EndTxn whose answer has the epoch of the next transaction


def zombie_is_fenced(world: World) -> str:
    """Checks that a second producer with the same transactional id aborts the transaction of the first producer and fences it."""
    topic = world.topic("zombie")
    zombie = world.transactional("zombie")
    zombie.begin_transaction()
    world.write(zombie, topic, "open-when-replaced")
    successor = world.transactional("zombie")
    successor.begin_transaction()
    world.write(successor, topic, "successor")
    taken: list[str] = []
    zombie.produce(topic, "zombie", partition=0, on_delivery=lambda error, _: taken.append("zombie") if error is None else None)
    try:
        zombie.flush(WAIT_SECONDS)
        zombie.commit_transaction(WAIT_SECONDS)
    except world.kafka.KafkaException as error:
        refusal = error.args[0]
    else:
        raise Violation("the replaced producer could commit")
    if taken:
        raise Violation("a record of the replaced producer was taken")
    successor.commit_transaction(WAIT_SECONDS)
    world.write(world.producer(), topic, "end")
    world.expect(topic, ["successor", "end"])
    return f"its commit was refused: {refusal.name().lstrip('_')}"


# A delayed EndTxn


class _Producer:
    """A transactional producer that sends single requests on demand, which no stock client can do."""

    def __init__(self, world: World, suffix: str) -> None:
        self.world = world
        self.cluster = world.cluster
        self.name = f"{world.name}-{suffix}"
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = self.cluster.retrying(lambda: self._errors_of(self._request(request)))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequence = 0

    def _request(self, request: Any, version: int | None = None) -> Any:
        return self.cluster.connection(self.cluster.coordinator(TRANSACTION, self.name)).request(request, version=version)

    @staticmethod
    def _errors_of(answer: Any) -> Any:
        if answer.error_code:
            raise ApiError(error_code(answer.error_code))
        return answer

    def write(self, topic: str, value: str) -> None:
        now_ms = int(time.time() * 1000)
        batch = encode_batch(
            [Record(0, now_ms, None, value.encode())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=10_000, topic_data=[data])

        def attempt() -> None:
            connection = self.cluster.connection(self.cluster.leader(TopicPartition(topic, 0)))
            answer = connection.request(request, version=PRODUCE_WITHOUT_ADD)
            code = error_code(answer.responses[0].partition_responses[0].error_code)
            if code is not ErrorCode.NONE:
                raise ApiError(code)

        self.cluster.retrying(attempt)
        self.sequence += 1

    def end_request(self, *, is_commit: bool) -> EndTxnRequest:
        ids = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        return EndTxnRequest(transactional_id=self.name, committed=is_commit, **ids)

    def send(self, request: EndTxnRequest) -> EndTxnResponse:
        def attempt() -> EndTxnResponse:
            answer: EndTxnResponse = self._request(request, END_WITH_NEW_EPOCH)
            if error_code(answer.error_code) in RETRIABLE:
                raise ApiError(error_code(answer.error_code))
            return answer

        return self.cluster.retrying(attempt)

    def abort(self) -> None:
        answer = self._errors_of(self.send(self.end_request(is_commit=False)))
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0


def late_end_touches_nothing(world: World) -> str:
    """Sends an EndTxn(commit) for an aborted transaction late. Checks that it does not end the producer's next transaction (KIP-890)."""
    connection = world.cluster.any_connection()
    if not connection.offers(EndTxnRequest.API_KEY, END_WITH_NEW_EPOCH) or not _has_second_version(connection):
        raise NotSupported("no transaction.version 2: an EndTxn that comes late ends the producer's next transaction (KIP-890)")
    topic = world.topic("late")
    producer = _Producer(world, "late")
    producer.write(topic, "first")
    late = producer.end_request(is_commit=True)
    producer.abort()
    producer.write(topic, "second")
    answer = producer.send(late)
    seen = world.read(topic)
    if seen:
        raise Violation(f"it ended the next transaction: read_committed readers got {shown(seen)}")
    if not answer.error_code:
        raise Violation("a commit of an aborted transaction was answered with success")
    producer.abort()
    world.write(world.producer(), topic, "end")
    world.expect(topic, ["end"])
    return f"it was refused: {error_code(answer.error_code).name}"


def _has_second_version(connection: Any) -> bool:
    return any(one.name == "transaction.version" and one.max_version_level >= 2 for one in connection.api_versions.finalized_features)


TIMEOUT_MS = 1_000
LOOK_SECONDS = 10  # how often Apache Kafka looks for timed-out transactions by default
PATIENCE_SECONDS = 8


def time_out_is_enforced(world: World) -> str:
    """Checks that a transaction is aborted soon after its time-out, that readers continue, and that its producer cannot commit."""
    topic = world.topic("timeout")
    producer = world.transactional("timeout", timeout_ms=TIMEOUT_MS)
    producer.begin_transaction()
    world.write(producer, topic, "forgotten")
    world.write(world.producer(), topic, "behind")
    start = time.monotonic()
    world.expect(topic, ["behind"], TIMEOUT_MS / 1000 + LOOK_SECONDS + PATIENCE_SECONDS)
    seconds = time.monotonic() - start
    try:
        producer.commit_transaction(WAIT_SECONDS)
    except world.kafka.KafkaException as error:
        refusal = error.args[0]
    else:
        raise Violation("the producer could commit what had timed out")
    return f"aborted {seconds:.0f} s after a time-out of {TIMEOUT_MS / 1000:g} s; the commit was refused: {refusal.name().lstrip('_')}"


STABLE_SECONDS = 1.5
BEFORE, ABORTED, COMMITTED = 1, 5, 7


def offsets_follow_the_transaction(world: World) -> str:
    """Checks that OffsetFetch returns offsets of committed transactions, but not of aborted or open ones. An open transaction also blocks
    requests for stable offsets."""
    topic = world.topic("offsets")
    consumer = world.consumer("offsets")
    try:
        return _check(world, topic, consumer)
    finally:
        consumer.close()


def _check(world: World, topic: str, consumer: Any) -> str:
    def place(offset: int) -> list[Any]:
        return [world.kafka.TopicPartition(topic, 0, offset)]

    world.write(world.producer(), topic, *map(str, range(10)))
    consumer.commit(offsets=place(BEFORE), asynchronous=False)
    producer = world.transactional("offsets")
    group = consumer.consumer_group_metadata()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(place(ABORTED), group, WAIT_SECONDS)
    producer.abort_transaction(WAIT_SECONDS)
    _expect(world, topic, BEFORE, "after the abort")
    producer.begin_transaction()
    producer.send_offsets_to_transaction(place(COMMITTED), group, WAIT_SECONDS)
    loose = committed(world, topic, is_stable=False)
    if loose != BEFORE:
        raise Violation(f"with the transaction open, offset {loose} was returned instead of {BEFORE}")
    stable = committed(world, topic, is_stable=True, seconds=STABLE_SECONDS)
    if stable is not None:
        raise Violation(f"with the transaction open, {stable} was returned as a stable offset")
    producer.commit_transaction(WAIT_SECONDS)
    _expect(world, topic, COMMITTED, "after the commit")
    return "aborted and open ones did not show, committed ones did"


def _expect(world: World, topic: str, wanted: int, when: str) -> None:
    """Waits until the broker returns a stable offset. Raises `Violation` if it is not the wanted one, or if none is returned in time."""
    deadline = time.monotonic() + WAIT_SECONDS
    found = None
    while found is None:
        if time.monotonic() > deadline:
            raise Violation(f"{when}, no stable offset was returned within {WAIT_SECONDS:g} s")
        found = committed(world, topic, is_stable=True, seconds=STABLE_SECONDS)
    if found != wanted:
        raise Violation(f"{when}, offset {found} was returned instead of {wanted}")


def committed(world: World, topic: str, *, is_stable: bool, seconds: float = WAIT_SECONDS) -> int | None:
    """Returns the group's offset. Returns None if the broker answers that it is not stable, or if the client times out."""
    asked = world.kafka.ConsumerGroupTopicPartitions(f"{world.name}-offsets", [world.kafka.TopicPartition(topic, 0)])
    future = world.admin.list_consumer_group_offsets([asked], require_stable=is_stable, request_timeout=seconds)[asked.group_id]
    try:
        (found,) = future.result(2 * WAIT_SECONDS).topic_partitions
    except world.kafka.KafkaException as error:
        waits = (world.kafka.KafkaError._TIMED_OUT, world.kafka.KafkaError.UNSTABLE_OFFSET_COMMIT)
        if is_stable and error.args[0].code() in waits:
            return None
        raise
    return None if found.error is not None else int(found.offset)
