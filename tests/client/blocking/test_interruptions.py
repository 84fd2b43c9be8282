"""An exception of a signal handler may come after any call: no record is lost, reported twice or read twice, and no later call hangs.

Python runs signal handlers after a call and at the beginning of a function. The tests raise at each such place of the client's code, one
after the other.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.blocking.background_calls import BackgroundCalls
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.core import backoff
from ottla.client.errors import ClientError, UsageError
from tests.client.blocking.test_deliveries import Broker, Reports
from tests.client.blocking.test_producer_transactions import Coordinating
from tests.client.blocking.test_share_consumer import all_said
from tests.client.fake_group import GroupBroker
from tests.client.fake_share_group import FakeShareGroup, lends
from tests.clients.broker_process import eventually

PLACES_MAX = 5_000
LARGE = bytes(900)


class Interruption(Exception):
    """What a signal handler raises."""


class Interrupting:
    """Within `with` it raises `Interruption` once, after as many places of the client's code as `skipped` says."""

    def __init__(self, skipped: int) -> None:
        self.is_over = False
        self._left = skipped

    def __enter__(self) -> Interrupting:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _argument: object) -> None:
        if event not in ("call", "c_return") or "/ottla/client/" not in frame.f_code.co_filename:
            return
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
            self.is_over = True
            raise Interruption


def _calls(producer: Producer, values: Sequence[bytes]) -> Iterator[tuple[bytes | None, Callable[[], object]]]:
    """The calls of a program, each with the record that it adds. One record is too large, another one cannot be encoded."""
    for number, value in enumerate(values):
        yield value, partial(producer.produce, "t", value, partition=number % 2)
        if number == 2:
            yield None, partial(producer.produce_values, "t", ["no bytes"])
            yield None, producer.poll
    yield None, producer.flush


def _run(producer: Producer, values: Sequence[bytes], skipped: int) -> tuple[list[bytes], bool]:
    """Makes the calls and interrupts one. Returns the records whose calls returned, and whether a call was interrupted."""
    accepted: list[bytes] = []
    with Interrupting(skipped) as interrupting:
        for value, call in _calls(producer, values):
            with suppress(Interruption):
                call()
                accepted += [] if value is None else [value]
    return accepted, interrupting.is_over


@pytest.fixture
def collected() -> Iterator[None]:
    """A socket or generator whose caller was interrupted before it held it is left to the garbage collector, which warns in this test. A
    call in a thread holds its socket until it has ended.
    """
    yield
    for thread in threading.enumerate():
        if thread.name == "ottla-client-call":
            thread.join()
    gc.collect()


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_a_producer_may_be_interrupted_at_every_place(acks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_S", 0.0)
    for skipped in range(0, PLACES_MAX, 1 if acks == -1 else 3):
        values = [b"%d %s" % (number, LARGE if number == 3 else b"") for number in range(6)]
        reports = Reports()
        with Broker(2, bytes_max=500) as broker, Cluster(broker.address) as cluster:
            producer = Producer(cluster, acks=acks, batch_bytes=45, linger_s=0.0, on_delivery=reports)
            accepted, is_interrupted = _run(producer, values, skipped)
            assert producer.flush(5.0) == 0
            producer.close()
            appended = Counter(value for some in broker.values.values() for value in some)
        counts = reports.counts()
        assert all(counts[value] == 1 for value in accepted)
        assert all(count == 1 for count in counts.values()) and counts.keys() >= appended.keys()
        if acks == -1:
            assert all(count == 1 for count in appended.values()) and appended.keys() == set(reports.good())
            assert {value for value in accepted if len(value) < 500} <= appended.keys()
        if not is_interrupted:
            return
    pytest.fail("there are more places")


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("collected")
def test_the_transaction_after_an_interrupted_one_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_S", 0.0)
    for skipped in range(PLACES_MAX):
        with Coordinating() as broker, Cluster(broker.address) as cluster:
            producer = Producer(cluster, transactional_id="x", batch_bytes=30)
            with Interrupting(skipped) as interrupting, suppress(Interruption):
                _transact(producer, 3)
            if interrupting.is_over:
                try:
                    producer.abort()
                except ClientError:
                    producer.abandon()
            _transact(producer, 2)
            assert broker.ends[-1]
            producer.close()
        if not interrupting.is_over:
            return
    pytest.fail("there are more places")


def _transact(producer: Producer, records: int) -> None:
    producer.begin()
    for _ in range(records):
        producer.produce("t", b"v")
    producer.commit()


def _read(consumer: Consumer, count: int, polls_max: int) -> list[tuple[int, int]]:
    """Polls until so many records have come. Returns the offset of each record, after its partition."""
    found: list[tuple[int, int]] = []
    for _ in range(polls_max):
        if len(found) >= count:
            break
        with suppress(Interruption):
            for fetched in consumer.poll(0.05):
                for header, _ in fetched.batches:
                    found += [(fetched.partition.partition, header.base_offset + at) for at in range(header.record_count)]
    return found


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("collected")
def test_a_background_call_whose_beginning_was_interrupted_runs_once() -> None:
    """Otherwise two joins of one member would run at the same time."""
    for skipped in range(PLACES_MAX):
        calls, runs, taken = BackgroundCalls(), list[str](), list[None]()
        with Interrupting(skipped) as interrupting, suppress(Interruption):
            calls.begin("key", partial(runs.append, "run"), taken.append)
        calls.begin("key", partial(runs.append, "run"), taken.append)
        calls.finish("key")
        assert (runs, taken) == (["run"], [None])
        if not interrupting.is_over:
            assert skipped > 2
            return
    pytest.fail("there are more places")


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("collected")
def test_a_background_call_that_is_abandoned_after_an_interruption_leaves_no_socket_open() -> None:
    for skipped in range(PLACES_MAX):
        calls, runs = BackgroundCalls(), list[str]()
        before = len(os.listdir("/dev/fd"))
        with Interrupting(skipped) as interrupting, suppress(Interruption):
            calls.begin("key", partial(runs.append, "run"))
        calls.abandon_all()
        gc.collect()
        eventually(lambda: len(os.listdir("/dev/fd")) == before)  # noqa: B023 - called in this round
        assert len(runs) <= 1 and not calls.sources()
        if not interrupting.is_over:
            return
    pytest.fail("there are more places")


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("is_member", [False, True])
def test_a_consumer_may_be_interrupted_at_every_place(is_member: bool) -> None:
    for skipped in range(PLACES_MAX):
        with (
            GroupBroker(3) as broker,
            Cluster(broker.address) as cluster,
            Consumer(cluster, group_id="g", auto_offset_reset="earliest") as consumer,
        ):
            broker.values.update({number: [b"v"] * 12 for number in range(3)})
            if is_member:
                consumer.subscribe(["t"])
            else:
                consumer.assign({TopicPartition("t", number): 0 for number in range(3)})
            with Interrupting(skipped) as interrupting:
                found = _read(consumer, 36, 60)
            found += _read(consumer, 36 - len(found), 200)
            assert sorted(found) == [(number, offset) for number in range(3) for offset in range(12)]
        if not interrupting.is_over:
            assert skipped > 500
            return
    pytest.fail("there are more places")


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("collected")
def test_a_share_consumer_may_be_interrupted_at_every_place() -> None:
    """It accepts only records that it has returned."""
    for skipped in range(PLACES_MAX):
        with FakeShareGroup() as broker, Cluster(broker.address) as cluster:
            broker.fetches = [lends(3 * number, 3) for number in range(50)]
            consumer = ShareConsumer(cluster, "g", max_wait_ms=10)
            consumer.subscribe(["t"])
            found: set[int] = set()
            with Interrupting(skipped) as interrupting:
                while not interrupting.is_over and len(found) < 6:
                    with suppress(Interruption):
                        found |= {one.record.offset for one in consumer.poll(0.02)}
            for _ in range(2):
                found |= {one.record.offset for one in consumer.poll(0.02)}
            consumer.close()
            acknowledgements = all_said(broker)
        assert {offset for first, last, kinds in acknowledgements if 1 in kinds for offset in range(first, last + 1)} <= found
        if not interrupting.is_over:
            assert skipped > 200
            return
    pytest.fail("there are more places")


@pytest.mark.parametrize("values", [[None], [5], (value for value in (b"a", None, b"b"))])
def test_a_value_without_a_length_is_refused_and_harms_no_other(values: Any) -> None:
    with Broker(1) as broker, Cluster(broker.address) as cluster, Producer(cluster) as producer:
        with pytest.raises(UsageError, match="a value is bytes, not"):
            producer.produce_values("t", values)
        producer.flush()
        producer.produce_values("t", [b"c"])
        producer.flush()
        assert broker.values[0] in ([b"c"], [b"a", b"c"])
