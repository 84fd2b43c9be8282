"""A worker that reads one topic and writes another, exactly once: doubled numbers, offsets in the transaction. Killed at any moment.

Runs as a program: `python -m tests.clients.copying BOOTSTRAP SOURCE TARGET GROUP`. An error that ends a transaction ends the worker's
loop round with an abort and a rewind to what was committed; a fatal one ends in new clients.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Producer

RECORDS_PER_TRANSACTION = 50
SECONDS = 20
PATIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}


def copy(bootstrap: str, source: str, target: str, group: str) -> None:
    while True:
        reading = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": bootstrap, "session.timeout.ms": 6000, **reading, **PATIENT})
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "copier", "transaction.timeout.ms": 10_000, **PATIENT})
        try:
            producer.init_transactions(SECONDS)
            consumer.subscribe([source])
            while True:
                copy_some(consumer, producer, target)
        except KafkaException as error:
            print("starting anew:", error, file=sys.stderr, flush=True)
        finally:
            consumer.close()


def copy_some(consumer: Consumer, producer: Producer, target: str) -> None:
    """One transaction. Any error leaves it to `init_transactions` of the next producer to abort what is open."""
    messages = [message for message in consumer.consume(RECORDS_PER_TRANSACTION, 0.2) if message.error() is None]
    if not messages:
        return
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, b"%d" % (2 * int(message.value())), partition=message.partition())
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS)
    producer.commit_transaction(SECONDS)


if __name__ == "__main__":
    copy(*sys.argv[1:])
