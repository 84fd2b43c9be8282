"""Ottla's producer continues after a record that a broker refuses, and no transaction is committed without this record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla.client
from ottla.client import Client, KafkaError, TopicPartition
from tests.clients.broker_process import BrokerProcess

TOO_LARGE = bytes(5_000)
LIMIT = {"max.message.bytes": "1000"}


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with ottla.client.connect(broker.address) as client:
        yield client


def values(client: Client, topic: str) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    end = client.list_offsets({partition: ottla.client.LATEST})[partition].offset
    return [record.value for fetched in client.read(partition, 0, end) for record in fetched.records()]


def test_records_behind_one_that_is_too_large_arrive(client: Client) -> None:
    client.create_topic("refused-one", partitions=1, configs=LIMIT)
    with client.producer() as producer:
        for value in (b"a", TOO_LARGE, b"b", b"c", TOO_LARGE, b"d"):
            producer.produce("refused-one", value)
            try:
                producer.flush()
            except KafkaError as error:
                assert (value, error.name) == (TOO_LARGE, "MESSAGE_TOO_LARGE")
    assert values(client, "refused-one") == [b"a", b"b", b"c", b"d"]


def test_a_transaction_with_a_refused_record_can_only_be_aborted(client: Client) -> None:
    client.create_topic("refused-whole", partitions=1, configs=LIMIT)
    failures: list[str] = []

    def report(delivery: ottla.client.Delivery) -> None:
        if isinstance(delivery.error, KafkaError):
            failures.append(delivery.error.name)

    with client.producer(transactional_id="refused-whole", on_delivery=report) as producer:
        for attempt in (b"1", b"2", b"3"):
            producer.begin()
            producer.produce("refused-whole", b"before " + attempt)
            producer.produce("refused-whole", TOO_LARGE)
            producer.produce("refused-whole", b"behind " + attempt)
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                producer.commit()
            producer.abort()
            producer.begin()
            producer.produce("refused-whole", b"whole " + attempt)
            producer.commit()
    assert "MESSAGE_TOO_LARGE" in failures
    assert values(client, "refused-whole") == [b"whole 1", b"whole 2", b"whole 3"]
