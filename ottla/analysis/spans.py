"""Explains bytes field by field: a reader records the name and value of each field as a `Span`, and functions print spans. `ottla log dump
--hex`, `ottla wire` and the console use it. A span is a range of bytes with a name. The heading of a container (a struct, a batch, a
record) is a span without bytes; its length or count is a span of its own. For malformed bytes the reader raises `WireError` and no other
error. `spans` keeps the fields before them, so that a dump shows where the damage begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from struct import Struct
from typing import Any, NamedTuple

from ottla.base.errors import WireError
from ottla.base.uuids import uuid_to_text
from ottla.wire.primitives import Buffer, read_uvarint, read_varint, read_varlong

BYTES_SHOWN = 12
TEXT_SHOWN = 120

_FORMATS = {letter: Struct(">" + letter) for letter in ("b", "h", "i", "q", "B", "H", "I", "d", "?", "16s")}


class Span(NamedTuple):
    """A field: its name, value, nesting depth and bytes `data` from `start` to `end`, with a remark. If `is_unpacked`, the positions count
    decompressed bytes."""

    start: int
    end: int
    depth: int
    name: str
    value: Any
    note: str
    data: bytes
    is_unpacked: bool


class SpanReader:
    """Reads fields in order and keeps a span of each. `base` is added to the shown positions. Methods that read raise `WireError`."""

    def __init__(self, data: Buffer, position: int = 0, *, base: int = 0) -> None:
        self.data = data
        self.position = position
        self.base = base
        self.depth = 0
        self.is_unpacked = False
        self.spans: list[Span] = []

    def unpacked(self, data: Buffer) -> SpanReader:
        """Returns a reader of decompressed bytes. It appends to the spans of this reader."""
        reader = SpanReader(data)
        reader.depth, reader.is_unpacked, reader.spans = self.depth, True, self.spans
        return reader

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    @contextmanager
    def inside(self, name: str, note: str = "") -> Iterator[None]:
        """Adds a heading. Spans that are read inside the context are nested below it."""
        self.add(self.position, self.position, name, None, note)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def add(self, start: int, end: int, name: str, value: Any, note: str = "") -> None:
        data = bytes(self.data[start:end])
        self.spans.append(Span(self.base + start, self.base + end, self.depth, name, value, note, data, self.is_unpacked))

    def fixed(self, name: str, letter: str, note: Callable[[Any], str] | str = "") -> Any:
        """Reads a value of fixed width. `letter` is its format in Python's struct module; `16s` is a UUID."""
        form = _FORMATS[letter]
        start = self.position
        self._need(form.size, name)
        value = form.unpack_from(self.data, start)[0]
        self.position += form.size
        shown = uuid_to_text(value) if letter == "16s" else value
        self.add(start, self.position, name, shown, note(value) if callable(note) else note)
        return value

    def variable(self, name: str, read: Callable[[Buffer, int], tuple[int, int]], note: Callable[[int], str] | str = "") -> int:
        """Reads a number of variable length with `read_uvarint`, `read_varint` or `read_varlong`."""
        start = self.position
        value, self.position = read(self.data, start)
        self.add(start, self.position, name, value, note(value) if callable(note) else note)
        return value

    def uvarint(self, name: str, note: Callable[[int], str] | str = "") -> int:
        return self.variable(name, read_uvarint, note)

    def varint(self, name: str, note: Callable[[int], str] | str = "") -> int:
        return self.variable(name, read_varint, note)

    def varlong(self, name: str, note: Callable[[int], str] | str = "") -> int:
        return self.variable(name, read_varlong, note)

    def octets(self, name: str, size: int, note: str = "") -> bytes:
        """Reads `size` bytes. They are shown as in `as_text`."""
        start = self.position
        self._need(size, name)
        self.position += size
        data = bytes(self.data[start : self.position])
        self.add(start, self.position, name, as_text(data), note)
        return data

    def _need(self, size: int, name: str) -> None:
        if size < 0:
            raise WireError(f"{name} at {self.base + self.position} has the impossible length {size}")
        if size > self.left:
            raise WireError(f"{name} at {self.base + self.position} needs {size} bytes, {self.left} are left")


def as_text(data: bytes) -> str:
    """Formats bytes as quoted text if they are printable UTF-8, else as hexadecimal digits. Shortens long values."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and (text or not data):
        return f'"{text}"' if len(text) <= TEXT_SHOWN else f'"{text[:TEXT_SHOWN]}"...'
    shown = data[: TEXT_SHOWN // 2].hex()
    return f"0x{shown}" + ("..." if len(data) > TEXT_SHOWN // 2 else "")


def as_moment(milliseconds: int) -> str:
    """Formats a timestamp as a date. Returns `none` for negative values, and an empty text beyond the year 9999."""
    if milliseconds < 0:
        return "none"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return ""


def span_lines(spans: list[Span]) -> Iterator[str]:
    """Yields a line for each span: position, bytes, name and value. A `u` before a position means decompressed bytes."""
    places = [place_of(span) for span in spans]
    width = max(map(len, places), default=0)
    for span, place in zip(spans, places, strict=True):
        digits = span.data[:BYTES_SHOWN].hex(" ") + (" .." if len(span.data) > BYTES_SHOWN else "")
        value = "" if span.value is None and not span.data else f" = {shown_value(span.value)}"
        note = f"  ({span.note})" if span.note else ""
        yield f"{place:>{width}}  {digits:<{3 * BYTES_SHOWN + 2}}  {'  ' * span.depth}{span.name}{value}{note}"


def place_of(span: Span) -> str:
    """Returns the positions of a span; an empty text for a heading or an empty value. A `u` means decompressed bytes."""
    if span.start == span.end:
        return ""
    start = f"u{span.start}" if span.is_unpacked else str(span.start)
    return start if span.end - span.start == 1 else f"{start}-{span.end - 1}"


def shown_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def span_objects(spans: list[Span]) -> list[dict[str, Any]]:
    """Returns the spans as JSON objects, their bytes in hexadecimal digits."""
    return [{**span._asdict(), "data": span.data.hex()} for span in spans]
