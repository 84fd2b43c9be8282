"""JSON Schema for `produce --schema` and `--key-schema`: each value or key must be JSON that fits. The error names the wrong member.

This module checks the common keywords (`_CHECKS`) and ignores keywords that only describe (`DESCRIBING`). For a schema with any other
keyword, `record_schemas.py` uses the package jsonschema, or refuses the schema without this package, so no constraint is skipped silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ottla.cli.command import UsageError
from ottla.schemas.errors import Misfit

DESCRIBING = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly"}
)
_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer())),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class KeywordNotOffered(UsageError):
    """A schema has a keyword that this module does not check."""


class Schema:
    """A parsed schema that has only known keywords. Raises UsageError for text that is not such a schema."""

    def __init__(self, text: str, name: str) -> None:
        try:
            self._root: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{name} is not JSON: {error}") from None
        _check_keywords(self._root, name, "")

    def check(self, value: bytes) -> None:
        """Raises `Misfit` if a value is not JSON or does not fit."""
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            raise Misfit(f"it is not JSON: {value[:80].decode('utf-8', 'replace')!r}") from None
        misfit = _misfit(self._root, parsed, "value")
        if misfit:
            raise Misfit(misfit)


def _check_keywords(schema: Any, name: str, place: str) -> None:
    """Raises UsageError unless each keyword in the schema is checked or only describes. Also checks types and patterns."""
    where = f"{name}{' at ' + place if place else ''}"
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise UsageError(f"{where}: a schema is an object")
    unknown = sorted(set(schema) - set(_CHECKS) - DESCRIBING)
    if unknown:
        raise KeywordNotOffered(f"{where}: the keyword {unknown[0]!r} is not offered; there are {', '.join(sorted(_CHECKS))}")
    types = schema.get("type", [])
    for word in [types] if isinstance(types, str) else types:
        if word not in _TYPES:
            raise UsageError(f"{where}: no type {word!r}; there are {', '.join(_TYPES)}")
    try:
        re.compile(schema.get("pattern", ""))
    except re.error as error:
        raise UsageError(f"{where}: pattern is not a regular expression: {error}") from None
    for key, below in schema.get("properties", {}).items():
        _check_keywords(below, name, f"{place}/{key}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            _check_keywords(schema[key], name, f"{place}/{key}")


def _misfit(schema: Any, value: Any, place: str) -> str:
    """Returns the reason why a value does not fit, with the place in the value, or an empty text if the value fits."""
    if isinstance(schema, bool):
        return "" if schema else f"{place} is not allowed"
    for keyword, wanted in schema.items():
        check = _CHECKS.get(keyword)
        wrong = check(wanted, value, place, schema) if check is not None else ""
        if wrong:
            return wrong
    return ""


def _type(wanted: Any, value: Any, place: str, _: Mapping[str, Any]) -> str:
    words = [wanted] if isinstance(wanted, str) else wanted
    return "" if any(_TYPES[word](value) for word in words) else f"{place} is not {' or '.join(words)}"


def _properties(wanted: Any, value: Any, place: str, _: Mapping[str, Any]) -> str:
    if not isinstance(value, dict):
        return ""
    return next((wrong for key, below in wanted.items() if key in value and (wrong := _misfit(below, value[key], f"{place}.{key}"))), "")


def _additional(wanted: Any, value: Any, place: str, schema: Mapping[str, Any]) -> str:
    if not isinstance(value, dict):
        return ""
    rest = [key for key in value if key not in schema.get("properties", {})]
    return next((wrong for key in rest if (wrong := _misfit(wanted, value[key], f"{place}.{key}"))), "")


def _required(wanted: Any, value: Any, place: str, _: Mapping[str, Any]) -> str:
    missing = [key for key in wanted if key not in value] if isinstance(value, dict) else []
    return f"{place} has no {missing[0]!r}" if missing else ""


def _items(wanted: Any, value: Any, place: str, _: Mapping[str, Any]) -> str:
    if not isinstance(value, list):
        return ""
    return next((wrong for number, item in enumerate(value) if (wrong := _misfit(wanted, item, f"{place}[{number}]"))), "")


def _of(kind: str, fits: Callable[[Any, Any], bool], says: str) -> Callable[[Any, Any, str, Mapping[str, Any]], str]:
    """Returns a check for values of the type `kind` (empty: all types). Values of other types pass."""

    def check(wanted: Any, value: Any, place: str, _: Mapping[str, Any]) -> str:
        if kind and not _TYPES[kind](value):
            return ""
        return "" if fits(value, wanted) else f"{place} is not {says} {json.dumps(wanted)}"

    return check


_CHECKS: dict[str, Callable[[Any, Any, str, Mapping[str, Any]], str]] = {
    "type": _type,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "enum": _of("", lambda value, wanted: value in wanted, "one of"),
    "const": _of("", lambda value, wanted: bool(value == wanted), "equal to"),
    "minimum": _of("number", lambda value, wanted: bool(value >= wanted), "at least"),
    "maximum": _of("number", lambda value, wanted: bool(value <= wanted), "at most"),
    "exclusiveMinimum": _of("number", lambda value, wanted: bool(value > wanted), "above"),
    "exclusiveMaximum": _of("number", lambda value, wanted: bool(value < wanted), "below"),
    "minLength": _of("string", lambda value, wanted: len(value) >= wanted, "as long as"),
    "maxLength": _of("string", lambda value, wanted: len(value) <= wanted, "as short as"),
    "pattern": _of("string", lambda value, wanted: re.search(wanted, value) is not None, "of the form"),
    "minItems": _of("array", lambda value, wanted: len(value) >= wanted, "as long as"),
    "maxItems": _of("array", lambda value, wanted: len(value) <= wanted, "as short as"),
}
