"""Implements `--schema FILE` and `--registry URL` of `produce` and `consume`: converts JSON to values and keys in Avro, Protobuf or checked
JSON, and back.

A schema file is Avro (`.avsc`), Protobuf (`.proto`, or compiled as `.desc`, `.binpb` or `.pb`), or JSON Schema, which only checks the JSON.
With a registry, each value begins with a header that has the id of its schema (`registry.py`). `produce` uses the newest schema of the
subject TOPIC-value, or the schema that `--schema-id` names. With `--schema` it stores the schema of the file as a version of TOPIC-value,
and uses it. With `--key-schema` it does the same for keys and TOPIC-key; otherwise keys are unchanged. `consume` refuses values without
the header, and does not change keys without it.

Without a registry, values have no header. With `--framed`, `consume` skips the header, which each value must then have.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ottla.cli.command import Args, NotReached, Refused, UsageError
from ottla.cli.input_files import read_text
from ottla.cli.schemas.json_schema import KeywordNotOffered, Schema
from ottla.schemas import errors
from ottla.schemas.errors import Misfit
from ottla.schemas.formats import COMPILED, Decoder, Encoder, as_json, file_format
from ottla.schemas.registry import HEADER, Registry, header, is_framed, message_path
from ottla.wire.records import Record


@contextmanager
def as_command_errors() -> Iterator[None]:
    """Converts errors of schemas and registries to errors of a command."""
    try:
        yield
    except errors.SchemaError as error:
        raise _command_error(error) from None


def _command_error(error: errors.SchemaError) -> Exception:
    if isinstance(error, errors.SchemaUsageError):
        return UsageError(error.text if error.option == "schema" else f"--{error.option} {error.text}")
    if isinstance(error, errors.RegistryAwayError):
        return NotReached(error.text)
    names = {errors.RegistryError: "INVALID_SCHEMA", errors.SchemaCompilerError: "REQUEST_TIMED_OUT"}
    return Refused(error.text, names.get(type(error), "MissingRequirementError"))


class RecordEncoder(NamedTuple):
    """Encodes keys and values by their schemas. Without an encoder (None) they are unchanged."""

    value: Encoder | None
    key: Encoder | None

    def encode(self, key: bytes | None, value: bytes | None, where: str) -> tuple[bytes | None, bytes | None]:
        """Returns the encoded key and value. Null stays null. Raises `Refused`, with `where` (such as `line 3`) in the message, if the key
        or value does not fit.
        """
        try:
            return (
                key if self.key is None or key is None else self.key(key),
                value if self.value is None or value is None else self.value(value),
            )
        except Misfit as error:
            raise Refused(f"{where} does not fit the schema: {error}", "INVALID_RECORD") from None


@as_command_errors()
def make_encoder(args: Args, topic: str) -> RecordEncoder:
    """Returns the encoder for the options about schemas (at least one is given). With a registry, stores the schemas of files there."""
    if args.registry is None:
        if args.schema_id is not None:
            raise UsageError("--schema-id goes with --registry URL")
        if args.schema is None and args.message is not None:
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
        number, schema = registry.latest(f"{topic}-value")
        found = schema.format()
    return RecordEncoder(_framed(found.encoder(args.message), header(number, found.path_of(args.message))), key)


def _of_file(path: str, message: str | None) -> Encoder:
    """Returns the encoder of a schema file. A JSON Schema with keywords that `json_schema.py` does not check needs the packages of an
    extra."""
    if path.endswith((".avsc", ".proto", *COMPILED)):
        return file_format(path).encoder(message)
    if message is not None:
        raise UsageError("--message is for Protobuf")
    try:
        check = Schema(read_text(path), path).check
    except KeywordNotOffered as unusual:
        try:
            return file_format(path).encoder(None)
        except errors.MissingPackageError as error:
            raise UsageError(f"{unusual}; {error.text}") from None

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


class RecordDecoder(NamedTuple):
    """Replaces values and keys of records by JSON. Without a decoder (None) they are unchanged, as are null values and keys."""

    value: Decoder | None
    key: Decoder | None

    def decode(self, topic: str, partition: int, record: Record) -> Record:
        """Returns the record with value and key as JSON. Raises `Refused` with the record's offset if it does not fit its schema."""
        value, key = record.value, record.key
        try:
            if self.value is not None and value is not None:
                value = as_json(self.value(bytes(value)))
            if self.key is not None and key is not None:
                key = found if isinstance(found := self.key(bytes(key)), _Unchanged) else as_json(found)
        except Misfit as error:
            message = f"{topic}-{partition} offset {record.offset} does not fit the schema: {error}"
            raise Refused(message, "INVALID_RECORD") from None
        except errors.SchemaError as error:
            raise _command_error(error) from None
        return record._replace(value=value, key=key)


@as_command_errors()
def make_decoder(args: Args) -> RecordDecoder:
    """Returns the decoder for the options about schemas (at least one is given). Raises UsageError if they exclude each other."""
    if args.registry is not None:
        if args.schema or args.key_schema or args.message or args.framed:
            raise UsageError("--registry has the schemas; leave out --schema, --key-schema, --message and --framed")
        registry = Registry(args.registry)
        return RecordDecoder(registry.decode, lambda data: registry.decode(data) if is_framed(data) else _Unchanged(data))
    key = None if args.key_schema is None else file_format(args.key_schema).decoder()
    if args.schema is None:
        if args.message or args.framed:
            raise UsageError("--message and --framed go with --schema FILE")
        return RecordDecoder(None, key)
    found = file_format(args.schema)
    value = found.decoder(args.message)
    return RecordDecoder(_without_header(value, has_path=found.has_path) if args.framed else value, key)


class _Unchanged(bytes):
    """Bytes that are printed unchanged."""


def _without_header(decoder: Decoder, *, has_path: bool) -> Decoder:
    def decode(data: bytes) -> Any:
        if not is_framed(data):
            raise Misfit("it has no header with the id of a schema")
        return decoder(data[message_path(data)[1] if has_path else HEADER.size :])

    return decode
