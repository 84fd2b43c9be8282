"""`consume --schema FILE` and `--registry URL`: values and keys in Avro, Protobuf or checked JSON, shown as JSON.

The schema is in a file, or in a schema registry under the id in the value's header (`registry.py`). With a file, `--framed` skips this
header, which each value must then have. With a registry, each value must have the header; keys without it are unchanged. `formats.py` has
the formats, `encoding.py` converts JSON back.
"""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from ottla.cli.command import Args, Refused, UsageError
from ottla.cli.schemas.formats import Decoder, Misfit, file_format
from ottla.cli.schemas.registry import HEADER, Registry, is_framed, message_path
from ottla.wire.records import Record


class RecordDecoder(NamedTuple):
    """Replaces values and keys of records by JSON. Without a decoder (None) they are unchanged, as are null values and keys."""

    value: Decoder | None
    key: Decoder | None

    def decode(self, topic: str, partition: int, record: Record) -> Record:
        """Returns the record with value and key as JSON. Raises `Refused` with the record's offset if it does not fit its schema."""
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


def make_decoder(args: Args) -> RecordDecoder:
    """Returns the decoder for the options about schemas (at least one is given). Raises UsageError if they exclude each other."""
    if args.registry is not None:
        if args.schema or args.key_schema or args.message or args.framed:
            raise UsageError("--registry has the schemas; leave out --schema, --key-schema, --message and --framed")
        registry = Registry(args.registry)
        return RecordDecoder(registry.decode, lambda data: registry.decode(data) if is_framed(data) else _Unchanged(data))
    if not (args.schema or args.key_schema):
        raise UsageError("--message and --framed go with --schema FILE")
    formats = [None if path is None else file_format(path) for path in (args.schema, args.key_schema)]
    value, key = (None if found is None else found.decoder(args.message) for found in formats)
    if args.framed and value is not None:
        value = _without_header(value, has_path=formats[0] is not None and formats[0].has_path)
    return RecordDecoder(value, key)


class _Unchanged(bytes):
    """Bytes that are printed unchanged."""


def _json(value: Any) -> bytes:
    if isinstance(value, _Unchanged):
        return value
    return json.dumps(value, ensure_ascii=False, default=_shown).encode("utf-8", "surrogateescape")


def _shown(value: object) -> object:
    """Converts values that JSON has no type for: bytes to base64, dates, decimals and ids to text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else str(value)


def _without_header(decoder: Decoder, *, has_path: bool) -> Decoder:
    def decode(data: bytes) -> Any:
        if not is_framed(data):
            raise Misfit("it has no header with the id of a schema")
        return decoder(data[message_path(data)[1] if has_path else HEADER.size :])

    return decode
