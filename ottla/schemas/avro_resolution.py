"""Converts columns of one Avro schema to columns of another by Avro's rules for schema resolution: fields by name or alias, defaults, wider
numbers.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ottla.schemas.avro_columns import ArrayNode, MapNode, Node, NullNode, RecordNode, UnionNode
from ottla.schemas.errors import Misfit

_WIDER = {
    pa.int32(): (pa.int64(), pa.float32(), pa.float64()),
    pa.int64(): (pa.float32(), pa.float64()),
    pa.float32(): (pa.float64(),),
    pa.string(): (pa.binary(),),
    pa.binary(): (pa.string(),),
}


def resolve(array: Any, writer: Node, reader: Node, place: str = "value") -> Any:
    """Converts an array that was read by the schema of `writer` to the type of `reader`, and returns it. Null stays null. Raises `Misfit`
    if the schemas do not fit each other.
    """
    writer, reader = _single(writer), _single(reader)
    if isinstance(writer, NullNode):
        return pa.nulls(len(array), reader.kind)
    if isinstance(writer, RecordNode) and isinstance(reader, RecordNode):
        return _record(array, writer, reader, place)
    if isinstance(writer, MapNode) and isinstance(reader, MapNode):
        offsets, (keys, values) = _offsets(array), array.cast(pa.list_(writer.item.kind)).flatten().flatten()
        values = resolve(values, writer.value, reader.value, f"{place}.*")
        return _masked(pa.MapArray.from_arrays(offsets, keys, values).cast(reader.kind), array)
    if isinstance(writer, ArrayNode) and isinstance(reader, ArrayNode) and not isinstance(writer, MapNode):
        items = resolve(array.flatten(), writer.item, reader.item, f"{place}[]")
        return _masked(pa.ListArray.from_arrays(_offsets(array), items, type=reader.kind), array)
    if writer.kind == reader.kind:
        return array
    if reader.kind in _WIDER.get(writer.kind, ()):
        try:
            return array.cast(reader.kind, safe=False)
        except pa.ArrowInvalid:
            raise Misfit(f"{place} is not UTF-8") from None
    raise Misfit(f"{place} is {writer.kind}, and the schema of the column has {reader.kind}")


def _single(node: Node) -> Node:
    return node.others[0] if isinstance(node, UnionNode) and len(node.others) == 1 else node


def _record(array: Any, writer: RecordNode, reader: RecordNode, place: str) -> Any:
    if not reader.nodes:
        return pa.array([None if one is None else {} for one in array.to_pylist()], reader.kind)
    found = {field["name"]: (node, column) for field, node, column in zip(writer.fields, writer.nodes, array.flatten(), strict=True)}
    columns = []
    for field, node in zip(reader.fields, reader.nodes, strict=True):
        name = next((one for one in (field["name"], *field.get("aliases", ())) if one in found), None)
        if name is not None:
            columns.append(resolve(found[name][1], found[name][0], node, f"{place}.{field['name']}"))
        elif "default" in field:
            columns.append(_default(field["default"], node, len(array), f"{place}.{field['name']}"))
        else:
            raise Misfit(f"{place} has no {field['name']!r}, which has no default")
    return pa.StructArray.from_arrays(columns, fields=list(reader.kind), mask=array.is_null())


def _default(default: Any, node: Node, count: int, place: str) -> Any:
    if pa.types.is_binary(node.kind) and isinstance(default, str):
        default = default.encode("iso-8859-1")
    try:
        one = pa.array([default], node.kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise Misfit(f"the default of {place} is not {node.kind}") from None
    return one.take(pa.array([0] * count, pa.int64()))


def _offsets(array: Any) -> Any:
    """Returns the offsets of an array of lists or maps, from 0."""
    return pa.array(array.offsets.to_numpy() - array.offsets[0].as_py())


def _masked(made: Any, before: Any) -> Any:
    """Returns the array with null where `before` is null."""
    return pa.compute.if_else(before.is_valid(), made, pa.scalar(None, made.type)) if before.null_count else made
