"""A program that reads numbers from one topic and writes them doubled to another one, exactly once: the offsets are part of the
transaction. Tests kill it at any moment. It runs as: `python -m tests.clients.copying BOOTSTRAP SOURCE TARGET GROUP`. It aborts every tenth
transaction. After an error that ends a transaction it starts again with new clients. It is a static member of its group, so that it does
not have to wait until the session of its killed predecessor expires.
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
    # Without this setting librdkafka 2.16 drops its brokers when the only one is down (KIP-1102), and then still sends requests for offsets
    # to the dropped one.
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
    """Runs one transaction. After an error, `init_transactions` of the next producer aborts the open transaction."""
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
