"""All declared messages, and samples of each, made from its declaration.

`sample` draws from any `random.Random`: a seeded one for sweeps over all versions, hypothesis's own where examples are to be shrunk. Fields
that the version lacks keep their defaults, so a sample survives a round trip unchanged.
"""

from __future__ import annotations

import importlib
import pkgutil
from random import Random
from typing import Any

import ottla.wire.messages
from ottla.wire.schema import ZERO_UUID, Field, Message, Struct

_INTEGERS = {"i8": (8, True), "i16": (16, True), "i32": (32, True), "i64": (64, True), "u16": (16, False), "u32": (32, False)}
_LETTERS = ["", "a", "topic-1", "ключ", "x" * 127, "y" * 128, "zß" * 90, "🐳"]


def all_messages() -> list[type[Message]]:
    """Returns every message class of every module, in a fixed order."""
    found: dict[str, type[Message]] = {}
    for module in pkgutil.iter_modules(ottla.wire.messages.__path__):
        names = vars(importlib.import_module(f"ottla.wire.messages.{module.name}"))
        for name, value in names.items():
            if isinstance(value, type) and issubclass(value, Message) and value.__module__.endswith(module.name):
                found[name] = value
    return [found[name] for name in sorted(found)]


def versions(cls: type[Message]) -> range:
    lowest, highest = cls.VERSIONS
    return range(lowest, highest + 1)


def message_versions() -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in all_messages() for version in versions(cls)]


def sample(cls: type[Struct], version: int, random: Random) -> Any:
    """Returns an instance with a value in every field that the version has."""
    return cls(**{field.name: _value(field, version, random) for field in cls.__fields__ if field.is_in(version)})


def _value(field: Field, version: int, random: Random) -> Any:
    if field.is_nullable(version) and random.randrange(4) == 0:
        return None
    if field.tag is not None and random.randrange(3) == 0 and field.kind not in ("array", "nested"):
        return field.default
    if field.kind == "array":
        element = field.element
        return [_value(element, version, random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    if field.kind == "nested":
        return sample(field.struct, version, random)
    return _scalar(field, random)


def _scalar(field: Field, random: Random) -> Any:
    if field.kind in _INTEGERS:
        return _integer(field, random)
    if field.kind == "boolean":
        return random.randrange(2) == 1
    if field.kind == "f64":
        return random.randrange(-(2**40), 2**40) / 64
    if field.kind == "uuid":
        return random.choice((ZERO_UUID, random.randbytes(16)))
    if field.kind == "string":
        return random.choice(_LETTERS)
    return random.randbytes(random.choice((0, 1, 5, 126, 127, 128, 300)))


def _integer(field: Field, random: Random) -> int:
    """Returns any number of the field's width. Error codes and times are realistic, because the independent codec has special types for
    them."""
    bits, is_signed = _INTEGERS[field.kind]
    if field.name.endswith("error_code"):
        return random.randrange(0, 100)
    if field.kind == "i64" and ("time" in field.name or "period" in field.name):
        return random.randrange(0, 2**41)
    low = -(2 ** (bits - 1)) if is_signed else 0
    high = low + 2**bits - 1
    return random.choice((low, high, 0, 1, random.randint(low, high)))
