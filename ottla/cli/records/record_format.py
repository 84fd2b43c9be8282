"""Formats records for stdout: by Kafka's formatter properties, by kcat's `-f` tokens, or in the forms of `consume --output`.

A formatter is a function (topic, partition, batch header, record, delivery count) -> bytes. The delivery count is 0 outside share groups.
The default format, the value and a line end, is `None`: the caller then joins the values without calling a formatter for each record. The
beginning and end of a form (of an array, of a table) are also printed without records, and after Ctrl-C.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from ottla.analysis.json_numbers import json_text
from ottla.cli.command import UsageError
from ottla.cli.records.record_input import is_on, unescape
from ottla.cli.records.record_numbers import deserializer
from ottla.cli.render.ottla import Output
from ottla.wire.batch_header import LOG_APPEND_TIME, BatchHeader
from ottla.wire.records import Record


class Formatter(Protocol):
    """The type of formatters. `delivery` is the delivery count in a share group, else 0."""

    def __call__(self, topic: str, partition: int, header: BatchHeader, record: Record, delivery: int = 0, /) -> bytes: ...


_TOKEN = re.compile(r"%([svSRkKThtpo%])(?:(?<=[svk])\{(hex|base64)\})?")
_Part = bytes | tuple[str, str | None]
_NULL_LENGTH = -1

INTERNAL_FORMATTERS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "OffsetsMessageFormatter": ("offsets", (0, 1)),
    "GroupMetadataMessageFormatter": ("offsets", (2,)),
    "TransactionLogMessageFormatter": ("transactions", (0,)),
    "ShareGroupStateMessageFormatter": ("shares", (0, 1)),
}
"""Kafka's formatters of internal topics, each with its topic and the versions of the record keys that it prints."""


def internal_formatter(kind: str, types: tuple[int, ...]) -> Formatter:
    from ottla.cli.inspect.log_decoders import message_json

    def shown(topic: str, partition: int, header: BatchHeader, record: Record, delivery: int = 0, /) -> bytes:
        text = message_json(record, kind, types)
        return b"" if text is None else text.encode() + b"\n"

    return shown


def property_formatter(properties: Mapping[str, str]) -> Formatter | None:
    """Returns Kafka's default formatter, None if it prints only the value and a newline. Raises UsageError for an unknown deserializer."""
    names = ("key", "value", "timestamp", "partition", "offset", "delivery", "epoch", "headers")
    shown = {name: is_on(properties, f"print.{name}", name == "value") for name in names}
    separator = properties.get("key.separator", "\t").encode()
    line_end = properties.get("line.separator", "\n").encode()
    null = properties.get("null.literal", "null").encode()
    between_headers = properties.get("headers.separator", ",").encode()
    read_key, read_value = (deserializer(properties.get(f"{name}.deserializer")) for name in ("key", "value"))
    is_plain = line_end == b"\n" and null == b"null" and read_value is None
    if not any(shown[name] for name in shown if name != "value") and shown["value"] and is_plain:
        return None

    def formatted(topic: str, partition: int, header: BatchHeader, record: Record, delivery: int = 0, /) -> bytes:
        parts = []
        if shown["timestamp"]:
            kind = "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime"
            parts.append(b"%b:%d" % (kind.encode(), record.timestamp) if record.timestamp >= 0 else b"NO_TIMESTAMP")
        if shown["partition"]:
            parts.append(b"Partition:%d" % partition)
        if shown["offset"]:
            parts.append(b"Offset:%d" % record.offset)
        if shown["delivery"]:
            parts.append(b"Delivery:%d" % delivery if delivery else b"Delivery:NOT_PRESENT")
        if shown["epoch"]:
            # Consumers of a share group do not know epochs in Kafka, so its tool prints none.
            parts.append(b"Epoch:NOT_PRESENT" if delivery else b"Epoch:%d" % header.partition_leader_epoch)
        if shown["headers"]:
            parts.append(_headers(record, between_headers, null) if record.headers else b"NO_HEADERS")
        if shown["key"]:
            parts.append(null if record.key is None else record.key if read_key is None else read_key(record.key))
        if shown["value"]:
            parts.append(null if record.value is None else record.value if read_value is None else read_value(record.value))
        return separator.join(parts) + line_end

    return formatted


def _headers(record: Record, between: bytes, null: bytes = b"NULL", equals: bytes = b":") -> bytes:
    return between.join(
        name.encode("utf-8", "surrogateescape") + equals + (null if value is None else value) for name, value in record.headers
    )


def token_formatter(text: str) -> Formatter:
    """Returns a formatter for kcat's format string, with rpk's `%v` and `{hex}`. Copies other text. Raises UsageError for an unknown token.
    """
    if text in ("json", "raw"):
        raise UsageError(f"-f takes a format such as '%t %o %s\\n'; for {text} say {'-J' if text == 'json' else 'nothing'}")
    layout = unescape(text)
    parts: list[_Part] = []
    position = 0
    for token in _TOKEN.finditer(layout):
        parts.append(layout[position : token.start()].encode())
        parts.append((token.group(1), token.group(2)) if token.group(1) != "%" else b"%")
        position = token.end()
    parts.append(layout[position:].encode())
    unknown = re.search(r"%(.)", _TOKEN.sub("", layout))
    if unknown is not None:
        raise UsageError(f"-f has no token %{unknown.group(1)}; there are %s %v %S %R %k %K %T %h %t %p %o %%, %v{{hex}}, %v{{base64}}")

    def formatted(topic: str, partition: int, _: BatchHeader, record: Record, _delivery: int = 0, /) -> bytes:
        return b"".join([part if isinstance(part, bytes) else _token(*part, topic, partition, record) for part in parts])

    return formatted


def _token(letter: str, encoding: str | None, topic: str, partition: int, record: Record) -> bytes:
    if letter in "sv":
        return _as_text(record.value or b"", encoding)
    if letter == "k":
        return _as_text(record.key or b"", encoding)
    if letter == "R":
        return _length(record.value).to_bytes(4, "big", signed=True)
    if letter == "h":
        return _headers(record, b",", equals=b"=")
    numbers = {"S": _length(record.value), "K": _length(record.key), "T": record.timestamp, "t": topic, "p": partition, "o": record.offset}
    return str(numbers[letter]).encode()


def _as_text(data: bytes | memoryview, encoding: str | None) -> bytes:
    """Returns the bytes unchanged (`encoding` None), as hexadecimal digits, or in base64."""
    if encoding is None:
        return bytes(data)
    return data.hex().encode() if encoding == "hex" else base64.b64encode(data)


def _length(data: bytes | None) -> int:
    return _NULL_LENGTH if data is None else len(data)


def json_formatter(topic: str, partition: int, header: BatchHeader, record: Record, delivery: int = 0, /) -> bytes:
    """Returns a record as one line of JSON. A key or value that is not UTF-8 is in base64, as `key_base64` or `payload_base64`. A header
    value that is not UTF-8, or begins with `base64:`, is in base64 behind this prefix."""
    members: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "tstype": "logappend" if header.timestamp_type == LOG_APPEND_TIME else "create",
        "ts": record.timestamp,
    }
    if delivery:
        members["delivery"] = delivery
    if record.headers:
        members["headers"] = [part for name, value in record.headers for part in (name, _cell_text(value))]
    for name, data in (("key", record.key), ("payload", record.value)):
        suffix, text = _text(data)
        members[name + suffix] = text
    return json.dumps(members, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def _text(data: bytes | None) -> tuple[str, str | None]:
    if data is None:
        return "", None
    try:
        return "", data.decode()
    except UnicodeDecodeError:
        return "_base64", base64.b64encode(data).decode()


FORMS = ("json", "jsonl", "csv", "plain")
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
BASE64 = "base64:"
"""Prefix of a header's value, and of a CSV cell, that is in base64, because it is not UTF-8 or begins with this prefix."""


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
    from ottla.analysis.where import parse_parts

    if columns is None:
        return Form(_all_parts, _row(COLUMNS))
    try:
        parts = parse_parts(columns)
    except ValueError as error:
        raise UsageError(str(error)) from None

    def formatted(topic: str, partition: int, _: BatchHeader, record: Record, _delivery: int = 0, /) -> bytes:
        return _row([_cell(part(topic, partition, record)) for _, part in parts])

    return Form(formatted, _row([name for name, _ in parts]))


def _all_parts(topic: str, partition: int, _: BatchHeader, record: Record, _delivery: int = 0, /) -> bytes:
    pairs = [(name, _cell_text(value)) for name, value in record.headers]
    by_name = dict(pairs)
    shown = json.dumps(by_name if len(by_name) == len(pairs) else pairs, ensure_ascii=False) if pairs else ""
    return _row([topic, partition, record.offset, record.timestamp, _cell_text(record.key), _cell_text(record.value), shown])


def _cell_text(data: Any) -> str | None:
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
