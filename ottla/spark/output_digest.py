"""A digest of a transaction's output, computed either from the batches before they are sent or from the log afterwards.

For each partition it has the number of rows, and the CRC-32C of all batches without the header fields before the record count. Only those
fields change after the batch was built: the producer sets producer id, epoch and sequence, and the broker sets base offset, leader epoch
and timestamps, with a new checksum. If a topic's `compression.type` is not `producer`, the log has other bytes than were sent, and only the
rows can be compared.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.client import TopicPartition
from ottla.wire.batch_header import RECORD_COUNT_AT, Buffer, read_batch_header
from ottla.wire.checksum import crc32c


class DigestPart(NamedTuple):
    """The digest of batches in one partition: their rows, and the size and CRC-32C of the digested bytes."""

    rows: int = 0
    size_bytes: int = 0
    crc: int = 0

    def add(self, batch: Buffer) -> DigestPart:
        body = memoryview(batch)[RECORD_COUNT_AT:]
        return DigestPart(self.rows + read_batch_header(batch).record_count, self.size_bytes + len(body), crc32c(body, self.crc))


class OutputDigest:
    """Collects the batches of each partition in their order; the order of partitions does not matter."""

    def __init__(self) -> None:
        self._parts: dict[TopicPartition, tuple[int, int]] = {}

    def add(self, partition: TopicPartition, batch: Buffer) -> None:
        """Adds an encoded record batch, stamped or not."""
        rows, crc = self._parts.get(partition, (0, 0))
        count = read_batch_header(batch).record_count
        self._parts[partition] = rows + count, crc32c(memoryview(batch)[RECORD_COUNT_AT:], crc)

    def add_part(self, partition: TopicPartition, part: DigestPart) -> None:
        """Adds a digest that another process has computed of the partition's next batches."""
        rows, crc = self._parts.get(partition, (0, 0))
        self._parts[partition] = rows + part.rows, combine_crc32c(crc, part.crc, part.size_bytes)

    @property
    def rows(self) -> int:
        return sum(rows for rows, _ in self._parts.values())

    def text(self) -> str:
        """Returns eight hexadecimal digits, or an empty text if there are no rows."""
        if not self._parts:
            return ""
        lines = (f"{partition.topic} {partition.partition} {rows} {crc:08x}\n" for partition, (rows, crc) in sorted(self._parts.items()))
        return f"{crc32c(''.join(lines).encode()):08x}"


# The checksum of two pieces
#
# A CRC is a remainder of polynomials over two elements. Appending n bytes multiplies a polynomial by x to the power of 8n. The driver can
# therefore compute the checksum of the output of several tasks without its bytes. The cost is some hundred steps, whatever the length.

POLYNOMIAL = 0x82F63B78
"""The polynomial of CRC-32C (Castagnoli), with the highest power in the lowest bit."""

_ONE = 1 << 31
_BITS = 32
_POWERS_MAX = 48
"""Number of powers: enough for pieces of 32 TiB."""


def _multiply(a: int, b: int) -> int:
    product = 0
    for _ in range(_BITS):
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ POLYNOMIAL if b & 1 else b >> 1
    return product


def _squares() -> tuple[int, ...]:
    """Returns the powers of the polynomial x with the exponents 1, 2, 4, 8 and so on, modulo the polynomial of the CRC."""
    found = [_ONE >> 1]
    while len(found) < _POWERS_MAX:
        found.append(_multiply(found[-1], found[-1]))
    return tuple(found)


_POWERS = _squares()


def _power_of_bytes(length: int) -> int:
    power, at = _ONE, 3  # a byte has 2 to the power of 3 bits
    while length:
        if length & 1:
            power = _multiply(_POWERS[at], power)
        length >>= 1
        at += 1
    return power


def combine_crc32c(first: int, second: int, second_length: int) -> int:
    return _multiply(_power_of_bytes(second_length), first) ^ second
