"""`consume --output`: records as one JSON array, as an object a line, as CSV with a header row, or as values.

An array and a table have a beginning and an end, which are printed also when there is no record, and after Ctrl-C. All readers end with the
line of Kafka's console consumers that counts the messages (`processed_count`).
"""

from __future__ import annotations

import base64
import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ottla.cli.records.json_numbers import json_text
from ottla.cli.records.record_format import Formatter, json_formatter
from ottla.cli.render.ottla import Output
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import Record

FORMS = ("json", "jsonl", "csv", "plain")
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
BASE64 = "base64:"
"""Prefix of a cell with a key, value or header that is not text."""


class Form(NamedTuple):
    """A formatter (None prints plain values), and the bytes before the first record and after the last."""

    formatter: Formatter | None
    begin: bytes = b""
    end: bytes = b""


def make_form(name: str, columns: str | None) -> Form:
    """The form of this name. UsageError if `columns` are not parts of a record."""
    if name == "json":
        return Form(_array_formatter(), b"[", b"\n]\n")
    if name == "csv":
        return _table(columns)
    return Form(json_formatter if name == "jsonl" else None)


@contextmanager
def framed(form: Form | None) -> Iterator[None]:
    """Prints the beginning and the end of a form around its records."""
    if form is None:
        yield
        return
    sys.stdout.buffer.write(form.begin)
    try:
        yield
    finally:
        sys.stdout.buffer.write(form.end)
        sys.stdout.buffer.flush()


def _array_formatter() -> Formatter:
    before = b"\n"

    def formatted(topic: str, partition: int, header: BatchHeader, record: Record, delivery: int = 0, /) -> bytes:
        nonlocal before
        text = before + json_formatter(topic, partition, header, record, delivery).rstrip(b"\n")
        before = b",\n"
        return text

    return formatted


def _table(columns: str | None) -> Form:
    """CSV with a header row: all parts of a record, or the columns that were named."""
    from ottla.cli.records.where import parse_parts

    if columns is None:
        return Form(_all_parts, _row(COLUMNS))
    parts = parse_parts(columns)

    def formatted(topic: str, partition: int, _: BatchHeader, record: Record, _delivery: int = 0, /) -> bytes:
        return _row([_cell(part(topic, partition, record)) for _, part in parts])

    return Form(formatted, _row([name for name, _ in parts]))


def _all_parts(topic: str, partition: int, _: BatchHeader, record: Record, _delivery: int = 0, /) -> bytes:
    pairs = [(name, _text(value)) for name, value in record.headers]
    by_name = dict(pairs)
    shown = json.dumps(by_name if len(by_name) == len(pairs) else pairs, ensure_ascii=False) if pairs else ""
    return _row([topic, partition, record.offset, record.timestamp, _text(record.key), _text(record.value), shown])


def _text(data: Any) -> str | None:
    """Text, or `base64:...` for bytes that are none, and for text that begins like that."""
    if data is None:
        return None
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        text = BASE64
    return BASE64 + base64.b64encode(data).decode() if text.startswith(BASE64) else text


def _cell(value: Any) -> object:
    """Numbers and texts as they are, whatever has parts as JSON."""
    return json_text(value) if isinstance(value, dict | list | bool) else value


def _row(cells: Any) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(["" if cell is None else cell for cell in cells])
    return buffer.getvalue().encode("utf-8", "surrogateescape")


@contextmanager
def processed_count(output: Output, count: Callable[[], int]) -> Iterator[None]:
    """Flushes the records and notes their number when reading ends, by itself or by Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(f"Processed a total of {count()} messages")
        raise
    finally:
        sys.stdout.buffer.flush()
    output.note(f"Processed a total of {count()} messages")
