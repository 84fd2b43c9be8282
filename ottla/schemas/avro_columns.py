"""Converts Avro values to Arrow columns and back, by a schema. It does one step for each field of the schema, whatever the number of
values.

Spark's `from_avro` makes the same types: an enum is text, a fixed is binary, timestamps have microseconds, a union of null and another type
is this type, and a union of several types is a struct with a field for each (`member0`, `member1`, ...). A record that contains itself has
no type in Arrow. `formats.avro` converts single values of the same format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.arrow.blobs import Blobs
from ottla.arrow.columns import as_binary, blob_lengths
from ottla.schemas.avro_blocks import long_at, read_blocks, skip_long
from ottla.schemas.errors import Misfit, SchemaUsageError
from ottla.schemas.pieces import EMPTY, join, numbers_of, of_fixed, of_lists, of_longs
from ottla.schemas.positions import Places, Values

_INT_MAX = (1 << 31) - 1
_DECIMAL_BYTES = 16
_DECIMAL_DIGITS_MAX = 38


class Node(ABC):
    """A type of the Avro schema: its Arrow type `kind`, and methods that read and write its values."""

    kind: Any
    is_nullable = False
    width = 0

    @abstractmethod
    def read(self, values: Values, places: Places) -> Any:
        """Returns an array with the value at each place (`positions.py`), and moves the places behind the values."""

    @abstractmethod
    def skip(self, data: memoryview, at: int) -> int:
        """Returns the end of the value at a position. Raises IndexError beyond the end of the data."""

    @abstractmethod
    def write(self, array: Any) -> list[Any]:
        """Returns binary arrays: the parts of each encoded value, which the caller joins. The argument has the type `kind`, and nulls only
        if the type is a union with null. Raises `Misfit`.
        """


def avro_node(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...] = ()) -> Node:
    """Returns the node of a schema that fastavro has parsed. Raises `SchemaUsageError` if Arrow has no type for it."""
    if isinstance(schema, list):
        return _union(schema, named, inside)
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if isinstance(kind, list | Mapping):
        return avro_node(kind, named, inside)
    logical = schema.get("logicalType", "") if isinstance(schema, Mapping) else ""
    if kind in ("record", "error"):
        if schema["name"] in inside:
            raise SchemaUsageError(f"record {schema['name']!r} contains itself; Arrow has no type for it")
        fields = schema["fields"]
        return RecordNode(fields, [avro_node(field["type"], named, (*inside, schema["name"])) for field in fields])
    if kind == "array":
        item = avro_node(schema["items"], named, inside)
        if isinstance(item, NullNode) or (isinstance(item, RecordNode) and not item.nodes):
            raise SchemaUsageError("the items of an array have no bytes, so that nothing bounds their number")
        return ArrayNode(item)
    if kind == "map":
        return MapNode(avro_node(schema["values"], named, inside))
    if kind == "enum":
        return EnumNode(schema["symbols"])
    if kind in ("bytes", "fixed"):
        size = schema["size"] if kind == "fixed" else None
        if logical == "decimal" and schema["precision"] <= _DECIMAL_DIGITS_MAX:
            return DecimalNode(schema["precision"], schema.get("scale", 0), size)
        return BytesNode(pa.binary(), size)
    if kind == "string":
        return BytesNode(pa.string(), None)
    if kind in ("int", "long"):
        return LongNode(kind, logical)
    if kind in ("float", "double"):
        return FloatNode(kind)
    if kind == "boolean":
        return BooleanNode()
    if kind == "null":
        return NullNode()
    return avro_node(named[kind], named, inside)


def _union(branches: Sequence[Any], named: Mapping[str, Any], inside: tuple[str, ...]) -> Node:
    nodes = [avro_node(branch, named, inside) for branch in branches]
    others = [node for node in nodes if not isinstance(node, NullNode)]
    return NullNode() if not others else UnionNode(nodes, others)


class NullNode(Node):
    kind = pa.null()
    is_nullable = True

    def read(self, values: Values, places: Places) -> Any:
        return pa.nulls(len(places))

    def skip(self, data: memoryview, at: int) -> int:
        return at

    def write(self, array: Any) -> list[Any]:
        if array.null_count < len(array):
            raise Misfit("only null is allowed")
        return []


class BooleanNode(Node):
    kind = pa.bool_()

    def read(self, values: Values, places: Places) -> Any:
        return pa.array(values.fixed(places, "u1") != 0)

    def skip(self, data: memoryview, at: int) -> int:
        return at + 1

    def write(self, array: Any) -> list[Any]:
        return [of_fixed(numbers_of(array).astype(np.uint8))]


class FloatNode(Node):
    def __init__(self, kind: str) -> None:
        self.kind, self._dtype, self.width = (pa.float32(), "<f4", 4) if kind == "float" else (pa.float64(), "<f8", 8)

    def read(self, values: Values, places: Places) -> Any:
        return pa.array(values.fixed(places, self._dtype))

    def skip(self, data: memoryview, at: int) -> int:
        return at + self.width

    def write(self, array: Any) -> list[Any]:
        return [of_fixed(numbers_of(array).astype(self._dtype))]


_LONGS = {
    ("int", "date"): (pa.date32(), 1),
    ("int", "time-millis"): (pa.time32("ms"), 1),
    ("long", "time-micros"): (pa.time64("us"), 1),
    ("long", "timestamp-millis"): (pa.timestamp("us", "UTC"), 1000),
    ("long", "timestamp-micros"): (pa.timestamp("us", "UTC"), 1),
    ("long", "timestamp-nanos"): (pa.timestamp("ns", "UTC"), 1),
    ("long", "local-timestamp-millis"): (pa.timestamp("us"), 1000),
    ("long", "local-timestamp-micros"): (pa.timestamp("us"), 1),
    ("long", "local-timestamp-nanos"): (pa.timestamp("ns"), 1),
}
"""The Arrow types of logical types, and the number of its units in one of Avro's."""


class LongNode(Node):
    def __init__(self, kind: str, logical: str) -> None:
        self._dtype = np.int32 if kind == "int" else np.int64
        self.kind, self._units = _LONGS.get((kind, logical), (pa.from_numpy_dtype(self._dtype), 1))

    def read(self, values: Values, places: Places) -> Any:
        found = values.longs(places)
        most = _INT_MAX if self._dtype is np.int32 else np.iinfo(np.int64).max // self._units
        if self._units > 1 or self._dtype is np.int32:
            values.mark(places, (found > most) | (found < -most - 1))
        if self._units > 1:
            found = found * self._units
        array = pa.array(found.astype(self._dtype, copy=False))
        return array if array.type == self.kind else array.view(self.kind)

    def skip(self, data: memoryview, at: int) -> int:
        return skip_long(data, at)

    def write(self, array: Any) -> list[Any]:
        storage = pa.from_numpy_dtype(self._dtype)
        found = numbers_of(array if array.type == storage else array.view(storage)).astype(np.int64)
        return [of_longs(found // self._units)]


class BytesNode(Node):
    """Strings, bytes and fixed; `size` is the length of a fixed."""

    def __init__(self, kind: Any, size: int | None) -> None:
        self.kind = kind
        self._size = size

    def read(self, values: Values, places: Places) -> Any:
        return _text(values, places, self._read(values, places)) if self.kind == pa.string() else values.binary(self._read(values, places))

    def _read(self, values: Values, places: Places) -> Blobs:
        return values.blobs(places, values.longs(places) if self._size is None else np.full(len(places), self._size))

    def skip(self, data: memoryview, at: int) -> int:
        size, at = long_at(data, at) if self._size is None else (self._size, at)
        return at + max(0, size)

    def write(self, array: Any) -> list[Any]:
        array = as_binary(array, "value")
        lengths = blob_lengths(array)
        if self._size is None:
            return [of_longs(lengths), array]
        if (lengths != self._size).any():
            raise Misfit(f"a fixed has {int(lengths[lengths != self._size][0])} bytes instead of {self._size}")
        return [array]


def _text(values: Values, places: Places, blobs: Blobs) -> Any:
    found = values.binary(blobs)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        is_bad = np.array([_is_broken(one) for one in found.to_pylist()])
        values.is_bad[places.rows[is_bad]] = True
        return pc.if_else(pa.array(is_bad), EMPTY, found).cast(pa.string())


def _is_broken(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


class DecimalNode(BytesNode):
    """Decimals: a number in two's complement, the most significant byte first. `size` is the length of a fixed, otherwise any length."""

    def __init__(self, precision: int, scale: int, size: int | None) -> None:
        super().__init__(pa.decimal128(precision, scale), size)
        self._most = 10**precision - 1

    def read(self, values: Values, places: Places) -> Any:
        blobs = self._read(values, places)
        sizes = blobs.stops - blobs.starts
        sign = np.where(sizes > 0, np.where(values.data[blobs.starts] >= 128, 255, 0), 0).astype(np.uint8)
        found = np.empty((len(places), _DECIMAL_BYTES), np.uint8)
        for place in range(_DECIMAL_BYTES):
            found[:, place] = np.where(sizes > place, values.data[np.maximum(blobs.stops - 1 - place, 0)], sign)
        is_bad = sizes > _DECIMAL_BYTES
        array = _decimals(self.kind, found)
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            is_bad |= np.array([abs(int.from_bytes(row.tobytes(), "little", signed=True)) > self._most for row in found])
        if is_bad.any():
            values.is_bad[places.rows[is_bad]] = True
            found[is_bad] = 0
            array = _decimals(self.kind, found)
        return array

    def write(self, array: Any) -> list[Any]:
        _, data = array.buffers()
        start = _DECIMAL_BYTES * array.offset
        found = np.frombuffer(data, np.uint8, _DECIMAL_BYTES * len(array), start).reshape(-1, _DECIMAL_BYTES)[:, ::-1]
        size = _DECIMAL_BYTES if self._size is None else self._size
        sign = np.where(found[:, :1] >= 128, 255, 0).astype(np.uint8)
        dropped = max(0, _DECIMAL_BYTES - size)
        is_large = (found[:, :dropped] != sign).any(axis=1) | ((found[:, dropped : dropped + 1] >= 128) != (sign == 255))[:, 0]
        if is_large.any():
            raise Misfit(f"a decimal does not fit into {size} bytes")
        whole = np.concatenate([np.repeat(sign, max(0, size - _DECIMAL_BYTES), axis=1), found[:, dropped:]], axis=1)
        fixed = of_fixed(np.ascontiguousarray(whole))
        return [fixed] if self._size is not None else [of_longs(np.full(len(array), size)), fixed]


def _decimals(kind: Any, found: Any) -> Any:
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(found)])


class EnumNode(Node):
    kind = pa.string()

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, values: Values, places: Places) -> Any:
        found = values.longs(places)
        is_bad = (found < 0) | (found >= len(self._symbols))
        values.mark(places, is_bad)
        found[is_bad] = 0
        return self._symbols.take(pa.array(found))

    def skip(self, data: memoryview, at: int) -> int:
        return skip_long(data, at)

    def write(self, array: Any) -> list[Any]:
        found = pc.index_in(array, self._symbols)
        if found.null_count:
            symbol = array.filter(found.is_null())[0].as_py()
            raise Misfit(f"{symbol!r} is none of {', '.join(self._symbols.to_pylist())}")
        return [of_longs(numbers_of(found))]


class RecordNode(Node):
    def __init__(self, fields: Sequence[Mapping[str, Any]], nodes: Sequence[Node]) -> None:
        self.fields = fields
        self.nodes = nodes
        self.kind = pa.struct([pa.field(field["name"], node.kind) for field, node in zip(fields, nodes, strict=True)])

    def read(self, values: Values, places: Places) -> Any:
        if not self.nodes:
            return pa.array([{}] * len(places), self.kind)
        return pa.StructArray.from_arrays([node.read(values, places) for node in self.nodes], fields=list(self.kind))

    def skip(self, data: memoryview, at: int) -> int:
        for node in self.nodes:
            at = node.skip(data, at)
        return at

    def write(self, array: Any) -> list[Any]:
        pieces = []
        for field, node, column in zip(self.fields, self.nodes, array.flatten(), strict=True):
            try:
                pieces += _checked(node, column)
            except Misfit as error:
                raise Misfit(f"{field['name']}: {error}") from None
        return pieces


def _checked(node: Node, array: Any) -> list[Any]:
    if array.null_count and not node.is_nullable:
        raise Misfit("null is not allowed")
    return node.write(array)


class UnionNode(Node):
    """A union of at least one type besides null, or without null."""

    def __init__(self, nodes: Sequence[Node], others: Sequence[Node]) -> None:
        self._nodes = nodes
        self.others = others
        self._chosen = [nodes.index(node) for node in others]
        self.is_nullable = len(others) < len(nodes)
        members = [pa.field(f"member{number}", node.kind) for number, node in enumerate(others)]
        self.kind = others[0].kind if len(others) == 1 else pa.struct(members)

    def read(self, values: Values, places: Places) -> Any:
        branches = values.longs(places)
        is_bad = (branches < 0) | (branches >= len(self._nodes))
        if is_bad.any():
            values.mark(places, is_bad)
            branches[is_bad] = 0
        members = [self._read_branch(values, places, branches == branch, self._nodes[branch]) for branch in self._chosen]
        if len(members) == 1:
            return members[0]
        has_none = np.isin(branches, self._chosen, invert=True)
        return pa.StructArray.from_arrays(members, fields=list(self.kind), mask=pa.array(has_none))

    def _read_branch(self, values: Values, places: Places, is_chosen: Any, node: Node) -> Any:
        if is_chosen.all():
            return node.read(values, places)
        chosen = np.flatnonzero(is_chosen)
        if not len(chosen):
            return pa.nulls(len(places), node.kind)
        some = places.select(chosen)
        found = node.read(values, some)
        places.store(chosen, some)
        return _spread(found, is_chosen)

    def skip(self, data: memoryview, at: int) -> int:
        branch, at = long_at(data, at)
        return self._nodes[branch].skip(data, at)

    def write(self, array: Any) -> list[Any]:
        is_valid = numbers_of(array.is_valid())
        if len(self._chosen) == 1:
            if not is_valid.all() and not self.is_nullable:
                raise Misfit("null is not allowed")
            chosen = [is_valid]
            members = [array]
        else:
            members = array.flatten()
            chosen = [numbers_of(member.is_valid()) for member in members]
            if (sum(one.astype(np.int64) for one in chosen) != is_valid).any() or not (is_valid.all() or self.is_nullable):
                raise Misfit("exactly one member of the union may have a value")
        branches = np.zeros(len(array), np.int64)
        if self.is_nullable:
            branches[:] = next(number for number, node in enumerate(self._nodes) if isinstance(node, NullNode))
        pieces = []
        for branch, member, is_one in zip(self._chosen, members, chosen, strict=True):
            branches[is_one] = branch
            if is_one.all():
                pieces += self._nodes[branch].write(member)
            elif is_one.any():
                pieces.append(_spread(join(self._nodes[branch].write(member.filter(pa.array(is_one)))), is_one))
        return [of_longs(branches), *pieces]


def _spread(array: Any, is_chosen: Any) -> Any:
    """Returns an array with the elements in the chosen places, and null in the others."""
    return array.take(pa.array(np.cumsum(is_chosen) - 1, mask=~is_chosen))


class ArrayNode(Node):
    def __init__(self, item: Node) -> None:
        self.item = item
        self.kind = pa.list_(item.kind)

    def read(self, values: Values, places: Places) -> Any:
        owners, items = read_blocks(values, places, self.item)
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(np.bincount(owners, minlength=len(places)))
        return self._made(np.append(0, ends).astype(np.int32), items.take(pa.array(order)) if (np.diff(owners) < 0).any() else items)

    def _made(self, offsets: Any, items: Any) -> Any:
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=self.kind)

    def skip(self, data: memoryview, at: int) -> int:
        while True:
            count, at = long_at(data, at)
            if count == 0:
                return at
            at = skip_long(data, at) if count < 0 else at
            for _ in range(abs(count)):
                at = self.item.skip(data, at)

    def write(self, array: Any) -> list[Any]:
        return of_lists(array, _checked(self.item, array.flatten()))


class MapNode(ArrayNode):
    def __init__(self, value: Node) -> None:
        super().__init__(_Entry(value))
        self.value = value
        self.kind = pa.map_(pa.string(), value.kind)

    def _made(self, offsets: Any, items: Any) -> Any:
        keys, values = items.flatten()
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values).cast(self.kind)

    def write(self, array: Any) -> list[Any]:
        entries = pa.StructArray.from_arrays([*array.cast(pa.list_(self.item.kind)).flatten().flatten()], fields=list(self.item.kind))
        return of_lists(array.cast(pa.list_(self.item.kind)), self.item.write(entries))


class _Entry(RecordNode):
    def __init__(self, value: Node) -> None:
        super().__init__([{"name": "key"}, {"name": "value"}], [BytesNode(pa.string(), None), value])
