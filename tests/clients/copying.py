"""A worker that reads one topic and writes another, exactly once: doubled numbers, offsets in the transaction. Killed at any moment.

Runs as a program: `python -m tests.clients.copying BOOTSTRAP SOURCE TARGET GROUP`. One transaction in ten is aborted for no reason. After
an error that ends a transaction the worker begins anew with new clients; it is a static member, so that it need not wait for its dead self.
"""

from __future__ import annotations

import random
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

RECORDS_PER_TRANSACTION = 50
ABORTS = 0.1
SECONDS = 60
PATIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "log_level": 0,
    # Else librdkafka 2.16 throws its brokers away when the only one is down (KIP-1102), and keeps asking the one thrown away for offsets.
    "metadata.recovery.strategy": "none",
}


def copy(bootstrap: str, source: str, target: str, group: str) -> None:
    chance = random.Random()
    while True:
        reading = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.instance.id": "copier", **reading, **PATIENT})
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group, "transaction.timeout.ms": 10_000, **PATIENT})
        try:
            producer.init_transactions(SECONDS)
            consumer.subscribe([source])
            while True:
                copy_some(consumer, producer, target, is_aborted=chance.random() < ABORTS)
        except KafkaException as error:
            print("starting anew:", error, file=sys.stderr, flush=True)
        finally:
            consumer.close()


def copy_some(consumer: Consumer, producer: Producer, target: str, *, is_aborted: bool) -> None:
    """One transaction. Any error leaves it to `init_transactions` of the next producer to abort what is open."""
    messages = [message for message in consumer.consume(RECORDS_PER_TRANSACTION, 0.05) if message.error() is None]
    if not messages:
        return
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, b"%d" % (2 * int(message.value())), partition=message.partition())
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS)
    if not is_aborted:
        producer.commit_transaction(SECONDS)
        return
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)
    first: dict[int, int] = {}
    for message in messages:
        first.setdefault(message.partition(), message.offset())
    for partition, offset in first.items():
        consumer.seek(TopicPartition(messages[0].topic(), partition, offset))


if __name__ == "__main__":
    copy(*sys.argv[1:])
