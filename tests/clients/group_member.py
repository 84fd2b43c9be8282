"""One member of a classic group as a process: `python -m tests.clients.group_member confluent|kafka-python ADDRESS GROUP TOPIC`.

It prints each change of its partitions (`{"owns": [0, 3]}`), and each value after it has committed its offset (`{"got": "7"}`). It leaves
the group on SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Protocol

SESSION_MS = 3_000
BEAT_MS = 200


class Reader(Protocol):
    def owned(self) -> list[int]: ...
    def read(self) -> list[str]:
        """Returns values that were read and committed."""

    def close(self) -> None: ...


class ConfluentReader:
    def __init__(self, address: str, group: str, topic: str) -> None:
        from confluent_kafka import Consumer

        self.client = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": BEAT_MS,
                "partition.assignment.strategy": "range",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        self.client.subscribe([topic])

    def owned(self) -> list[int]:
        return sorted(one.partition for one in self.client.assignment())

    def read(self) -> list[str]:
        values = [message.value().decode() for message in self.client.consume(100, 0.05) if message.error() is None]
        if values:
            self.client.commit(asynchronous=False)
        return values

    def close(self) -> None:
        self.client.close()


class KafkaPythonReader:
    def __init__(self, address: str, group: str, topic: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka import KafkaConsumer
            from kafka.coordinator.assignors.range import RangePartitionAssignor

        self.client = KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=BEAT_MS,
            partition_assignment_strategy=[RangePartitionAssignor],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
        )

    def owned(self) -> list[int]:
        return sorted(one.partition for one in self.client.assignment())

    def read(self) -> list[str]:
        values = [record.value.decode() for records in self.client.poll(50).values() for record in records]
        if values:
            self.client.commit()
        return values

    def close(self) -> None:
        self.client.close()


READERS: dict[str, Any] = {"confluent": ConfluentReader, "kafka-python": KafkaPythonReader}


def events(reader: Reader, is_over: list[int]) -> Iterator[dict[str, Any]]:
    known: list[int] = []
    while not is_over:
        values = reader.read()
        yield from ({"got": value} for value in values)
        owned = reader.owned()
        if owned != known:
            known = owned
            yield {"owns": owned}


def main() -> None:
    kind, *where = sys.argv[1:]
    is_over: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: is_over.append(number))
    reader: Reader = READERS[kind](*where)
    for event in events(reader, is_over):
        print(json.dumps(event), flush=True)
    reader.close()


if __name__ == "__main__":
    main()
