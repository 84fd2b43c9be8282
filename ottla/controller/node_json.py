"""The JSON in the nodes of the metadata store, and its fields: what is not as it must be is a `NodeError`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class NodeError(ValueError):
    """Bytes in the store that are not what their path promises."""


def write_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def read_json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NodeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise NodeError("not a JSON object")
    return value


def field_of(value: Mapping[str, Any], name: str) -> Any:
    if name not in value:
        raise NodeError(f"the field {name} is missing")
    return value[name]


def integer_of(value: Mapping[str, Any], name: str) -> int:
    number = field_of(value, name)
    if not isinstance(number, int) or isinstance(number, bool):
        raise NodeError(f"the field {name} is not a number")
    return number


def list_of(value: Mapping[str, Any], name: str) -> list[Any]:
    entries = field_of(value, name)
    if not isinstance(entries, list):
        raise NodeError(f"the field {name} is not a list")
    return entries


def integers(entries: Sequence[Any], name: str) -> tuple[int, ...]:
    if not all(isinstance(entry, int) for entry in entries):
        raise NodeError(f"{name} is not a list of numbers")
    return tuple(entries)
