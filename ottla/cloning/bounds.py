"""Finds the offsets of each partition that a clone copies: all, the last minutes, a range of times or offsets, or the newest bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.admin import EARLIEST, LATEST
from ottla.client.errors import OffsetOutOfRangeError
from ottla.wire.batch_header import iter_batches

PROBES = 8
PROBE_BYTES = 16 << 10
ROUNDS = 3
"""The size of a range of offsets is estimated from 8 probes of 16 KiB. A further round probes only the offsets that the previous round
chose."""


class Range(NamedTuple):
    """The records of a partition to copy; without a limit, all. Times are in milliseconds since 1970."""

    since_ms: int | None = None
    until_ms: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    tail: int | None = None
    """The number of the newest offsets."""
    size: int | None = None
    """The approximate number of the newest bytes."""

    @property
    def has_fixed_end(self) -> bool:
        return self.until_ms is not None or self.end_offset is not None


def find_bounds(client: Client, partitions: Sequence[TopicPartition], wanted: Range) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the first offset and the end of each partition. Raises `ClientError`."""
    ends = _offsets(client, partitions, LATEST)
    firsts = _offsets(client, partitions, EARLIEST)
    starts = dict(firsts)
    if wanted.since_ms is not None:
        starts = {one: offset if offset >= 0 else ends[one] for one, offset in _offsets(client, partitions, wanted.since_ms).items()}
    if wanted.until_ms is not None:
        found = _offsets(client, partitions, wanted.until_ms)
        ends = {one: min(ends[one], found[one]) if found[one] >= 0 else ends[one] for one in partitions}
    bounds = {}
    for one in partitions:
        first, end = starts[one], ends[one]
        if wanted.first_offset is not None:
            first = max(first, wanted.first_offset)
        if wanted.end_offset is not None:
            end = min(end, wanted.end_offset)
        if wanted.tail is not None:
            first = max(first, end - wanted.tail)
        end = max(end, firsts[one])
        first = min(max(first, firsts[one]), end)
        bounds[one] = (first if wanted.size is None else _start_of_size(client, one, first, end, wanted.size), end)
    return bounds


def _offsets(client: Client, partitions: Sequence[TopicPartition], moment: int) -> dict[TopicPartition, int]:
    found = client.list_offsets(dict.fromkeys(partitions, moment), isolation="read_uncommitted")
    return {partition: at.offset for partition, at in found.items()}


def _start_of_size(client: Client, partition: TopicPartition, first: int, end: int, size: int) -> int:
    """Returns the approximate offset at which the newest `size` bytes between `first` and `end` begin."""
    start = first
    for _ in range(ROUNDS):
        density = _bytes_per_offset(client, partition, start, end)
        start = max(first, end - int(size / density)) if density else first
    return start


def _bytes_per_offset(client: Client, partition: TopicPartition, start: int, end: int) -> float:
    """Estimates the bytes that an offset takes between two offsets; 0 if there is nothing."""
    densities = []
    for number in range(PROBES):
        position = start + (end - start) * number // PROBES
        try:
            found = client.fetch({partition: position}, isolation="read_uncommitted", max_wait_ms=0, partition_max_bytes=PROBE_BYTES)
        except OffsetOutOfRangeError:  # the source has deleted these records meanwhile
            continue
        for fetched in found:
            headers = [header for _, header in iter_batches(fetched.data)]
            densities.append(sum(header.size_bytes for header in headers) / (fetched.next_offset - headers[0].base_offset))
    return sum(densities) / len(densities) if densities else 0.0
