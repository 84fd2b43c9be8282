"""Explains any message of the protocol byte by byte, by its declaration (`wire/schema.py`), with notes on codes and timestamps.

The compiled decoders do not record positions. This module is therefore a second, slower decoder, and a test compares the values of both.
Malformed bytes raise `WireError`; the reader keeps the spans before them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ErrorCode, WireError
from ottla.cli.inspect.span_batches import walk_batches
from ottla.cli.inspect.spans import SpanReader, as_moment
from ottla.wire.apis import API_NAMES
from ottla.wire.primitives import read_uvarint
from ottla.wire.schema import FIXED, Field, Message, Struct, is_flexible


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return "unknown error"


_WORDS: dict[str, Callable[[int], str]] = {
    "error_code": _error_name,
    "partition_error_code": _error_name,
    "api_key": lambda key: API_NAMES.get(key, "unknown"),
    "acks": lambda acks: {-1: "all in-sync replicas", 0: "no answer", 1: "the leader alone"}.get(acks, ""),
    "isolation_level": lambda level: {0: "read_uncommitted", 1: "read_committed"}.get(level, ""),
    "key_type": lambda kind: {0: "group", 1: "transaction", 2: "share group"}.get(kind, ""),
    "replica_id": lambda replica: "a consumer" if replica == -1 else "a broker" if replica >= 0 else "",
    "leader_epoch": lambda epoch: "unknown" if epoch == -1 else "",
    "producer_id": lambda producer: "none" if producer == -1 else "",
    "resource_type": lambda kind: {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}.get(kind, ""),
}
_MOMENT_NAMES = ("log_append_time_ms", "commit_timestamp", "expire_timestamp")


def note_of(name: str, kind: str, value: Any) -> str:
    """Returns the meaning of a code, or a timestamp as a date. Returns an empty text for other fields."""
    if name in _WORDS and isinstance(value, int):
        return _WORDS[name](value)
    if name == "timestamp" and value in (-1, -2, -3):
        return {-1: "latest", -2: "earliest", -3: "max timestamp"}[value]
    if kind == "i64" and ("timestamp" in name or name in _MOMENT_NAMES):
        return as_moment(value)
    return ""


def walk_message(reader: SpanReader, cls: type[Message], version: int) -> None:
    """Explains a whole message of a version. Raises `WireError`."""
    _Walker(reader, version, is_flexible(cls, version)).struct(cls)


class _Walker:
    """Reads one message into the spans of `reader`."""

    def __init__(self, reader: SpanReader, version: int, is_flexible: bool) -> None:
        self.reader = reader
        self.version = version
        self.is_flexible = is_flexible

    def struct(self, cls: type[Struct]) -> None:
        tagged: dict[int, Field] = {}
        for field in cls.__fields__:
            if field.is_tagged(self.version):
                assert field.tag is not None
                tagged[field.tag] = field
            elif field.is_in(self.version):
                self.field(field, field.name, self.is_flexible and not field.classic)
        if self.is_flexible:
            self.tags(tagged)

    def tags(self, tagged: dict[int, Field]) -> None:
        """Reads the tagged fields at the end of a struct of a flexible version."""
        reader = self.reader
        count = reader.uvarint("tagged_fields", "how many follow")
        if count > reader.left:
            raise WireError(f"{count} tagged fields in {reader.left} bytes")
        for _ in range(count):
            tag = reader.uvarint("tag", lambda found: tagged[found].name if found in tagged else "unknown, skipped")
            size = reader.uvarint("tag_size", "bytes that follow")
            field = tagged.get(tag)
            reader.depth += 1
            end = reader.position + size
            if field is None or size > reader.left:
                reader.octets("unknown_tag", size)
            else:
                self.field(field, field.name, True)
            reader.depth -= 1
            if reader.position != end:
                raise WireError(f"tag {tag} says it ends at {reader.base + end}, its field ends at {reader.base + reader.position}")

    def field(self, field: Field, name: str, is_compact: bool) -> None:
        if field.kind in FIXED:
            kind = field.kind
            self.reader.fixed(name, FIXED[kind], lambda value: note_of(name, kind, value))
        elif field.kind == "nested":
            self.nested(field, name)
        elif field.kind == "array":
            self.array(field, name, is_compact)
        else:
            self.blob(field, name, is_compact)

    def nested(self, field: Field, name: str) -> None:
        if field.is_nullable(self.version):
            presence = self.reader.fixed(f"{name}_presence", "b", lambda found: "null" if found < 0 else "present")
            if presence < 0 or (presence == 0 and field.is_tagged(self.version)):
                return
        with self.reader.inside(name):
            self.struct(field.struct)

    def length(self, kind: str, name: str, is_compact: bool) -> int:
        """Reads the length of a string or bytes, or the count of an array. Returns -1 for null."""
        if is_compact:
            found = self.reader.variable(name, read_uvarint, lambda value: f"compact: {value - 1}" if value else "compact: null")
            return found - 1
        length: int = self.reader.fixed(name, "h" if kind == "string" else "i", lambda value: "null" if value == -1 else "")
        if length < -1:
            raise WireError(f"{name} is {length}")
        return length

    def check_null(self, field: Field, name: str) -> None:
        if not field.is_nullable(self.version):
            raise WireError(f"{name} may not be null")

    def blob(self, field: Field, name: str, is_compact: bool) -> None:
        reader = self.reader
        length = self.length(field.kind, f"{name}_length", is_compact)
        if length < 0:
            self.check_null(field, name)
            return
        if field.kind == "records" and length:
            if length > reader.left:
                raise WireError(f"{name} at {reader.base + reader.position} claims {length} bytes, {reader.left} are left")
            with reader.inside(name):
                walk_batches(reader, reader.position + length)
            return
        reader.octets(name, length)

    def array(self, field: Field, name: str, is_compact: bool) -> None:
        reader = self.reader
        count = self.length("array", f"{name}_count", is_compact)
        if count > reader.left:
            raise WireError(f"{name} at {reader.base + reader.position} claims {count} elements in {reader.left} bytes")
        if count < 0:
            self.check_null(field, name)
        element = field.element
        reader.depth += 1
        for number in range(max(0, count)):
            if element.kind == "nested":
                with reader.inside(f"{name}[{number}]"):
                    self.struct(element.struct)
            else:
                self.field(element, f"{name}[{number}]", is_compact)
        reader.depth -= 1
