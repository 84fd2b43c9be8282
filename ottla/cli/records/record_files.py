"""`produce --input csv|json|records`: a table with a header row, JSON arrays or values, or the output of `consume -J`.

`csv`: a row becomes a JSON object with the columns' names. A cell that is a JSON number, `true` or `false` becomes this JSON value, with
all digits. An empty cell, or a cell with the text of `--null`, becomes null. Commas or `--separator` separate cells. Without `--key-field`,
output of `consume --output csv` is recognised by its header row; its rows become the original records, with null for an empty key or value.
`json`: each value becomes a record: a string as its text, null as a tombstone, others as JSON without blanks and with all digits. JSON is
parsed line by line, so that a value from an endless pipe is sent as soon as it is complete. `records`: each object has key, value, headers
and timestamp of a record, as `consume -J` prints them. `--key-field` names the column or member that is also the key. A byte order mark at
the start, as spreadsheets write it, is skipped.
"""

from __future__ import annotations

import base64
import csv
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TextIO

from ottla.analysis.json_numbers import finite, json_text
from ottla.base.counted import counted
from ottla.cli.command import Refused, UsageError
from ottla.cli.records.record_format import BASE64, COLUMNS

INPUTS = ("lines", "csv", "json", "records")
INVALID = "INVALID_RECORD"
CELL_SIZE_MAX = (1 << 31) - 1
"""Maximum characters of a cell: the largest value that Python's reader takes. Its default is 131,072."""

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_WORDS = {"": "null", "true": "true", "false": "false"}
_BYTE_ORDER_MARK = "\ufeff"


class FileRecord(NamedTuple):
    """A record to produce. `timestamp` None means the time of producing it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


def read_records(stream: TextIO, form: str, key_field: str | None, separator: str = ",", null: str = "") -> Iterator[FileRecord]:
    """Returns an iterator of the records of a csv, json or records file. It raises `Refused` with the number of an invalid row or value.
    `null` is a cell of CSV that means null, besides an empty one. Raises `UsageError` for a `key_field` of the form `records`."""
    if form == "records" and key_field is not None:
        raise UsageError("--key-field does not go with --input records, which have keys")
    read: dict[str, Callable[[TextIO, str | None], Iterator[FileRecord]]] = {
        "csv": partial(_table, separator, null),
        "json": _values,
        "records": _exported,
    }
    return read[form](stream, key_field)


def _table(separator: str, null: str, stream: TextIO, key_field: str | None) -> Iterator[FileRecord]:
    csv.field_size_limit(CELL_SIZE_MAX)
    rows = csv.reader(_without_mark(stream), strict=True, delimiter=separator)
    names: list[str] = []
    is_export = False
    try:
        for number, row in enumerate(rows):
            if number == 0:
                names = _checked_names(row, key_field)
                is_export = key_field is None and tuple(names) == COLUMNS
            elif row:
                yield _exported_row(row, number) if is_export else _row_record(names, row, number, key_field, null)
    except csv.Error as error:
        raise Refused(f"line {rows.line_num} is not CSV: {error}", INVALID) from None


def _without_mark(stream: TextIO) -> Iterator[str]:
    yield stream.readline().removeprefix(_BYTE_ORDER_MARK)
    yield from stream


def _checked_names(row: list[str], key_field: str | None) -> list[str]:
    names = [name.strip() for name in row]
    if len(set(names)) < len(names) or "" in names:
        raise Refused(f"the header row {','.join(names)!r} has a column without a name, or two of one name", INVALID)
    if key_field is not None and key_field not in names:
        raise Refused(f"the header row has no column {key_field!r}; there are {', '.join(names)}", INVALID)
    return names


def _row_record(names: list[str], row: list[str], number: int, key_field: str | None, null: str) -> FileRecord:
    if len(row) != len(names):
        raise Refused(f"row {number} has {counted(len(row), 'cell')}, the header row {len(names)}", INVALID)
    members = (f"{_quoted(name)}:{_cell(text, null)}" for name, text in zip(names, row, strict=True))
    try:
        key = None if key_field is None else row[names.index(key_field)].encode()
        return FileRecord(key, f"{{{','.join(members)}}}".encode())
    except UnicodeEncodeError:
        raise Refused(f"row {number} is not UTF-8; convert the file, for example with iconv", INVALID) from None


def _exported_row(row: list[str], number: int) -> FileRecord:
    """Returns the record in a row that `consume --output csv` printed. The row's topic, partition and offset are ignored."""
    try:
        _, _, _, timestamp, key, value, headers = row
        pairs = json.loads(headers) if headers else []
        pairs = pairs.items() if isinstance(pairs, dict) else pairs
        found = tuple((str(name), None if text is None else _cell_bytes(text)) for name, text in pairs)
        return FileRecord(_cell_bytes(key), _cell_bytes(value), found, _timestamp(int(timestamp)) if timestamp else None)
    except (AttributeError, TypeError, ValueError, RecursionError):
        raise Refused(f"row {number} is not as `ottla consume --output csv` prints it", INVALID) from None


def _cell_bytes(text: str) -> bytes | None:
    """Returns the bytes of a key, value or header in a cell, decoded if the cell begins with `base64:`. None for an empty cell."""
    if text.startswith(BASE64):
        return base64.b64decode(text.removeprefix(BASE64), validate=True)
    return text.encode("utf-8", "surrogateescape") or None


def _cell(text: str, null: str) -> str:
    """Returns the cell as JSON. Numbers keep their digits: 2.50 stays 2.50, and a long number loses no digit."""
    if text == null:
        return "null"
    return _WORDS.get(text) or (text if _NUMBER.fullmatch(text) else _quoted(text))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _values(stream: TextIO, key_field: str | None) -> Iterator[FileRecord]:
    for number, (element, text) in enumerate(_elements(stream), 1):
        key = None
        if key_field is not None:
            if not isinstance(element, dict) or key_field not in element:
                raise Refused(f"value {number} has no member {key_field!r}", INVALID)
            key = _plain(element[key_field])
        yield FileRecord(key, _plain(element) if element is None or isinstance(element, str) else _written(text))


def _written(text: str) -> bytes:
    """Returns the text of a value as written in the file, without blanks outside of strings."""
    return _BLANKS_OUTSIDE_STRINGS.sub(r"\1", text).encode("utf-8", "surrogateescape")


_VALUES = ("payload", "payload_base64")


def _exported(stream: TextIO, _: str | None) -> Iterator[FileRecord]:
    for number, (element, _text) in enumerate(_elements(stream), 1):
        try:
            if element.keys().isdisjoint(_VALUES):  # not a tombstone, which has `payload` null
                raise ValueError
            flat = element.get("headers") or []
            headers = tuple((str(name), _header_value(value)) for name, value in zip(flat[::2], flat[1::2], strict=True))
            yield FileRecord(_bytes_of(element, "key"), _bytes_of(element, "payload"), headers, _timestamp(element.get("ts")))
        except (AttributeError, TypeError, ValueError):
            raise Refused(f"record {number} is not as `ottla consume -J` prints it", INVALID) from None


def _header_value(value: Any) -> bytes | None:
    return _cell_bytes(value) if isinstance(value, str) and value.startswith(BASE64) else _plain(value)


def _timestamp(value: Any) -> int | None:
    if value is not None and (type(value) is not int or not -1 <= value < 1 << 63):
        raise ValueError
    return None if value == -1 else value  # -1 is Kafka's for none


def _bytes_of(element: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in element:
        return base64.b64decode(element[f"{name}_base64"], validate=True)
    return _plain(element.get(name))


_DECODER = json.JSONDecoder(parse_float=finite, parse_constant=finite)
_BLANKS = re.compile(r"[ \t\r\n]*")
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
_BLANKS_OUTSIDE_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')


def _elements(stream: TextIO) -> Iterator[tuple[Any, str]]:
    """Yields JSON values, each with its text. Input that begins with `[` has arrays, whose elements are yielded."""
    text = ""
    depth = number = 0
    is_array: bool | None = None
    is_open = may_have_comma = False
    for line in chain(_without_mark(stream), [""]):  # the empty one is the end
        text += line
        depth += _depth(line)
        if is_array is None and (start := _skip(text, 0)) < len(text):
            is_array = text[start] == "["
        if line and depth > bool(is_array):
            continue  # the next line continues the value
        position = 0
        while (position := _skip(text, position)) < len(text):
            letter = text[position]
            if is_array and letter == ("]" if is_open else "["):
                is_open, may_have_comma, position = not is_open, False, position + 1
            elif may_have_comma and letter == ",":
                may_have_comma, position = False, position + 1
            else:
                number += 1
                element, end = _decoded(text, position, number, may_be=is_open or not is_array)
                yield element, text[position:end]
                may_have_comma, position = is_open, end
        text = ""
    if is_open:
        raise Refused(f"the array has no end after value {number}", INVALID)


def _depth(line: str) -> int:
    """Returns the brackets that a line opens, minus the brackets that it closes."""
    bare = _STRINGS.sub("", line)
    return bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")


def _decoded(text: str, position: int, number: int, *, may_be: bool) -> tuple[Any, int]:
    """Decodes the value at a position. Returns it and its end. Raises `Refused` if it is not JSON, or if `may_be` forbids a value here."""
    try:
        if not may_be:
            raise ValueError
        return _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        raise Refused(f"value {number} is not JSON: {text[position : position + 80]!r}", INVALID) from None


def _skip(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    assert found is not None
    return found.end()


def _plain(value: Any) -> bytes | None:
    """Returns text as UTF-8, None for None (null), and any other value as JSON."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json_text(value, is_compact=True)).encode("utf-8", "surrogateescape")
