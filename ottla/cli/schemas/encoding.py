"""`produce --schema FILE` and `--registry URL`: values and keys are JSON, and are written as a schema says.

A schema file is Avro (`.avsc`), Protobuf (`.proto`, or compiled as `.desc`, `.binpb` or `.pb`), or JSON Schema, which only checks the JSON.
With a registry, values have a header with the schema's id. This schema is the newest of the subject TOPIC-value, or `--schema-id` names it,
or it is the file of `--schema`, which is stored as a version of TOPIC-value. `--key-schema` stores a schema for keys under TOPIC-key;
without it, keys are unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.cli.command import Args, Refused, UsageError
from ottla.cli.input_files import read_text
from ottla.cli.schemas.formats import COMPILED, Encoder, Misfit, file_format
from ottla.cli.schemas.json_schema import KeywordNotOffered, Schema
from ottla.cli.schemas.registry import Registry, header


class RecordEncoder(NamedTuple):
    """Encodes keys and values by their schemas. Without an encoder (None) they are unchanged."""

    value: Encoder | None
    key: Encoder | None

    def encode(self, key: bytes | None, value: bytes | None, where: str) -> tuple[bytes | None, bytes | None]:
        """Returns the encoded key and value. Null stays null. Raises `Refused`, with `where` (such as `line 3`), if one does not fit."""
        try:
            return (
                key if self.key is None or key is None else self.key(key),
                value if self.value is None or value is None else self.value(value),
            )
        except Misfit as error:
            raise Refused(f"{where} does not fit the schema: {error}", "INVALID_RECORD") from None


def make_encoder(args: Args, topic: str) -> RecordEncoder:
    """Returns the encoder for the options about schemas (at least one is given). With a registry, stores the schemas of files there."""
    if args.registry is None:
        if args.schema_id is not None:
            raise UsageError("--schema-id goes with --registry URL")
        if args.schema is None and args.key_schema is None:
            raise UsageError("--message goes with --schema FILE or --registry URL")
        value, key = (path and _of_file(path, message) for path, message in ((args.schema, args.message), (args.key_schema, None)))
        return RecordEncoder(value or None, key or None)
    if args.schema is not None and args.schema_id is not None:
        raise UsageError("--schema is a new schema, --schema-id one that the registry has; choose one")
    registry = Registry(args.registry)
    key = None if args.key_schema is None else _registered(registry, f"{topic}-key", args.key_schema, None)
    if args.schema is not None:
        return RecordEncoder(_registered(registry, f"{topic}-value", args.schema, args.message), key)
    if args.schema_id is not None:
        number, found = args.schema_id, registry.schema(args.schema_id)
    else:
        number, found = registry.latest(f"{topic}-value")
    return RecordEncoder(_framed(found.encoder(args.message), header(number, found.path_of(args.message))), key)


def _of_file(path: str, message: str | None) -> Encoder:
    """Returns the encoder of a schema file. JSON Schema needs the extra only for keywords that `json_schema.py` does not check."""
    if path.endswith((".avsc", ".proto", *COMPILED)):
        return file_format(path).encoder(message)
    if message is not None:
        raise UsageError("--message is for Protobuf")
    try:
        check = Schema(read_text(path), path).check
    except KeywordNotOffered as unusual:
        try:
            return file_format(path).encoder(None)
        except Refused as error:
            raise UsageError(f"{unusual}; {error}") from None

    def checked(data: bytes) -> bytes:
        check(data)
        return data

    return checked


def _registered(registry: Registry, subject: str, path: str, message: str | None) -> Encoder:
    """Stores the schema of a file as a version of a subject. Returns the encoder, which adds the registry's header."""
    if path.endswith(COMPILED):
        raise UsageError(f"{path}: a registry takes the text of a schema, .proto")
    found = file_format(path)
    encode = found.encoder(message)
    return _framed(encode, header(registry.register(subject, read_text(path), found.kind), found.path_of(message)))


def _framed(encode: Encoder, before: bytes) -> Encoder:
    return lambda data: before + encode(data)
