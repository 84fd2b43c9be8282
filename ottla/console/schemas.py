"""Records and their schemas: decodes records for pages, and encodes the values that a form writes. A schema is in a file that an option
names, in a registry, or in the form.

A record that no schema decodes is shown as it is, with the reason. Many records of a page may have the same problem. So for `PAUSE_S` a
registry is not asked again for a schema that it has refused. It is asked for no schema at all for this time after it was not reached, or
after it has refused `REFUSALS_MAX` schemas.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from ottla.console.records import Decoded, undecoded
from ottla.schemas.errors import Misfit, RegistryAwayError, SchemaError, SchemaUsageError
from ottla.schemas.formats import Decoder, Encoder, Format, as_json, make_schema
from ottla.schemas.registry import HEADER, Registry, header, is_framed
from ottla.wire.records import Record

PAUSE_S = 10.0
REFUSALS_MAX = 3
ALL = -1
"""The key of a pause for all schemas."""

FILE, REGISTRY = "file", "registry"
TYPED = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""The kinds of schemas in a form, by the names of the choices."""


class TopicFile(NamedTuple):
    """The schema file of a topic's values, and the message of a Protobuf schema (None: the first)."""

    schema: Format
    message: str | None


class Way(NamedTuple):
    """How a form writes a value: unchanged, by the topic's file, by the registry, or by the schema in `text`. With a registry `text` is the
    id of a schema, or empty for the newest one of the topic. `message` names a Protobuf message (empty: the first)."""

    name: str = ""
    text: str = ""
    message: str = ""

    def as_fields(self) -> dict[str, str]:
        """Returns the fields of a form."""
        return {"way": self.name, "schema": self.text, "message": self.message}


class Schemas:
    """See the module. `files` has the schema files by topic. Threads may share it."""

    def __init__(self, registry: Registry | None = None, files: Mapping[str, TopicFile] | None = None) -> None:
        self._registry = registry
        self._files = files or {}
        self._decoders = {topic: found.schema.decoder(found.message) for topic, found in self._files.items()}
        self._pauses: dict[int, tuple[float, str]] = {}
        """By the id of a schema, or `ALL`: the end of the pause, and its reason."""

    def decode(self, topic: str, record: Record) -> Decoded:
        """Returns a record whose key and value are JSON where a schema decodes them. Raises nothing."""
        decode = self._decoders.get(topic)
        value, value_note = self._by_registry(record.value) if decode is None else _decoded(decode, record.value, "its file")
        key, key_note = self._by_registry(record.key)
        notes = [value_note, f"key: {key_note}" if key_note else ""]
        return undecoded(topic, record)._replace(record=record._replace(value=value, key=key), schema="; ".join(filter(None, notes)))

    def ways(self, topic: str) -> list[tuple[str, str]]:
        """Returns the names of the ways to write a value to a topic, with their descriptions."""
        of_file = [(FILE, "by the schema file of this topic")] if topic in self._files else []
        of_registry = [(REGISTRY, "by a schema of the registry")] if self._registry is not None else []
        return [
            ("", "as this text"), *of_file, *of_registry,
            ("avro", "by this Avro schema"), ("protobuf", "by this Protobuf schema"), ("json", "by this JSON Schema"),
        ]  # fmt: skip

    def encode(self, topic: str, value: bytes, way: Way) -> bytes:
        """Returns a value in JSON as its schema writes it. Raises `Misfit` if it does not fit, and `SchemaError`."""
        return self._encoder(topic, way)(value) if way.name else value

    def way_of(self, topic: str, value: bytes) -> tuple[bytes, Way] | None:
        """Returns a value as JSON, and the way that writes the same bytes again; None if there is none."""
        if topic in self._files:
            way = Way(FILE)
        elif self._registry is not None and is_framed(value):
            way = Way(REGISTRY, str(HEADER.unpack_from(value)[1]))
        else:
            return None
        shown = self.decode(topic, Record(0, 0, None, value, ())).record.value
        try:
            return (bytes(shown), way) if shown is not None and self.encode(topic, bytes(shown), way) == value else None
        except (Misfit, SchemaError):
            return None

    def _encoder(self, topic: str, way: Way) -> Encoder:
        message = way.message or None
        if way.name == FILE and topic in self._files:
            found = self._files[topic]
            return found.schema.encoder(message or found.message)
        if way.name == REGISTRY and self._registry is not None:
            return self._registered(self._registry, topic, way.text.strip(), message)
        if way.name not in TYPED:
            raise SchemaUsageError(f"{way.name[:40]!r} is no way to write a value")
        if not way.text.strip():
            raise SchemaUsageError("the schema is empty")
        return make_schema(TYPED[way.name], way.text, "the text").format().encoder(message)

    def _registered(self, registry: Registry, topic: str, number: str, message: str | None) -> Encoder:
        if not number:
            known, schema = registry.latest(f"{topic}-value")
        elif number.isdecimal() and int(number) < 1 << 32:
            known, schema = int(number), registry.schema_text(int(number))
        else:
            raise SchemaUsageError(f"{number[:40]!r} is no id of a schema in the registry")
        found = schema.format()
        before, encode = header(known, found.path_of(message)), found.encoder(message)
        return lambda data: before + encode(data)

    def _by_registry(self, data: bytes | None) -> tuple[bytes | None, str]:
        """Returns bytes as JSON and the name of their schema; unchanged with the reason, or with an empty text without a header."""
        if self._registry is None or data is None or not is_framed(data):
            return data, ""
        number = HEADER.unpack_from(data)[1]
        if reason := self._pause(self._registry, number):
            return data, reason
        try:
            return _decoded(self._registry.decode, data, f"schema {number}")
        except RegistryAwayError as error:
            reason, number = error.text, ALL
        except SchemaError as error:
            reason = error.text
            if len(self._pauses) >= REFUSALS_MAX:
                number = ALL
        self._pauses[number] = time.monotonic() + PAUSE_S, reason
        return data, reason

    def _pause(self, registry: Registry, number: int) -> str:
        """Returns why the registry is not asked for a schema now, or an empty text."""
        now = time.monotonic()
        self._pauses = {key: pause for key, pause in self._pauses.items() if pause[0] > now}
        if registry.has_requested(number):
            return ""
        return self._pauses.get(number, self._pauses.get(ALL, (0.0, "")))[1]


def _decoded(decode: Decoder, data: bytes | None, schema: str) -> tuple[bytes | None, str]:
    if data is None:
        return None, ""
    try:
        return as_json(decode(bytes(data))), f"by {schema}"
    except (Misfit, RecursionError) as error:
        return data, f"does not fit {schema}: {error}"
