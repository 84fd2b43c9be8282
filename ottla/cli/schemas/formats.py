"""Avro, JSON Schema and Protobuf: turns the text of a schema into functions that decode bytes and functions that encode JSON.

The extra `ottla[schemas]` has the libraries: fastavro, jsonschema, and protobuf with the compiler of grpcio-tools. A library is imported
when a schema of its kind is used; without it, `Refused` is raised. Its errors about data that do not fit become a `Misfit`.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottla.analysis.json_numbers import WrittenFloat
from ottla.cli.command import Refused, UsageError
from ottla.cli.input_files import read_bytes
from ottla.cli.optional import library
from ottla.cli.schemas.avro_json import avro_value

Decoder = Callable[[bytes], Any]
"""Decodes bytes to Python values. Raises `Misfit`."""
Encoder = Callable[[bytes], bytes]
"""Encodes JSON (UTF-8) as bytes of the schema's format. Raises `Misfit`."""

COMPILE_SECONDS_MAX = 30.0
COMPILED = (".desc", ".binpb", ".pb")
"""File name suffixes for the output of `protoc --descriptor_set_out`."""
PACKAGES = {"google": "protobuf", "grpc_tools": "grpcio-tools"}
"""Names of packages by import name, where the two differ."""
AVRO_ERRORS = (ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, AttributeError)


class Misfit(Exception):
    """Data does not fit a schema. The message says why."""


class Format(NamedTuple):
    """A schema. Only a Protobuf schema has several messages; the first is the default.

    `decoder(name, path)` returns the decoder of a message, by name or path. `encoder(name)` returns its encoder, `path_of(name)` its path:
    the index of the outermost message in the file, then the index of each nested message in its parent. Empty except for Protobuf.
    """

    kind: str
    decoder: Callable[..., Decoder]
    encoder: Callable[[str | None], Encoder]
    path_of: Callable[[str | None], tuple[int, ...]] = lambda _: ()

    @property
    def has_path(self) -> bool:
        return self.kind == "PROTOBUF"


def file_format(path: str) -> Format:
    """Returns the schema in a file, by the file's suffix. Raises UsageError if the file is unreadable or has no valid schema."""
    data = read_bytes(path)
    if path.endswith(COMPILED):
        return protobuf_descriptors(data, path)
    text = data.decode("utf-8", "replace")
    if path.endswith(".proto"):
        return protobuf_source(text, path)
    return avro(text, path) if path.endswith(".avsc") else json_schema(text, path)


def _library(name: str) -> Any:
    return library(name, PACKAGES.get(name.partition(".")[0], ""))


def _only(kind: str, decode: Decoder, encode: Encoder) -> Format:
    """Returns a schema without messages to choose from. Its functions raise UsageError for the name of a message."""

    def decoder(name: str | None = None, path: Sequence[int] = ()) -> Decoder:
        check(name)
        return decode

    def encoder(name: str | None) -> Encoder:
        check(name)
        return encode

    def check(name: str | None) -> None:
        if name is not None:
            raise UsageError("--message is for Protobuf")

    return Format(kind, decoder, encoder)


def avro(text: str, where: str) -> Format:
    """Returns an Avro schema. Raises UsageError if the text is not valid."""
    fastavro = _library("fastavro")
    named: dict[str, Any] = {}
    try:
        schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (*AVRO_ERRORS, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise UsageError(f"{where} is not an Avro schema: {_line(error)}") from None

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except AVRO_ERRORS as error:
            raise Misfit(_line(error)) from None
        rest = stream.read()
        if rest:
            raise Misfit(f"{len(rest)} bytes are left over")
        return value

    def encode(data: bytes) -> bytes:
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, schema, avro_value(schema, named, _parsed(data)))
        except AVRO_ERRORS as error:
            raise Misfit(_line(error)) from None
        return stream.getvalue()

    return _only("AVRO", decode, encode)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data, parse_float=WrittenFloat)
    except (ValueError, RecursionError) as error:
        raise Misfit(f"it is not JSON: {_line(error)}") from None


def json_schema(text: str, where: str) -> Format:
    """Returns a JSON Schema, whose values are checked. Raises UsageError if the text is not valid."""
    jsonschema = _library("jsonschema")
    try:
        schema = json.loads(text)
        kind = jsonschema.validators.validator_for(schema)
        kind.check_schema(schema)
    except (ValueError, RecursionError, jsonschema.exceptions.SchemaError) as error:
        raise UsageError(f"{where} is not a JSON Schema: {_line(error)}") from None
    validator = kind(schema)

    def decode(data: bytes) -> Any:
        value = _parsed(data)
        wrong = next(iter(validator.iter_errors(value)), None)
        if wrong is not None:
            raise Misfit(f"{wrong.json_path}: {_line(wrong.message)}")
        return value

    def encode(data: bytes) -> bytes:
        decode(data)
        return data

    return _only("JSON", decode, encode)


def protobuf_source(text: str, where: str) -> Format:
    """Compiles a `.proto`. Its imports must be Google's, or files in its directory. Raises UsageError if it does not compile. Raises
    `Refused` if the compiler takes more than `COMPILE_SECONDS_MAX`."""
    _library("grpc_tools")
    with tempfile.TemporaryDirectory(prefix="ottla-proto-") as directory:
        source = Path(where) if where.endswith(".proto") else Path(directory, "schema.proto")
        if source.parent == Path(directory):
            source.write_text(text)
        out = Path(directory, "set.desc")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source.parent}", "--include_imports", f"--descriptor_set_out={out}"]
        try:
            done = subprocess.run(
                [*command, str(source)], capture_output=True, text=True, errors="replace", timeout=COMPILE_SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            raise Refused(f"{where} did not compile within {COMPILE_SECONDS_MAX:g} s", "REQUEST_TIMED_OUT") from None
        if done.returncode:
            raise UsageError(f"{where} is not a Protobuf schema: {_compiler_error(done.stderr)}")
        return protobuf_descriptors(out.read_bytes(), where)


def _compiler_error(text: str) -> str:
    """Returns the compiler's first line about a file (`NAME:LINE:COLUMN: ...`), else the last line that it has printed."""
    lines = text.strip().splitlines() or ["no reason is given"]
    return next((line for line in lines if re.match(r"\S+:\d+:\d+: ", line)), lines[-1])


def protobuf_descriptors(data: bytes, where: str) -> Format:
    """Returns the schema in a set of descriptors. The last file is the compiled one; the files before it are its imports."""
    descriptor_pb2 = _library("google.protobuf.descriptor_pb2")
    pools, factory = _library("google.protobuf.descriptor_pool"), _library("google.protobuf.message_factory")
    protobuf_error = _library("google.protobuf.message").DecodeError
    forms = _library("google.protobuf.json_format")
    pool = pools.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(data).file
        if not files:
            raise TypeError("it names no file")
        for file in files:
            pool.Add(file)
        own = pool.FindFileByName(files[-1].name)
    except (protobuf_error, TypeError, IndexError, KeyError) as error:
        raise UsageError(f"{where} is not a set of Protobuf descriptors: {_line(error)}") from None

    def decoder(name: str | None = None, path: Sequence[int] = ()) -> Decoder:
        message = factory.GetMessageClass(_message(pool, own, where, name, path))

        def decode(data: bytes) -> Any:
            try:
                return forms.MessageToDict(message.FromString(data), preserving_proto_field_name=True)
            except (protobuf_error, forms.Error) as error:
                raise Misfit(_line(error)) from None

        return decode

    def encoder(name: str | None) -> Encoder:
        message = factory.GetMessageClass(_message(pool, own, where, name, ()))

        def encode(data: bytes) -> bytes:
            try:
                return bytes(forms.Parse(data, message(), descriptor_pool=pool).SerializeToString(deterministic=True))
            except (protobuf_error, forms.Error, UnicodeDecodeError, RecursionError) as error:
                raise Misfit(_line(error)) from None

        return encode

    return Format("PROTOBUF", decoder, encoder, lambda name: _path_of(_message(pool, own, where, name, ())))


def _path_of(message: Any) -> tuple[int, ...]:
    """Returns a message's path: the index of the outermost message in the file, then the index of each nested message in its parent."""
    parent = message.containing_type
    if parent is None:
        return (list(message.file.message_types_by_name).index(message.name),)
    return (*_path_of(parent), [one.name for one in parent.nested_types].index(message.name))


def _message(pool: Any, file: Any, where: str, name: str | None, path: Sequence[int]) -> Any:
    """Returns the descriptor of the message with this name (with package or without), else with this path, else of the first message.
    Raises UsageError for an unknown name, `Misfit` for an unknown path."""
    messages = list(file.message_types_by_name.values())
    if name is not None:
        for candidate in (name, f"{file.package}.{name}"):
            try:
                return pool.FindMessageTypeByName(candidate)
            except KeyError:
                continue
        raise UsageError(f"{where} has no message {name!r}; there are {', '.join(one.name for one in messages)}")
    try:
        found = messages[path[0] if path else 0]
        for place in path[1:]:
            found = found.nested_types[place]
    except IndexError:
        raise Misfit(f"{where} has no message at {list(path)}") from None
    return found


def _line(error: object) -> str:
    """Returns the first line of an error's text, or the name of its class if it has no text."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
