"""Reads and writes the JSON in nodes of the metadata store. Raises `NodeError` for invalid JSON and for a missing or invalid field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

NUMBER_MAX = 2**31 - 2
"""Largest epoch or id, so that the next one fits into 32 bits too."""

DIGITS_MAX = len(str(NUMBER_MAX))
BROKER_EPOCH_MAX = 2**63 - 1


class NodeError(ValueError):
    """A node in the store has invalid content."""


_encode = json.JSONEncoder(separators=(",", ":")).encode


def write_json(value: Mapping[str, Any]) -> bytes:
    return _encode(value).encode()


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


def integer_of(value: Mapping[str, Any], name: str, *, number_max: int = NUMBER_MAX) -> int:
    number: int = field_of(value, name)
    if not _is_number(number, number_max):
        raise NodeError(f"the field {name} is not a number, or out of range")
    return number


def number_in(text: str, what: str) -> int:
    """Returns the id or port that a text names. `what` names it in the error."""
    # `int` refuses some digits, such as superscripts, and texts of more than 4,300 digits.
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and int(text) <= NUMBER_MAX):
        raise NodeError(f"{what} is {text[:DIGITS_MAX]!r}, which is no number, or out of range")
    return int(text)


def list_of(value: Mapping[str, Any], name: str) -> list[Any]:
    entries = field_of(value, name)
    if not isinstance(entries, list):
        raise NodeError(f"the field {name} is not a list")
    return entries


def integers(entries: Sequence[Any], name: str) -> tuple[int, ...]:
    if not all(_is_number(entry, NUMBER_MAX) for entry in entries):
        raise NodeError(f"{name} is not a list of numbers, or one is out of range")
    return tuple(entries)


def _is_number(value: Any, number_max: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= number_max
