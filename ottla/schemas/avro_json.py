"""Converts JSON to values of an Avro schema. It accepts the output of `consume --schema`, so that printed records can be produced again.

Bytes are base64. Dates and times are text (or the numbers that Avro stores), decimals text or a number with all its digits. A value of a
union is written plainly, or with the branch's name as in Avro's own JSON (`{"string": "x"}`). A value that does not fit raises a
`ValueError` with its place.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from ottla.analysis.json_numbers import WrittenFloat

_LOGICAL: dict[str, Callable[[str], Any]] = {
    "date": datetime.date.fromisoformat,
    "time-millis": datetime.time.fromisoformat,
    "time-micros": datetime.time.fromisoformat,
    "timestamp-millis": datetime.datetime.fromisoformat,
    "timestamp-micros": datetime.datetime.fromisoformat,
    "local-timestamp-millis": datetime.datetime.fromisoformat,
    "local-timestamp-micros": datetime.datetime.fromisoformat,
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
}
_PLAIN: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _is_integer(value) and -(1 << 31) <= value < 1 << 31,
    "long": lambda value: _is_integer(value) and -(1 << 63) <= value < 1 << 63,
    "float": lambda value: _is_integer(value) or isinstance(value, float),
    "double": lambda value: _is_integer(value) or isinstance(value, float),
    "string": lambda value: isinstance(value, str),
}


def avro_value(schema: Any, named: Mapping[str, Any], value: Any, place: str = "value") -> Any:
    """Returns a parsed JSON value as the Python value that fastavro writes for this schema. Raises ValueError if it does not fit."""
    if isinstance(schema, list):
        return _union(schema, named, value, place)
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if isinstance(kind, list | Mapping):
        return avro_value(kind, named, value, place)
    if kind in _COMPLEX:
        return _COMPLEX[kind](schema, named, value, place)
    logical = schema.get("logicalType") if isinstance(schema, Mapping) else None
    if logical in _LOGICAL and isinstance(value, str):
        return _parsed(_LOGICAL[logical], value, place, logical)
    if logical == "decimal" and (_is_integer(value) or isinstance(value, WrittenFloat)):
        return decimal.Decimal(str(value))
    if kind in ("bytes", "fixed"):
        return _bytes(schema, value, place)
    if kind in _PLAIN:
        if not _PLAIN[kind](value):
            raise ValueError(f"{place} is not {kind}")
        return value
    return avro_value(named[kind], named, value, place)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _parsed(parse: Callable[[str], Any], text: str, place: str, logical: str) -> Any:
    try:
        return parse(text)
    except (ValueError, ArithmeticError):
        raise ValueError(f"{place} is not {logical}: {text[:80]!r}") from None


def _bytes(schema: Any, value: Any, place: str) -> bytes:
    try:
        found = base64.b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise ValueError(f"{place} is not base64") from None
    size = schema.get("size") if isinstance(schema, Mapping) else None
    if size is not None and len(found) != size:
        raise ValueError(f"{place} has {len(found)} bytes instead of {size}")
    return found


def _union(branches: list[Any], named: Mapping[str, Any], value: Any, place: str) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        chosen = next((branch for branch in branches if name in (_name(branch), _name(branch).rpartition(".")[2])), None)
        if chosen is not None:
            return _tagged(chosen, avro_value(chosen, named, inner, place))
    for branch in branches:
        try:
            return _tagged(branch, avro_value(branch, named, value, place))
        except ValueError:
            continue
    raise ValueError(f"{place} is none of {', '.join(map(_name, branches))}")


def _tagged(branch: Any, value: Any) -> Any:
    """Returns a dict with the branch's name, because records and maps are both dicts. Other values are returned unchanged."""
    return (_name(branch), value) if isinstance(value, dict) else value


def _name(branch: Any) -> str:
    return str(branch.get("name") or branch["type"]) if isinstance(branch, Mapping) else str(branch)


def _record(schema: Any, named: Mapping[str, Any], value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place} is not an object")
    fields = {field["name"]: field for field in schema["fields"]}
    unknown = [name for name in value if name not in fields]
    missing = [name for name, field in fields.items() if name not in value and "default" not in field]
    if unknown or missing:
        raise ValueError(f"{place} has no {missing[0]!r}" if missing else f"{place}.{unknown[0]} is not in the schema")
    return {name: avro_value(field["type"], named, value[name], f"{place}.{name}") for name, field in fields.items() if name in value}


def _array(schema: Any, named: Mapping[str, Any], value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{place} is not an array")
    return [avro_value(schema["items"], named, item, f"{place}[{number}]") for number, item in enumerate(value)]


def _map(schema: Any, named: Mapping[str, Any], value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place} is not an object")
    return {key: avro_value(schema["values"], named, item, f"{place}.{key}") for key, item in value.items()}


def _enum(schema: Any, _: Mapping[str, Any], value: Any, place: str) -> str:
    if value not in schema["symbols"]:
        raise ValueError(f"{place} is none of {', '.join(schema['symbols'])}")
    return str(value)


_COMPLEX: dict[str, Callable[[Any, Mapping[str, Any], Any, str], Any]] = {
    "record": _record, "error": _record, "array": _array, "map": _map, "enum": _enum,
}  # fmt: skip
