"""Avro, JSON Schema and Protobuf: turns the text of a schema into functions that decode bytes and functions that encode JSON.

The extra `ottla[schemas]` has the libraries: fastavro, jsonschema, and protobuf with the compiler of grpcio-tools. A library is imported
when a schema of its kind is used; without it, `MissingPackageError` is raised. If the library reports that data do not fit, a `Misfit` is
raised.
"""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ottla.analysis.json_numbers import WrittenFloat
from ottla.schemas.avro_json import avro_value
from ottla.schemas.errors import Misfit, SchemaCompilerError, SchemaUsageError, first_line, library

Decoder = Callable[[bytes], Any]
"""Decodes bytes to Python values. Raises `Misfit`."""
Encoder = Callable[[bytes], bytes]
"""Encodes JSON (UTF-8) as bytes of the schema's format. Raises `Misfit`."""

COMPILE_SECONDS_MAX = 30.0
COMPILED = (".desc", ".binpb", ".pb")
"""File name suffixes for the output of `protoc --descriptor_set_out`."""
AVRO_ERRORS = (ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, AttributeError)


class Format(NamedTuple):
    """A schema with its functions. Only a Protobuf schema has several messages; the first is the default.

    `decoder(name, path)` returns the decoder of a message, by name or path. `encoder(name)` returns its encoder, `path_of(name)` its path:
    the index of the outermost message in the file, then the index of each nested message in its parent; it is empty except for Protobuf.
    `definition` is the parsed JSON Schema, the schema that fastavro has parsed and its named types, or for Protobuf a function that returns
    the descriptor of a message, by name or path.
    """

    kind: str
    decoder: Callable[..., Decoder]
    encoder: Callable[[str | None], Encoder]
    path_of: Callable[[str | None], tuple[int, ...]] = lambda _: ()
    definition: Any = None

    @property
    def has_path(self) -> bool:
        return self.kind == "PROTOBUF"


class Schema(NamedTuple):
    """A schema as a plain value, for caches and other processes. `kind` is AVRO, JSON or PROTOBUF. A Protobuf schema also has its compiled
    form; a schema from a compiled file has no text. `where` names the schema in errors.
    """

    kind: str
    text: str
    where: str
    compiled: bytes = b""

    def format(self) -> Format:
        """Raises `SchemaUsageError` if the schema is not valid."""
        return _cached_format(self)


@lru_cache(64)
def _cached_format(schema: Schema) -> Format:
    return _format(schema)


def _format(schema: Schema) -> Format:
    if schema.kind == "PROTOBUF":
        return protobuf_descriptors(schema.compiled, schema.where)
    return (avro if schema.kind == "AVRO" else json_schema)(schema.text, schema.where)


def as_json(value: Any) -> bytes:
    """Returns a decoded value as JSON."""
    return json.dumps(value, ensure_ascii=False, default=_shown).encode("utf-8", "surrogateescape")


def _shown(value: object) -> object:
    """Converts values that JSON has no type for: bytes to base64, dates, decimals and ids to text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else str(value)


def make_schema(kind: str, text: str, where: str) -> Schema:
    """Returns a schema of this text, and compiles it if it is Protobuf. Raises as `compile_protobuf` does."""
    return Schema(kind, text, where, compile_protobuf(text, where) if kind == "PROTOBUF" else b"")


def schema_of(given: str, kind: str) -> Schema:
    """Returns the schema with this text, or in the file with this path. Raises `SchemaUsageError` if the file is unreadable, and as
    `make_schema` does."""
    if given.lstrip()[:1] in ("{", "[", '"') or (kind == "PROTOBUF" and ("{" in given or ";" in given)):
        return make_schema(kind, given, "the schema")
    data = _read(given)
    if given.endswith(COMPILED):
        return Schema(kind, "", given, data)
    return make_schema(kind, data.decode("utf-8", "replace"), given)


def file_format(path: str) -> Format:
    """Returns the schema in a file, by the file's suffix. Raises SchemaUsageError if the file is unreadable or has no valid schema."""
    kind = "PROTOBUF" if path.endswith((".proto", *COMPILED)) else "AVRO" if path.endswith(".avsc") else "JSON"
    return _format(schema_of(f"./{path}" if path[:1] in ("{", "[", '"') else path, kind))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise SchemaUsageError(f"cannot read {path}: {(getattr(error, 'strerror', None) or str(error)).lower()}") from None


def _only(kind: str, decode: Decoder, encode: Encoder, definition: Any) -> Format:
    """Returns a schema without messages (Avro or JSON). Its functions raise SchemaUsageError if a message is named."""

    def decoder(name: str | None = None, path: Sequence[int] = ()) -> Decoder:
        check(name)
        return decode

    def encoder(name: str | None) -> Encoder:
        check(name)
        return encode

    def check(name: str | None) -> None:
        if name is not None:
            raise SchemaUsageError("is for Protobuf", "message")

    return Format(kind, decoder, encoder, definition=definition)


def avro(text: str, where: str) -> Format:
    """Returns an Avro schema. Raises SchemaUsageError if the text is not valid."""
    fastavro = library("fastavro")
    named: dict[str, Any] = {}
    try:
        schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (*AVRO_ERRORS, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise SchemaUsageError(f"{where} is not an Avro schema: {first_line(error)}") from None

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except AVRO_ERRORS as error:
            raise Misfit(first_line(error)) from None
        rest = stream.read()
        if rest:
            raise Misfit(f"{len(rest)} bytes are left over")
        return value

    def encode(data: bytes) -> bytes:
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, schema, avro_value(schema, named, _parsed(data)))
        except AVRO_ERRORS as error:
            raise Misfit(first_line(error)) from None
        return stream.getvalue()

    return _only("AVRO", decode, encode, (schema, named))


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data, parse_float=WrittenFloat)
    except (ValueError, RecursionError) as error:
        raise Misfit(f"it is not JSON: {first_line(error)}") from None


def json_schema(text: str, where: str) -> Format:
    """Returns a JSON Schema, whose values are checked. Raises SchemaUsageError if the text is not valid."""
    jsonschema = library("jsonschema")
    try:
        schema = json.loads(text)
        kind = jsonschema.validators.validator_for(schema)
        kind.check_schema(schema)
    except (ValueError, RecursionError, jsonschema.exceptions.SchemaError) as error:
        raise SchemaUsageError(f"{where} is not a JSON Schema: {first_line(error)}") from None
    validator = kind(schema)

    def decode(data: bytes) -> Any:
        value = _parsed(data)
        wrong = next(iter(validator.iter_errors(value)), None)
        if wrong is not None:
            raise Misfit(f"{wrong.json_path}: {first_line(wrong.message)}")
        return value

    def encode(data: bytes) -> bytes:
        decode(data)
        return data

    return _only("JSON", decode, encode, schema)


def protobuf_source(text: str, where: str) -> Format:
    """Returns the schema in the text of a `.proto`. Raises as `compile_protobuf` does."""
    return protobuf_descriptors(compile_protobuf(text, where), where)


def compile_protobuf(text: str, where: str) -> bytes:
    """Compiles a `.proto` to a set of descriptors. Its imports must be Google's, or files in its directory. Raises SchemaUsageError if
    it does not compile, and `SchemaCompilerError` if the compiler takes more than `COMPILE_SECONDS_MAX`."""
    library("grpc_tools")
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
            raise SchemaCompilerError(f"{where} did not compile within {COMPILE_SECONDS_MAX:g} s") from None
        if done.returncode:
            raise SchemaUsageError(f"{where} is not a Protobuf schema: {_compiler_error(done.stderr)}")
        return out.read_bytes()


def _compiler_error(text: str) -> str:
    """Returns the compiler's first line about a file (`NAME:LINE:COLUMN: ...`), else the last line that it has printed."""
    lines = text.strip().splitlines() or ["no reason is given"]
    return next((line for line in lines if re.match(r"\S+:\d+:\d+: ", line)), lines[-1])


def protobuf_descriptors(data: bytes, where: str) -> Format:
    """Returns the schema in a set of descriptors. The last file is the compiled one; the files before it are its imports."""
    descriptor_pb2 = library("google.protobuf.descriptor_pb2")
    pools, factory = library("google.protobuf.descriptor_pool"), library("google.protobuf.message_factory")
    protobuf_error = library("google.protobuf.message").DecodeError
    forms = library("google.protobuf.json_format")
    pool = pools.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(data).file
        if not files:
            raise TypeError("it names no file")
        for file in files:
            pool.Add(file)
        own = pool.FindFileByName(files[-1].name)
    except (protobuf_error, TypeError, IndexError, KeyError) as error:
        raise SchemaUsageError(f"{where} is not a set of Protobuf descriptors: {first_line(error)}") from None

    def find(name: str | None = None, path: Sequence[int] = ()) -> Any:
        return _message(pool, own, where, name, path)

    def decoder(name: str | None = None, path: Sequence[int] = ()) -> Decoder:
        message = factory.GetMessageClass(find(name, path))

        def decode(data: bytes) -> Any:
            try:
                return forms.MessageToDict(message.FromString(data), preserving_proto_field_name=True)
            except (protobuf_error, forms.Error) as error:
                raise Misfit(first_line(error)) from None

        return decode

    def encoder(name: str | None) -> Encoder:
        message = factory.GetMessageClass(find(name))

        def encode(data: bytes) -> bytes:
            try:
                return bytes(forms.Parse(data, message(), descriptor_pool=pool).SerializeToString(deterministic=True))
            except (protobuf_error, forms.Error, UnicodeDecodeError, RecursionError) as error:
                raise Misfit(first_line(error)) from None

        return encode

    return Format("PROTOBUF", decoder, encoder, lambda name: _path_of(find(name)), find)


def _path_of(message: Any) -> tuple[int, ...]:
    """Returns a message's path: the index of the outermost message in the file, then the index of each nested message in its parent."""
    parent = message.containing_type
    if parent is None:
        return (list(message.file.message_types_by_name).index(message.name),)
    return (*_path_of(parent), [one.name for one in parent.nested_types].index(message.name))


def _message(pool: Any, file: Any, where: str, name: str | None, path: Sequence[int]) -> Any:
    """Returns the descriptor of the message with this name (with package or without), else with this path, else of the first message.
    Raises SchemaUsageError for an unknown name, `Misfit` for an unknown path."""
    messages = list(file.message_types_by_name.values())
    if name is not None:
        for candidate in (name, f"{file.package}.{name}"):
            try:
                return pool.FindMessageTypeByName(candidate)
            except KeyError:
                continue
        raise SchemaUsageError(f"{where} has no message {name!r}; there are {', '.join(one.name for one in messages)}")
    try:
        found = messages[path[0] if path else 0]
        for place in path[1:]:
            found = found.nested_types[place]
    except IndexError:
        raise Misfit(f"{where} has no message at {list(path)}") from None
    return found
