"""Converts the values of records to typed columns and back, for frames and Spark. `resolve_values` finds the schema that the options name:
it reads files and asks the registry, and its result can be sent to other processes. A value that does not fit becomes null and is marked;
the caller decides what to do with it (`errors`). With a registry each value begins with the id of its schema. An Avro value with another id
is read by the schema of that id, and converted to the schema of the column. Protobuf and JSON are always read by the schema of the column.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.arrow.blobs import Blobs
from ottla.schemas import json_columns
from ottla.schemas.avro_columns import Node, avro_node
from ottla.schemas.avro_resolution import resolve
from ottla.schemas.errors import Misfit, RegistryError, SchemaError, SchemaUsageError
from ottla.schemas.formats import Format, Schema, schema_of
from ottla.schemas.pieces import join
from ottla.schemas.positions import Values
from ottla.schemas.protobuf_columns import MessageNode
from ottla.schemas.registry import HEADER, Registry, header, is_framed, message_path
from ottla.schemas.value_options import ValueOptions

_UNKNOWN_MAX = 1000
"""Ids of schemas that the registry does not have are remembered up to this number: broken values may name any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSchema:
    """A format and a schema to use. `schema` is None for JSON whose type is `kind`. `number` is the schema id for the header of written
    values.
    """

    options: ValueOptions
    schema: Schema | None = None
    kind: Any = None
    is_strict: bool = False
    number: int | None = None


def resolve_values(options: ValueOptions, topics: Sequence[str]) -> ValueSchema:
    """Returns the schema for reading: the given one, else the newest of the subject TOPIC-value. Raises `SchemaError`."""
    if options.schema or not options.registry:
        return ValueSchema(options=options, schema=_given(options))
    return _latest(options, topics)


def resolve_written(options: ValueOptions, topics: Sequence[str], kind: Any) -> ValueSchema:
    """Returns the schema for writing values of this Arrow type: the given one, else the newest of the subject TOPIC-value. With a registry,
    the given one is stored as a version of the subject. Raises `SchemaError`, and `Misfit` if the type does not fit the schema.
    """
    found = ValueSchema(options=options, schema=_given(options)) if options.schema or not options.registry else _latest(options, topics)
    ValueEncoder(found).check(kind)
    if found.schema is None or not options.schema or not options.registry:
        return found
    if not found.schema.text:
        raise SchemaUsageError(f"{found.schema.where}: a registry takes the text of a schema, .proto")
    number = _registry(options.registry).register(_subject(topics), found.schema.text, found.schema.kind)
    return replace(found, number=number)


def _given(options: ValueOptions) -> Schema | None:
    return schema_of(options.schema, options.format.upper()) if options.schema else None


def _subject(topics: Sequence[str]) -> str:
    if len(topics) != 1:
        raise SchemaUsageError("a subject is for one topic; name one topic, or give the schema and leave the registry out", "registry")
    return f"{topics[0]}-value"


def _latest(options: ValueOptions, topics: Sequence[str]) -> ValueSchema:
    subject = _subject(topics)
    number, found = _registry(options.registry).latest(subject)
    _check_kind(found, options.format, f"subject {subject!r}")
    return ValueSchema(options=options, schema=found, number=number)


def _check_kind(schema: Schema, wanted: str, where: str) -> None:
    if schema.kind != wanted.upper():
        raise SchemaUsageError(f"{where} has a schema of type {schema.kind}, not {wanted.upper()}", "registry")


class _Codec:
    """Converts columns by one schema. `kind` is the Arrow type; `node` is for Avro and Protobuf."""

    def __init__(self, values: ValueSchema) -> None:
        schema = values.schema
        self.found: Format | None = None if schema is None or schema.kind == "JSON" else schema.format()
        self._is_strict = values.is_strict
        self.node: Any = None
        if self.found is None:
            self.kind = values.kind if schema is None else json_columns.json_schema_kind(_parsed(schema))
        elif self.found.kind == "AVRO":
            self.node = avro_node(*self.found.definition)
            self.kind = self.node.kind
        else:
            self.node = MessageNode(self.found.definition(values.options.message or None))
            self.kind = self.node.kind
        if self.node is None:
            json_columns.check_kind(self.kind)

    def decode(self, values: Any) -> tuple[Any, Any]:
        if isinstance(self.node, MessageNode):
            return self.node.decode(values)
        return decode_avro(values, self.node) if self.node else json_columns.decode_json(values, self.kind, is_strict=self._is_strict)

    def encode(self, array: Any) -> Any:
        if isinstance(self.node, MessageNode):
            return self.node.encode(array)
        return join(self.node.write(array)) if self.node else json_columns.encode_json(array).cast(pa.binary())

    def misfit(self, value: bytes) -> str:
        """Returns the reason why a value does not fit."""
        if self.node is None:
            return json_columns.json_misfit(pa.array([value], pa.binary()), self.kind, is_strict=self._is_strict)
        assert self.found is not None
        try:
            self.found.decoder(self.node.name if isinstance(self.node, MessageNode) else None)(value)
        except Misfit as error:
            return str(error)
        return "a number is out of range"


def _parsed(schema: Schema) -> Any:
    try:
        return json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise SchemaUsageError(f"{schema.where} is not a JSON Schema: {error}") from None


def decode_avro(values: Any, node: Node) -> tuple[Any, Any]:
    """Returns Avro values (a binary array without nulls) as an array, and which of them do not fit."""
    found = Values(values)
    array = node.read(found, found.places)
    found.finish()
    return array, found.is_bad


@lru_cache(16)
def _codec(values: ValueSchema) -> _Codec:
    return _Codec(values)


@lru_cache(16)
def _registry(url: str) -> Registry:
    return Registry(url)


class ValueDecoder:
    """Decodes columns of values. Raises `SchemaError` if the schema has no type in Arrow."""

    def __init__(self, values: ValueSchema) -> None:
        self._codec = _codec(values)
        self._registry = _registry(values.options.registry) if values.options.registry else None
        self._schema = values.schema
        self._format = values.options.format
        self._unknown: dict[int, str] = {}
        self.kind = self._codec.kind

    def decode(self, column: Any) -> tuple[Any, Any]:
        """Returns a binary array as an array of the type `kind`, and which elements do not fit; these are null in the array. Null stays
        null. Raises `RegistryError` if the registry is needed and does not answer.
        """
        is_valid = column.is_valid().to_numpy(zero_copy_only=False)
        values = column.filter(pa.array(is_valid)) if column.null_count else column
        array, is_wrong = (self._codec.decode if self._registry is None else self._decode_framed)(values)
        if not is_wrong.any() and not column.null_count:
            return array, is_wrong
        is_bad = np.zeros(len(column), np.bool_)
        is_bad[is_valid] = is_wrong
        places = np.cumsum(is_valid) - 1
        return array.take(pa.array(places, mask=~is_valid | is_bad)), is_bad

    def misfit(self, value: bytes) -> str:
        """Returns the reason why a value that `decode` has marked does not fit."""
        if self._registry is None:
            return self._codec.misfit(value)
        if not is_framed(value):
            return "it has no header with the id of a schema"
        try:
            codec, start = self._codec_of(value)
            return codec.misfit(value[start:]) if codec is self._codec else _resolved(codec, self._codec, value[start:])
        except Misfit as error:
            return str(error)

    def _decode_framed(self, values: Any) -> tuple[Any, Any]:
        count = len(values)
        heads = _headers(values)
        parts, places, is_bad = [], [], np.zeros(count, np.bool_)
        for head in np.unique(heads).tolist():
            chosen = np.flatnonzero(heads == head)
            whole = len(chosen) == count
            some = values if whole else values.take(pa.array(chosen))
            array, is_wrong = self._decode_part(some, head)
            is_bad[chosen] = is_wrong
            parts.append(array)
            places.append(chosen)
        if len(parts) == 1:
            return parts[0], is_bad
        back = np.empty(count, np.int64)
        back[np.concatenate(places) if places else []] = np.arange(count)
        return (pa.concat_arrays(parts) if parts else pa.array([], self.kind)).take(pa.array(back)), is_bad

    def _decode_part(self, values: Any, head: int) -> tuple[Any, Any]:
        """Decodes values with the same header: the id of a schema, or -1 without one."""
        count = len(values)
        nothing = pa.nulls(count, self.kind), np.ones(count, np.bool_)
        if head < 0:
            return nothing
        if self._format == "protobuf":
            return self._decode_messages(values, head)
        try:
            codec = self._codec if self._format == "json" else self._writer(head)
            found = Values(values)
            array, is_bad = codec.decode(found.binary(Blobs(found.places.at + HEADER.size, found.places.ends, None)))
            return (array if codec is self._codec else resolve(array, codec.node, self._codec.node)), is_bad
        except Misfit:
            return nothing

    def _decode_messages(self, values: Any, number: int) -> tuple[Any, Any]:
        """Decodes Protobuf. The path of the message follows the schema id; for the first message of a schema it is a zero byte."""
        bodies, is_bad = [], np.zeros(len(values), np.bool_)
        for place, value in enumerate(values.to_pylist()):
            try:
                _, start = self._codec_of(value)
                bodies.append(value[start:])
            except Misfit:
                bodies.append(b"")
                is_bad[place] = True
        array, is_wrong = self._codec.decode(pa.array(bodies, pa.binary()))
        return array, is_bad | is_wrong

    def _codec_of(self, value: bytes) -> tuple[_Codec, int]:
        """Returns the codec for a value with a header, and where its data begins. Raises `Misfit`."""
        number = HEADER.unpack_from(value)[1]
        if self._format == "json":
            return self._codec, HEADER.size
        if self._format == "avro":
            return self._writer(number), HEADER.size
        path, start = message_path(value)
        name = self._message_name(number, path)
        if name != self._codec.node.name:
            raise Misfit(f"it is a message {name}, not {self._codec.node.name}")
        return self._codec, start

    def _message_name(self, number: int, path: tuple[int, ...]) -> str:
        found = self._written(number)
        ours = self._schema if self._schema is not None and found.text == self._schema.text else found
        return str(ours.format().definition(None, path).full_name)

    def _writer(self, number: int) -> _Codec:
        """Returns the codec of the schema with this id. If it is the schema of the column, returns the column's codec. Raises `Misfit` if
        the registry has no schema with this id.
        """
        found = self._written(number)
        if self._schema is not None and found.text == self._schema.text:
            return self._codec
        try:
            return _codec(ValueSchema(options=ValueOptions(format=self._format), schema=found))
        except SchemaUsageError as error:
            raise Misfit(error.text) from None

    def _written(self, number: int) -> Schema:
        assert self._registry is not None
        if number in self._unknown:
            raise Misfit(self._unknown[number])
        try:
            found = self._registry.schema_text(number)
            _check_kind(found, self._format, f"id {number}")
            return found
        except SchemaError as error:
            if isinstance(error, RegistryError) and error.status != _NOT_FOUND:
                raise
            if len(self._unknown) < _UNKNOWN_MAX:
                self._unknown[number] = error.text
            raise Misfit(error.text) from None


_NOT_FOUND = 404


def _resolved(writer: _Codec, reader: _Codec, value: bytes) -> str:
    try:
        resolve(pa.array([], writer.kind), writer.node, reader.node)
    except Misfit as error:
        return str(error)
    return writer.misfit(value)


def _headers(values: Any) -> Any:
    """Returns the schema id in the header of each value; -1 for a value without a header."""
    found = Values(values)
    at, sizes = found.places.at, found.places.ends - found.places.at
    numbers = sum(found.data[at + place].astype(np.int64) << 8 * (4 - place) for place in range(1, 5))
    return np.where((sizes >= HEADER.size) & (found.data[at] == 0), numbers, -1)


class ValueEncoder:
    """Encodes columns of values. Raises `SchemaError` if the schema has no type in Arrow."""

    def __init__(self, values: ValueSchema) -> None:
        self._codec: _Codec | None = None if values.schema is None else _codec(values)
        path = self._codec.found.path_of(values.options.message or None) if self._codec and self._codec.found else ()
        self._header = None if values.number is None else pa.scalar(header(values.number, path), pa.binary())

    def check(self, kind: Any) -> None:
        """Raises `Misfit` if no value of this Arrow type fits the schema."""
        self.encode(pa.array([], kind))

    def encode(self, column: Any) -> Any:
        """Returns each element as bytes. Null stays null. Raises `Misfit` with the place of the first element that does not fit."""
        is_valid = column.is_valid()
        values = column.filter(is_valid) if column.null_count else column
        if self._codec is None:
            found = json_columns.encode_json(values).cast(pa.binary())
        else:
            found = self._codec.encode(fitted(values, self._codec.kind))
        if self._header is not None:
            found = join([pa.repeat(self._header, len(found)), found])
        if not column.null_count:
            return found
        places = np.cumsum(is_valid.to_numpy(zero_copy_only=False)) - 1
        return found.take(pa.array(places, mask=column.is_null().to_numpy(zero_copy_only=False)))


def fitted(array: Any, kind: Any, place: str = "value") -> Any:
    """Converts an array to another Arrow type, and returns it. Fields are matched by name, missing ones become null, and numbers and texts
    are converted if nothing is lost. Raises `Misfit`.
    """
    types, own = pa.types, array.type
    if own == kind:
        return array
    if types.is_dictionary(own):
        return fitted(array.dictionary_decode(), kind, place)
    if types.is_struct(kind) and types.is_struct(own):
        names = [field.name for field in kind]
        unknown = [field.name for field in own if field.name not in names]
        if unknown:
            raise Misfit(f"{place}.{unknown[0]} is not in the schema, which has {', '.join(names)}")
        columns = dict(zip((field.name for field in own), array.flatten(), strict=True))
        parts = [
            fitted(columns[field.name], field.type, f"{place}.{field.name}") if field.name in columns else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null()) if parts else array.cast(kind)
    if types.is_list(kind) and (types.is_list(own) or types.is_large_list(own) or types.is_fixed_size_list(own)):
        lists = array.cast(pa.list_(own.value_type))
        items = fitted(lists.flatten(), kind.value_type, f"{place}[]")
        return pa.ListArray.from_arrays(_offsets(lists), items, type=kind, mask=lists.is_null())
    if types.is_map(kind) and types.is_map(own):
        pairs = array.cast(pa.list_(pa.struct([("key", own.key_type), ("value", own.item_type)])))
        keys, items = (fitted(one, wanted, f"{place}.*") for one, wanted in
                       zip(pairs.flatten().flatten(), (kind.key_type, kind.item_type), strict=True))  # fmt: skip
        made = pa.MapArray.from_arrays(_offsets(pairs), keys, items).cast(kind)
        return pc.if_else(array.is_valid(), made, pa.scalar(None, kind)) if array.null_count else made
    if not types.is_null(own) and _family(own) != _family(kind):
        raise Misfit(f"{place} is {own}, and the schema has {kind}")
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Misfit(f"{place} is {own}, and the schema has {kind}: {str(error).splitlines()[0]}") from None


def _family(kind: Any) -> str:
    """Returns the family of a type: values can be converted between types of the same family."""
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary, types.is_binary_view)
    if any(is_one(kind) for is_one in (*texts, types.is_fixed_size_binary)):
        return "text"
    return next((name for name in ("timestamp", "date", "time") if getattr(types, f"is_{name}")(kind)), str(kind))


def _offsets(lists: Any) -> Any:
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))


def with_kind(values: ValueSchema, kind: Any, *, is_strict: bool = False) -> ValueSchema:
    """Returns the options with an Arrow type instead of a schema, for JSON."""
    return replace(values, schema=None, kind=kind, is_strict=is_strict)
