"""Divides the output of a batch into slices of some megabytes, and reads the next slice while one is sent.

Within a slice the client has several requests to each leader in flight; between slices it waits for the last answers. Large slices are
therefore faster, but the driver has two of them in memory. The batches of a partition keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from ottla.client import TopicPartition
from ottla.spark.spool import TaskOutput

SLICE_BYTES_MAX = 16 * 1024 * 1024

SentSlice = dict[TopicPartition, list[bytearray]]
T = TypeVar("T")


def slices(outputs: Sequence[TaskOutput]) -> Iterator[SentSlice]:
    """Yields the batches of all tasks, in order, one slice at a time. Raises `SpoolError` if a task's output is missing or damaged."""
    piece: SentSlice = {}
    size = 0
    for output in outputs:
        for partition, data, _ in output.batches():
            if piece and size + len(data) > SLICE_BYTES_MAX:
                yield piece
                piece, size = {}, 0
            piece.setdefault(partition, []).append(data)
            size += len(data)
    if piece:
        yield piece


@contextmanager
def read_ahead(source: Iterator[T], size_bytes: int) -> Iterator[Iterator[T]]:
    """Reads an iterator in a thread, one item ahead of the consumer; the first item is ready when the block begins.

    If all items are one slice, they are read at once: a thread takes longer to start than a slice takes to read.
    """
    if size_bytes <= SLICE_BYTES_MAX:
        yield iter(list(source))
        return
    with ThreadPoolExecutor(1, thread_name_prefix="ottla-read-ahead") as reader:
        following = reader.submit(next, source, None)
        following.result()

        def items() -> Iterator[T]:
            nonlocal following
            while (item := following.result()) is not None:
                following = reader.submit(next, source, None)
                yield item

        yield items()
