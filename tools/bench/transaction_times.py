"""Reads from the coordinator's log `__transaction_state` how long transactions were open: from the first partition to the last marker."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.client import EARLIEST, LATEST, Client, TopicPartition
from ottla.machine.contract import LogRecord
from ottla.transactions.metadata import TransactionMetadata
from ottla.transactions.records import read_record
from ottla.transactions.states import COMPLETE_COMMIT

TOPIC = "__transaction_state"


def open_ms(client: Client, prefix: str) -> list[int]:
    """Returns the milliseconds of each committed transaction whose id begins with `prefix`, the oldest first."""
    return [
        metadata.update_timestamp_ms - metadata.start_timestamp_ms
        for metadata in _states(client)
        if metadata.state is COMPLETE_COMMIT and metadata.transactional_id.startswith(prefix)
    ]


def _states(client: Client) -> Iterator[TransactionMetadata]:
    for number in range(len(client.describe_topic(TOPIC).partitions)):
        yield from _read(client, TopicPartition(TOPIC, number))


def _read(client: Client, partition: TopicPartition) -> Iterator[TransactionMetadata]:
    start, end = (client.list_offsets({partition: at})[partition].offset for at in (EARLIEST, LATEST))
    for fetched in client.read(partition, start, end, isolation="read_uncommitted"):
        for record in fetched.records():
            found = read_record(LogRecord(key=record.key or b"", value=record.value))
            if found is not None and found.metadata is not None:
                yield found.metadata
