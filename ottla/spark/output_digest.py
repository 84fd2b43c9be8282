"""A digest of a transaction's output, computed either from the batches before they are sent or from the log afterwards.

For each partition it has the number of rows, and the CRC-32C of all batches without the header fields before the record count. These are
the fields that stamping and appending change: producer id, epoch, sequence, base offset and leader epoch. If a topic's `compression.type`
is not `producer`, the log has other bytes than were sent, and only the rows can be compared.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.client import TopicPartition
from ottla.spark.crc_combination import combine_crc32c
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
        """Returns eight hexadecimal digits; empty if there are no rows."""
        if not self._parts:
            return ""
        lines = (f"{partition.topic} {partition.partition} {rows} {crc:08x}\n" for partition, (rows, crc) in sorted(self._parts.items()))
        return f"{crc32c(''.join(lines).encode()):08x}"
