"""Encodes the records of a producer's batch. A record that cannot be encoded does not affect the other records.

`check_record` refuses a record with wrong types before the producer accepts it. `Encoding.encode` is the second check: if a batch cannot be
encoded, it finds the records that cause the failure and encodes the others. Only encoded records get sequence numbers, so a bad record
causes no gap.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from ottla.base.errors import ErrorCode, OttlaError
from ottla.base.types import TopicPartition
from ottla.client.core.producer_identity import ProducerIdentity
from ottla.client.errors import KafkaError, UsageError, refused
from ottla.wire.records import Headers, Record, encode_batch

_NOT_ENCODABLE = (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, ImportError, struct.error, OttlaError)
_TIMESTAMP_MAX = (1 << 63) - 1

RECORD_OVERHEAD_BYTES = 12
"""Approximate size of a record beside its key, value and headers, in bytes."""


def check_record(
    topic: object, partition: object, value: object, key: object, timestamp: int, headers: Headers
) -> tuple[bytes | None, bytes | None, int]:
    """Returns a record's value and key as bytes, and its approximate size in bytes. Raises `UsageError` for wrong types, also of the topic,
    partition, headers and timestamp.
    """
    if not isinstance(topic, str):
        raise UsageError(f"produce: topic must be str, not {topic!r:.100}")
    if not hasattr(partition, "__index__"):
        raise UsageError(f"produce: partition must be int, not {partition!r:.100}")

    if not isinstance(timestamp, int) or not -1 <= timestamp <= _TIMESTAMP_MAX:
        raise UsageError(f"a timestamp is a number of milliseconds since 1970, not {timestamp!r}")
    size = RECORD_OVERHEAD_BYTES
    if not isinstance(headers, Iterable):
        raise UsageError(f"headers are a sequence of pairs, not {type(headers).__name__}")
    for header in headers:
        if not (isinstance(header, tuple) and len(header) == 2 and isinstance(header[0], str)):
            raise UsageError(f"a header is a pair of a str and bytes or None, not {header!r:.100}")
        size += len(header[0]) + len(_bytes_of("the value of a header", header[1]) or b"") + 4
    value, key = _bytes_of("a value", value), _bytes_of("a key", key)
    return value, key, size + len(value or b"") + len(key or b"")


def _bytes_of(what: str, data: object) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise UsageError(f"{what} is bytes or None, not {type(data).__name__}: encode it first")


class Encoding:
    """How a producer encodes its batches."""

    def __init__(self, codec: int, level: int | None, is_transactional: bool) -> None:
        self.codec = codec
        self.level = level
        self.is_transactional = is_transactional

    def encode(
        self, partition: TopicPartition, records: Sequence[Record], identity: ProducerIdentity | None
    ) -> tuple[bytearray, dict[int, tuple[Record, KafkaError]]]:
        """Encodes a batch with the next sequence numbers of its partition, which the caller then takes. Returns the bytes (empty if no
        record is left), and the refused records with their errors, by `id(record)`.
        """
        refusals: dict[int, tuple[Record, KafkaError]] = {}
        try:
            data = self._encoded(partition, records, identity)
        except _NOT_ENCODABLE as error:
            refusals = self._refusals(partition, records, error)
            left = [record for record in records if id(record) not in refusals]
            data = self._encoded(partition, left, identity) if left else bytearray()
        return data, refusals

    def _encoded(self, partition: TopicPartition, records: Sequence[Record], identity: ProducerIdentity | None) -> bytearray:
        if identity is None:
            return encode_batch(records, codec=self.codec, level=self.level)
        return encode_batch(
            records,
            codec=self.codec,
            level=self.level,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch_of(partition),
            base_sequence=identity.next_sequence(partition),
            is_transactional=self.is_transactional,
        )

    def _refusals(self, partition: TopicPartition, records: Sequence[Record], failure: Exception) -> dict[int, tuple[Record, KafkaError]]:
        """Returns the records that cannot be encoded alone. Returns all records if each can be encoded alone."""
        found = {id(record): (record, error) for record in records if (error := self._refusal(partition, record)) is not None}
        return found or {id(record): (record, _refused(partition, failure)) for record in records}

    def _refusal(self, partition: TopicPartition, record: Record) -> KafkaError | None:
        try:
            encode_batch([record], codec=self.codec, level=self.level)
        except _NOT_ENCODABLE as error:
            return _refused(partition, error)
        return None


def _refused(partition: TopicPartition, error: Exception) -> KafkaError:
    return refused(
        ErrorCode.INVALID_RECORD, f"a record for {partition} cannot be encoded ({error}); its value and key must be bytes or None"
    )
