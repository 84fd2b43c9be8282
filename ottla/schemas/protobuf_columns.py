"""Converts Protobuf messages to Arrow columns and back. The library protobuf parses and makes each message; each field becomes one array.

An enum is text, a uint32 an int64, a uint64 a decimal of 20 digits, `google.protobuf.Timestamp` a timestamp, and a wrapper such as
`google.protobuf.Int64Value` the type of its value. A field with presence is null if it is not set; other fields then have their default. A
message that contains itself has no type in Arrow. `formats.protobuf_descriptors` converts single values of the same format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.schemas.errors import Misfit, SchemaUsageError, first_line, library

_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"google.protobuf.{name}Value" for name in _WRAPPED}
_TIMESTAMP = "google.protobuf.Timestamp"
_UINT64 = pa.decimal128(20, 0)
_KINDS = {
    1: pa.float64(), 2: pa.float32(), 3: pa.int64(), 4: _UINT64, 5: pa.int32(), 6: _UINT64, 7: pa.int64(), 8: pa.bool_(), 9: pa.string(),
    12: pa.binary(), 13: pa.int64(), 14: pa.string(), 15: pa.int32(), 16: pa.int64(), 17: pa.int32(), 18: pa.int64(),
}  # fmt: skip
"""The Arrow types of the types of fields (`FieldDescriptorProto.Type`), without messages."""

Items = Sequence[Any]


class MessageNode:
    """A message type: its Arrow type `kind`, and methods that convert messages to an array of this type and back."""

    def __init__(self, descriptor: Any, inside: tuple[str, ...] = ()) -> None:
        if descriptor.full_name in inside:
            raise SchemaUsageError(f"message {descriptor.full_name!r} contains itself; Arrow has no type for it")
        self.name = descriptor.full_name
        self.message = library("google.protobuf.message_factory").GetMessageClass(descriptor)
        self.fields = [_Field(field, (*inside, descriptor.full_name)) for field in descriptor.fields]
        self.kind = pa.struct([pa.field(field.name, field.kind) for field in self.fields])
        self._errors = (library("google.protobuf.message").Error, ValueError, TypeError, KeyError, OverflowError)

    def decode(self, values: Any) -> tuple[Any, Any]:
        """Returns the values (a binary array without nulls) as an array, and which of them do not fit."""
        found, is_bad = [], np.zeros(len(values), np.bool_)
        parse, error = self.message.FromString, library("google.protobuf.message").DecodeError
        for number, value in enumerate(values.to_pylist()):
            try:
                found.append(parse(value))
            except error:
                found.append(self.message())
                is_bad[number] = True
        return self.read(found), is_bad

    def encode(self, array: Any) -> Any:
        """Returns the elements of an array without nulls as bytes. Raises `Misfit`."""
        try:
            return pa.array([message.SerializeToString(deterministic=True) for message in self.write(array)], pa.binary())
        except self._errors as error:
            raise Misfit(first_line(error)) from None

    def read(self, messages: Items) -> Any:
        if not self.fields:
            return pa.array([{}] * len(messages), self.kind)
        return pa.StructArray.from_arrays([field.read(messages) for field in self.fields], fields=list(self.kind))

    def write(self, array: Any) -> Items:
        make, plain = self.message, [field for field in self.fields if not field.is_map_of_messages]
        names = [field.name for field in plain]
        columns = dict(zip(array.type.names, array.flatten(), strict=True))
        rows = zip(*[field.write(columns[field.name]) for field in plain], strict=True) if plain else iter([()] * len(array))
        made = [make(**{name: value for name, value in zip(names, row, strict=True) if value is not None}) for row in rows]
        for field in self.fields:
            if field.is_map_of_messages:
                for message, entries in zip(made, field.write(columns[field.name]), strict=True):
                    for key, value in (entries or {}).items():
                        getattr(message, field.name)[key].CopyFrom(value)
        return made


class _Field:
    def __init__(self, field: Any, inside: tuple[str, ...]) -> None:
        self.name = field.name
        self._value_of = attrgetter(field.name)
        self._has_presence = field.has_presence
        self._is_repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
        entry = field.message_type if field.message_type is not None and field.message_type.GetOptions().map_entry else None
        self.is_map_of_messages = False
        self._key: _Item | None = None
        if entry is not None:
            self._key, self._item = (_Item(entry.fields_by_name[name], inside) for name in ("key", "value"))
            self.is_map_of_messages = entry.fields_by_name["value"].message_type is not None
            self.kind = pa.map_(self._key.kind, self._item.kind)
        else:
            self._item = _Item(field, inside)
            self.kind = pa.list_(self._item.kind) if self._is_repeated else self._item.kind

    def read(self, messages: Items) -> Any:
        found = list(map(self._value_of, messages))
        if self._key is not None:
            keys, items = (list(chain.from_iterable(parts)) for parts in ([one.keys() for one in found], [one.values() for one in found]))
            return pa.MapArray.from_arrays(_offsets(found), self._key.read(keys), self._item.read(items)).cast(self.kind)
        if self._is_repeated:
            return pa.ListArray.from_arrays(_offsets(found), self._item.read(list(chain.from_iterable(found))), type=self.kind)
        if not self._has_presence:
            return self._item.read(found)
        is_set = np.array([message.HasField(self.name) for message in messages], np.bool_)
        if is_set.all():
            return self._item.read(found)
        some = self._item.read([value for value, is_one in zip(found, is_set.tolist(), strict=True) if is_one])
        return some.take(pa.array(np.cumsum(is_set) - 1, mask=~is_set))

    def write(self, column: Any) -> Items:
        """Returns for each row the value for the message's constructor; None does not set the field."""
        if self._key is None and not self._is_repeated:
            return self._item.write(column)
        lists = column if self._key is None else column.cast(pa.list_(pa.struct([("key", self._key.kind), ("value", self._item.kind)])))
        counts = pc.list_value_length(lists).fill_null(0).to_pylist()
        if self._key is None:
            items = iter(self._item.write(lists.flatten()))
            return [[next(items) for _ in range(count)] for count in counts]
        keys, values = lists.flatten().flatten()
        entries = zip(self._key.write(keys), self._item.write(values), strict=True)
        return [dict([next(entries) for _ in range(count)]) for count in counts]


def _offsets(found: Items) -> Any:
    return pa.array(np.append(0, np.cumsum([len(one) for one in found], dtype=np.int64)).astype(np.int32))


class _Item:
    """One value of a field: a number, a text, or a message."""

    def __init__(self, field: Any, inside: tuple[str, ...]) -> None:
        self._message: Any = None
        self.read: Callable[[Items], Any]
        self.write: Callable[[Any], Items]
        message = field.message_type
        if message is None:
            self.kind = _KINDS[field.type]
            self.read, self.write = self._read_plain, lambda column: column.to_pylist()
            if field.enum_type is not None:
                self._names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
                self.read = lambda found: pa.array([self._names.get(number) or str(number) for number in found], pa.string())
            elif self.kind == _UINT64:
                self.write = lambda column: [None if value is None else int(value) for value in column.to_pylist()]
        elif message.full_name == _TIMESTAMP:
            self.kind, self.read, self.write = pa.timestamp("us", "UTC"), _read_times, self._write_times
        elif message.full_name in _WRAPPERS:
            inner = _Item(message.fields_by_name["value"], inside)
            self.kind, self.read = inner.kind, lambda found: inner.read([one.value for one in found])
            self.write = lambda column: [None if value is None else self._message(value=value) for value in inner.write(column)]
        else:
            node = MessageNode(message, inside)
            self.kind, self.read, self.write = node.kind, node.read, lambda column: _write_messages(node, column)
        if message is not None:
            self._message = library("google.protobuf.message_factory").GetMessageClass(message)

    def _read_plain(self, found: Items) -> Any:
        return pa.array(found, self.kind)

    def _write_times(self, column: Any) -> Items:
        times = [None if value is None else divmod(value, 1_000_000) for value in column.cast(pa.int64()).to_pylist()]
        return [None if time is None else self._message(seconds=time[0], nanos=1000 * time[1]) for time in times]


def _read_times(found: Items) -> Any:
    times = np.array([one.seconds for one in found], np.int64) * 1_000_000 + np.array([one.nanos for one in found], np.int64) // 1000
    return pa.array(times).view(pa.timestamp("us", "UTC"))


def _write_messages(node: MessageNode, column: Any) -> Items:
    is_valid = column.is_valid()
    made = iter(node.write(column.filter(is_valid) if column.null_count else column))
    return [next(made) if is_one else None for is_one in is_valid.to_pylist()]
