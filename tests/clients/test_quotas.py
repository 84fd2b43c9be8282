"""Quotas with stock clients: a producer, a consumer and an admin client are limited to their rates, other clients are not. A producer that
sends as fast as it may uses up its quota in bursts, with a long pause after each. Its rate is therefore measured from the end of one pause
to the end of a later one, so that it does not depend on the start of the measurement. A busy machine can only make clients slower.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition

from tests.clients.broker_process import ROOT, BrokerProcess
from tests.clients.conftest import SETTINGS

RECORD = b"x" * 10_000
PRODUCE_RATE, FETCH_RATE = 200_000, 400_000
PAUSE_SECONDS = 0.9
PAUSES = 3
ATTEMPTS = 3
SECONDS_MAX = 120
WINDOWS_SECONDS = 2
WINDOWS = (f"quota.window.num={WINDOWS_SECONDS}", "controller.quota.window.num=2", "max.connections.per.ip=1000")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), (*SETTINGS, *WINDOWS)).start()
    set_quota(process, "--client", "slow", "--add-config", f"producer_byte_rate={PRODUCE_RATE},consumer_byte_rate={FETCH_RATE}")
    set_quota(process, "--user", "ANONYMOUS", "--client", "admin", "--add-config", "controller_mutation_rate=2")
    yield process
    process.stop()


def set_quota(broker: BrokerProcess, *words: str) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "config", "alter", *words, "-b", broker.address]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=SECONDS_MAX)


class Rate:
    """Measures the rate of received bytes between two pauses."""

    def __init__(self) -> None:
        self._last = 0.0
        self._after_pauses: list[tuple[float, int]] = []
        self._bytes = 0

    def begin(self) -> None:
        self._after_pauses = []

    def note(self, size: int) -> None:
        now = time.monotonic()
        if self._last and now - self._last > PAUSE_SECONDS:
            self._after_pauses.append((now, self._bytes))
        self._last = now
        self._bytes += size

    @property
    def is_known(self) -> bool:
        return len(self._after_pauses) >= PAUSES

    def value(self) -> float:
        (began, first), (ended, last) = self._after_pauses[0], self._after_pauses[-1]
        return (last - first) / (ended - began)


def measure(step: Callable[[], object], rate: Rate, limit: float) -> float:
    """Returns the rate. If it is above the limit, it is measured again, because a stall of the machine may look like a pause."""
    deadline = time.monotonic() + SECONDS_MAX
    for _ in range(ATTEMPTS):
        rate.begin()
        while not rate.is_known:
            assert time.monotonic() < deadline, "the client is not throttled"
            step()
        if rate.value() < 1.1 * limit:
            break
    return rate.value()


def test_a_producer_that_ignores_throttling_is_held_to_its_rate_and_another_is_not(broker: BrokerProcess) -> None:
    rate, throttles, other_throttles, delivered = Rate(), [], [], []
    settings = {"bootstrap.servers": broker.address, "batch.num.messages": 1, "linger.ms": 0}
    slow = Producer({**settings, "client.id": "slow", "throttle_cb": throttles.append})
    other = Producer({**settings, "client.id": "other", "throttle_cb": other_throttles.append})
    in_flight, is_over = 0, False

    def acknowledged(error: object, _message: object) -> None:
        nonlocal in_flight
        assert error is None or is_over
        in_flight -= 1
        rate.note(len(RECORD))

    def step() -> None:
        nonlocal in_flight
        while in_flight < 20:
            slow.produce("slow", RECORD, on_delivery=acknowledged)
            in_flight += 1
        if len(delivered) < 100:
            other.produce("other", RECORD, on_delivery=lambda _error, message: delivered.append(message))
        other.poll(0)
        slow.poll(0.01)

    measured = measure(step, rate, PRODUCE_RATE)
    assert 0.6 * PRODUCE_RATE < measured < 1.1 * PRODUCE_RATE
    assert throttles, "answers say how long to wait"
    assert other.flush(SECONDS_MAX) == 0
    assert not other_throttles
    is_over = True
    slow.purge()
    slow.flush(0)


@pytest.mark.parametrize("bytes_max", [10_000, 4_000_000], ids=["small-answers", "large-answers"])
def test_a_consumer_is_held_to_its_rate(broker: BrokerProcess, bytes_max: int) -> None:
    """A consumer may use the quota of its windows at once and then its rate, whatever the size of the answers that it asks for."""
    topic, count = f"full-{bytes_max}", 150
    producer = Producer({"bootstrap.servers": broker.address, "client.id": "filler", "batch.num.messages": 1})
    for _ in range(count):
        producer.produce(topic, RECORD)
    assert producer.flush(SECONDS_MAX) == 0
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address, client_id="slow", auto_offset_reset="earliest", max_partition_fetch_bytes=bytes_max,
        fetch_max_bytes=bytes_max, enable_auto_commit=False,
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0)])
    began, size = time.monotonic(), 0
    try:
        while size < 4 * FETCH_RATE:
            assert time.monotonic() - began < SECONDS_MAX, "the client gets less than its quota"
            for records in consumer.poll(timeout_ms=1000).values():
                size += sum(len(record.value) for record in records)
                if records[-1].offset == count - 1:
                    consumer.seek_to_beginning()
        assert time.monotonic() - began > 0.9 * (size / FETCH_RATE - WINDOWS_SECONDS)
    finally:
        consumer.close()


def test_an_administrator_is_held_to_its_rate(broker: BrokerProcess) -> None:
    """An old admin client, which does not know the error, is not refused: each request is executed, and delays the next one."""
    began, made = time.monotonic(), 0
    with AdminClient({"bootstrap.servers": broker.address, "client.id": "admin"}) as admin:
        while made < 14:
            (done,) = admin.create_topics([NewTopic(f"made-{made}", 2, 1)], request_timeout=SECONDS_MAX).values()
            try:
                done.result()
            except KafkaException as error:
                assert error.args[0].name() == "THROTTLING_QUOTA_EXCEEDED"
                continue
            made += 2
    # Four partitions are free, and the request that exceeds the quota is executed before its client waits; so eight partitions take at
    # least four seconds.
    assert time.monotonic() - began > 0.9 * (14 - 4 - 2) / 2


def test_log_of_the_broker_is_quiet(broker: BrokerProcess) -> None:
    text = Path(broker.log_path).read_text(encoding="utf-8")
    assert "not enforced" not in text and "Traceback" not in text
