"""`consume --output`: records as one JSON array, as an object a line, as CSV with a header row, or as values.

The beginning and end of an array or a table are also printed without records, and after Ctrl-C. In all forms `consume` prints the number of
messages on stderr at the end, as Kafka's console consumers do (`processed_count`).
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
"""Prefix of a CSV cell whose key, value or header is in base64, because it is not UTF-8 or begins with this prefix."""


class Form(NamedTuple):
    """A formatter (None: the value and a newline), and the bytes before the first record and after the last."""

    formatter: Formatter | None
    begin: bytes = b""
    end: bytes = b""


def make_form(name: str, columns: str | None) -> Form:
    """Returns the form with this name; `columns` are for csv. Raises UsageError if a column is not a part of a record."""
    if name == "json":
        return Form(_array_formatter(), b"[", b"\n]\n")
    if name == "csv":
        return _table(columns)
    return Form(json_formatter if name == "jsonl" else None)


@contextmanager
def framed(form: Form | None) -> Iterator[None]:
    """Prints the beginning of a form, and at exit its end. Does nothing without a form."""
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
    """Returns the form CSV with a header row: all parts of a record, or the named columns."""
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
    """Returns bytes as text, or as `base64:...` if they are not UTF-8 or begin with `base64:`. None stays None."""
    if data is None:
        return None
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        text = BASE64
    return BASE64 + base64.b64encode(data).decode() if text.startswith(BASE64) else text


def _cell(value: Any) -> object:
    """Returns an object, list or boolean as JSON, and any other value unchanged."""
    return json_text(value) if isinstance(value, dict | list | bool) else value


def _row(cells: Any) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(["" if cell is None else cell for cell in cells])
    return buffer.getvalue().encode("utf-8", "surrogateescape")


@contextmanager
def processed_count(output: Output, count: Callable[[], int]) -> Iterator[None]:
    """At exit, flushes stdout. After a normal end or Ctrl-C it also prints the number of records on stderr, unless `-q`."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(f"Processed a total of {count()} messages")
        raise
    finally:
        sys.stdout.buffer.flush()
    output.note(f"Processed a total of {count()} messages")
