"""A digest of what one transaction wrote, the same when computed from the batches before they are sent and from the log afterwards.

Per partition it counts the rows and takes the CRC-32C of every batch from its record count on: producer id, epoch, sequence numbers, base
offset and leader epoch stand before that, so stamping and appending change nothing. A topic whose `compression.type` is not `producer` has
other bytes in its log than were sent; there only the rows can be compared.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.client import TopicPartition
from ottla.spark.crc_combination import combine_crc32c
from ottla.wire.batch_header import RECORD_COUNT_AT, Buffer, read_batch_header
from ottla.wire.checksum import crc32c


class DigestPart(NamedTuple):
    """What the digest has to know of batches in one partition: their rows, the bytes that are not stamped, and the CRC-32C of these."""

    rows: int = 0
    size_bytes: int = 0
    crc: int = 0

    def add(self, batch: Buffer) -> DigestPart:
        """With another batch behind."""
        body = memoryview(batch)[RECORD_COUNT_AT:]
        return DigestPart(self.rows + read_batch_header(batch).record_count, self.size_bytes + len(body), crc32c(body, self.crc))


class OutputDigest:
    """Takes in the batches of each partition in their order; partitions may come in any order."""

    def __init__(self) -> None:
        self._parts: dict[TopicPartition, tuple[int, int]] = {}

    def add(self, partition: TopicPartition, batch: Buffer) -> None:
        """Adds an encoded record batch, stamped or not."""
        rows, crc = self._parts.get(partition, (0, 0))
        count = read_batch_header(batch).record_count
        self._parts[partition] = rows + count, crc32c(memoryview(batch)[RECORD_COUNT_AT:], crc)

    def add_part(self, partition: TopicPartition, part: DigestPart) -> None:
        """Adds what another process has written to the partition next."""
        rows, crc = self._parts.get(partition, (0, 0))
        self._parts[partition] = rows + part.rows, combine_crc32c(crc, part.crc, part.size_bytes)

    @property
    def rows(self) -> int:
        """The records of all partitions."""
        return sum(rows for rows, _ in self._parts.values())

    def text(self) -> str:
        """Eight hexadecimal digits; empty for no rows."""
        if not self._parts:
            return ""
        lines = (f"{partition.topic} {partition.partition} {rows} {crc:08x}\n" for partition, (rows, crc) in sorted(self._parts.items()))
        return f"{crc32c(''.join(lines).encode()):08x}"
