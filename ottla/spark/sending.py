"""Cuts the output of a batch into slices of some megabytes, and reads the next slice while one is being sent.

Within a slice the client keeps several requests under way to each leader; between two it waits for the last answers. So a slice is as
large as the driver's memory, which holds two, may bear. Slices follow the order of the tasks and of the batches in each; so does every
partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from ottla.client import TopicPartition
from ottla.spark.spool import TaskOutput

SLICE_BYTES_MAX = 16 * 1024 * 1024

Slice = dict[TopicPartition, list[bytearray]]
T = TypeVar("T")


def slices(outputs: Sequence[TaskOutput]) -> Iterator[Slice]:
    """The batches of all tasks, in order, a slice at a time. `SpoolError` when a task's output is gone or damaged."""
    piece: Slice = {}
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
def read_ahead(source: Iterator[T]) -> Iterator[Iterator[T]]:
    """Takes items from an iterator in a thread, one ahead of the consumer; the first is there when the block begins."""
    with ThreadPoolExecutor(1, thread_name_prefix="ottla-read-ahead") as reader:
        following = reader.submit(next, source, None)
        following.result()

        def items() -> Iterator[T]:
            nonlocal following
            while (item := following.result()) is not None:
                following = reader.submit(next, source, None)
                yield item

        yield items()
