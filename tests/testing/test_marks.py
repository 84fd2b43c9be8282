"""Marks and the way back to them: data, time, address, open transactions, clients that stay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from ottla.testing.broker import Broker
from ottla.testing.process import has_stopped
from tests.clients.broker_process import eventually


@pytest.fixture
def marked() -> Iterator[Broker]:
    with Broker(topics=["seed"]) as broker:
        yield broker


def values(broker: Broker, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_the_state_of_a_mark_is_back_as_often_as_wanted(marked: Broker) -> None:
    marked.add_record("orders", "before")
    marked.mark()
    address = marked.bootstrap_server
    for number in range(3):
        marked.add_record("orders", f"after-{number}")
        marked.create_topic("later")
        assert values(marked) == [b"before", b"after-%d" % number]
        marked.rewind()
        assert values(marked) == [b"before"] and marked.topics() == ["orders", "seed"]
    assert marked.bootstrap_server == address


def test_any_of_several_marks(marked: Broker) -> None:
    marks = []
    for value in ("one", "two", "three"):
        marked.add_record("orders", value)
        marks.append(marked.mark())
    for mark, expected in zip(reversed(marks), (3, 2, 1), strict=True):
        marked.rewind(mark)
        assert values(marked) == [b"one", b"two", b"three"][:expected]
    marked.rewind()  # to the one that was gone back to
    assert values(marked) == [b"one"]


def test_a_mark_of_a_suspended_broker_leaves_it_suspended(marked: Broker) -> None:
    marked.add_record("orders", "before")
    with marked.pause():
        marked.mark()
        assert has_stopped(marked.process.pid)
    marked.add_record("orders", "after")
    marked.rewind()
    assert values(marked) == [b"before"]


def test_time_goes_back_with_the_mark(marked: Broker) -> None:
    topic = marked.create_topic("short", **{"retention.ms": "3600000"})
    marked.add_record(topic, "kept")
    marked.clock.freeze()
    marked.mark()
    marked_at = marked.clock.now()
    marked.clock.advance("10 days")
    assert values(marked, topic) == []
    marked.clock.run()
    marked.rewind()
    assert values(marked, topic) == [b"kept"]
    assert timedelta() <= marked.clock.now() - marked_at < timedelta(minutes=5)
    assert marked.clock.is_frozen
    marked.end_faults()  # as the plugin does after the test
    assert not marked.clock.is_frozen


def test_a_client_goes_on_and_an_open_transaction_of_the_mark_is_open_again(marked: Broker) -> None:
    producer = Producer(marked.config(**{"transactional.id": "payer", "reconnect.backoff.max.ms": 100}))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"first")
    producer.flush(30)
    marked.mark()
    producer.commit_transaction(30)
    assert values(marked) == [b"first"]
    marked.rewind()
    assert values(marked) == []
    marked.clock.advance("2 minutes")  # its time limit
    marked.add_record("orders", "next")
    eventually(lambda: values(marked) == [b"next"])
    with pytest.raises(KafkaException):
        producer.begin_transaction()
        producer.produce("orders", b"fenced")
        producer.commit_transaction(30)


def test_without_a_mark_there_is_no_way_back(marked: Broker) -> None:
    with pytest.raises(RuntimeError, match="call mark\\(\\) first"):
        marked.rewind()
    assert marked.topics() == ["seed"]


def test_nothing_is_left_of_marks(marked: Broker, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as own:
        own.add_record("orders", "kept")
        own.mark()
        own.add_record("orders", "gone")
        own.rewind()
        assert own._marks._spare is not None
        pids = [own.process.pid, own._marks._spare.pid]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    eventually(lambda: os.listdir(tmp_path) == ["data"])
    with Broker(data_dir=tmp_path / "data") as own:
        assert values(own) == [b"kept"]
