"""`consume --schema FILE` and `--registry URL`: values and keys in Avro, Protobuf or checked JSON, shown as JSON.

A schema comes from a file (`.avsc`; `.proto`, or `.desc` as `protoc --descriptor_set_out` writes it; anything else is JSON Schema), or from
a schema registry by the id that stands before the value: a zero byte, four bytes of id, and for Protobuf the path to the message's type.
`--framed` says that values have this header although the schema comes from a file. With a registry, keys without the header stay as they
are. Left out: schemas that refer to other schemas of a registry. The formats themselves are in `schema_formats.py`.
"""

from __future__ import annotations

import argparse
import base64
import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.cli.command import NotReached, Refused, UsageError
from ottla.cli.records.schema_formats import Decoder, Format, Misfit, avro, json_schema, protobuf_descriptors, protobuf_source
from ottla.wire.records import Record

MAGIC = 0
HEADER = struct.Struct(">bI")
REGISTRY_SECONDS_MAX = 10.0
OPTIONS = ("schema", "key_schema", "registry", "message", "framed")


class RecordDecoder(NamedTuple):
    """Replaces values and keys of records by JSON; None: they stay as they are."""

    value: Decoder | None
    key: Decoder | None

    def decode(self, topic: str, partition: int, record: Record) -> Record:
        """Raises `Refused` with the record's place if it does not fit its schema."""
        value, key = record.value, record.key
        try:
            if self.value is not None and value is not None:
                value = _json(self.value(bytes(value)))
            if self.key is not None and key is not None:
                key = _json(self.key(bytes(key)))
        except Misfit as error:
            message = f"{topic}-{partition} offset {record.offset} does not fit the schema: {error}"
            raise Refused(message, "INVALID_RECORD") from None
        return record._replace(value=value, key=key)


def make_decoder(args: argparse.Namespace) -> RecordDecoder | None:
    """The decoder that the options ask for; None if they ask for none."""
    if not any(getattr(args, name) for name in OPTIONS):
        return None
    if args.registry is not None:
        if args.schema or args.key_schema or args.message or args.framed:
            raise UsageError("--registry has the schemas; leave out --schema, --key-schema, --message and --framed")
        registry = Registry(args.registry)
        return RecordDecoder(registry.decode, lambda data: registry.decode(data) if _is_framed(data) else _Unchanged(data))
    if not (args.schema or args.key_schema):
        raise UsageError("--message and --framed go with --schema FILE")
    value, key = (None if path is None else file_format(path).decoder(args.message) for path in (args.schema, args.key_schema))
    return RecordDecoder(_without_header(value) if args.framed and value is not None else value, key)


def file_format(path: str) -> Format:
    """The schema of a file. UsageError if it cannot be read or is none."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    if path.endswith((".desc", ".binpb", ".pb")):
        return protobuf_descriptors(data, path)
    text = data.decode("utf-8", "replace")
    if path.endswith(".proto"):
        return protobuf_source(text, path)
    return avro(text, path) if path.endswith(".avsc") else json_schema(text, path)


class Registry:
    """The schemas of a registry, each asked for once."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._formats: dict[int, Format] = {}
        self._decoders: dict[tuple[int, tuple[int, ...]], Decoder] = {}

    def decode(self, data: bytes) -> Any:
        """Decodes what stands behind the header."""
        if not _is_framed(data):
            raise Misfit("it has no header with the id of a schema")
        number = HEADER.unpack_from(data)[1]
        found = self._formats.get(number)
        if found is None:
            found = self._formats[number] = self._ask(number)
        path, start = _message_path(data) if found.has_path else ((), HEADER.size)
        decoder = self._decoders.get((number, path))
        if decoder is None:
            decoder = self._decoders[number, path] = found.decoder(None, path)
        return decoder(data[start:])

    def _ask(self, number: int) -> Format:
        where = f"{self._url}/schemas/ids/{number}"
        answer = fetch_json(where)
        text, kind = answer.get("schema"), str(answer.get("schemaType", "AVRO")).upper()
        if not isinstance(text, str) or answer.get("references"):
            raise Refused(f"{where}: a schema that refers to others is not offered" if text else f"{where} has no schema", "INVALID_SCHEMA")
        makers: dict[str, Callable[[str, str], Format]] = {"AVRO": avro, "JSON": json_schema, "PROTOBUF": protobuf_source}
        if kind not in makers:
            raise Refused(f"{where} has a schema of type {kind}; known are {', '.join(makers)}", "INVALID_SCHEMA")
        return makers[kind](text, where)


def fetch_json(url: str) -> dict[str, Any]:
    """A JSON object over HTTP; user and password may stand in the address. Raises `NotReached` and `Refused`."""
    import urllib.error
    import urllib.parse
    import urllib.request

    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--registry {url!r} is not http://HOST:PORT or https://HOST:PORT")
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = urllib.request.Request(plain, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"})
    if parts.username is not None:
        login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=REGISTRY_SECONDS_MAX) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        raise Refused(f"{plain} answers {error.code} {error.reason}", "INVALID_SCHEMA") from None
    except (OSError, urllib.error.URLError) as error:
        raise NotReached(f"no schema registry at {plain}: {getattr(error, 'reason', error)}") from None
    except ValueError:
        raise Refused(f"{plain} does not answer with JSON", "INVALID_SCHEMA") from None
    return found if isinstance(found, dict) else {}


class _Unchanged(bytes):
    """Bytes that are shown as they are."""


def _json(value: Any) -> bytes:
    if isinstance(value, _Unchanged):
        return value
    return json.dumps(value, ensure_ascii=False, default=_shown).encode("utf-8", "surrogateescape")


def _shown(value: object) -> object:
    """What JSON has no form for: bytes in base64, dates, decimals and ids as text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else str(value)


def _is_framed(data: bytes) -> bool:
    return len(data) >= HEADER.size and data[0] == MAGIC


def _without_header(decoder: Decoder) -> Decoder:
    def decode(data: bytes) -> Any:
        if not _is_framed(data):
            raise Misfit("it has no header with the id of a schema")
        return decoder(data[HEADER.size :])

    return decode


def _message_path(data: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of a Protobuf schema: its place in the file, then in the message round it; and where the message begins."""
    count, position = _varint(data, HEADER.size)
    if count == 0:
        return (0,), position
    path = []
    for _ in range(count):
        place, position = _varint(data, position)
        path.append(place)
    return tuple(path), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number in zigzag form."""
    value = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise Misfit("its header is cut short")
