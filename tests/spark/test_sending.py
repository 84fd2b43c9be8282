"""Slices of the output keep order and bounds, and are read one ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ottla.client import TopicPartition
from ottla.spark import sending
from ottla.spark.errors import SpoolError
from ottla.spark.sending import SLICE_BYTES_MAX, read_ahead, slices
from ottla.spark.spool import SpoolWriter, TaskOutput
from tests.spark.encoded import encode

A, B = TopicPartition("out", 0), TopicPartition("out", 1)


def _output(batches: list[tuple[TopicPartition, bytes]]) -> TaskOutput:
    writer = SpoolWriter("0-0", None)
    for partition, value in batches:
        writer.append(partition, encode(value), 1)
    return writer.finish()


def test_slices_keep_the_order_of_tasks_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SLICE_BYTES_MAX", 10 * len(encode(b"0")))
    outputs = [_output([(A, b"%d" % number), (B, b"%d" % number)]) for number in range(7)]
    found = list(slices(outputs))
    assert [{partition: len(batches) for partition, batches in piece.items()} for piece in found] == [{A: 5, B: 5}, {A: 2, B: 2}]
    assert [batch for piece in found for batch in piece[A]] == [encode(b"%d" % number) for number in range(7)]


def test_slices_have_a_bound_in_bytes_and_a_larger_batch_comes_alone() -> None:
    unit = bytes(SLICE_BYTES_MAX // 5)
    found = list(slices([_output([(A, unit), (B, unit * 6), (A, unit), (B, unit)])]))
    sizes = [sum(len(batch) for batches in piece.values() for batch in batches) for piece in found]
    assert [size > SLICE_BYTES_MAX for size in sizes] == [False, True, False]
    assert list(slices([])) == []


def test_the_next_item_is_read_while_one_is_in_use() -> None:
    is_asked = [threading.Event() for _ in range(3)]

    def source() -> Iterator[int]:
        for number, event in enumerate(is_asked):
            event.set()
            yield number

    with read_ahead(source(), SLICE_BYTES_MAX + 1) as items:
        assert is_asked[0].is_set() and not is_asked[1].is_set()
        assert next(items) == 0
        assert is_asked[1].wait(30) and not is_asked[2].is_set()
        assert list(items) == [1, 2]


def test_an_error_in_reading_reaches_the_consumer() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise SpoolError("gone")

    with read_ahead(source(), SLICE_BYTES_MAX + 1) as items, pytest.raises(SpoolError, match="gone"):
        list(items)


def test_one_slice_is_read_at_once_without_a_thread() -> None:
    threads: list[str] = []

    def source() -> Iterator[int]:
        for number in range(3):
            threads.append(threading.current_thread().name)
            yield number

    with read_ahead(source(), SLICE_BYTES_MAX) as items:
        assert threads == [threading.current_thread().name] * 3
        assert list(items) == [0, 1, 2]
