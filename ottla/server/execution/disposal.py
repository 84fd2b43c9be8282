"""Frees the memory of large messages in steps, because freeing 100,000 objects in one step stops the event loop for 20 ms.

The caller must drop its own references, otherwise nothing is freed. The lists of a message are copied, and only the copies are emptied,
because a handler may have kept a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from ottla.wire.schema import Struct, StructType

ELEMENTS_PER_STEP = 500
INNER_MAX = 50
"""Longer lists within an element are freed in steps of their own."""


class Arrays(NamedTuple):
    """The names of a struct's arrays."""

    flat: tuple[str, ...]
    """Arrays of numbers, of strings, or of structs without arrays."""
    deep: tuple[str, ...]


def dispose(struct: Struct) -> Iterator[None]:
    """Frees a message in steps; there must be no other reference to it."""
    owned: list[list[Any]] = []
    _copy_long_lists([struct], owned)
    del struct
    yield
    for elements in owned:
        yield from dispose_elements(elements)


def dispose_elements(elements: list[Any]) -> Iterator[None]:
    """Frees the elements of a list in steps, and empties it."""
    while elements:
        owned: list[list[Any]] = []
        if isinstance(elements[0], Struct):
            _copy_long_lists(elements[-ELEMENTS_PER_STEP:], owned)
        del elements[-ELEMENTS_PER_STEP:]
        yield
        for inner in owned:
            yield from dispose_elements(inner)


def _copy_long_lists(structs: Sequence[Struct], into: list[list[Any]]) -> None:
    """Copies the long lists in structs of one class, and those in the elements of their short lists."""
    flat, deep = _arrays(type(structs[0]))
    for name in flat:
        for struct in structs:
            value = getattr(struct, name)
            if value and len(value) > INNER_MAX:
                into.append(list(value))
    for name in deep:
        for struct in structs:
            value = getattr(struct, name)
            if value and len(value) > INNER_MAX:
                into.append(list(value))
            elif value:
                _copy_long_lists(value, into)


@cache
def _arrays(cls: type[Struct]) -> Arrays:
    flat: list[str] = []
    deep: list[str] = []
    for field in cls.__fields__:
        if field.kind == "array":
            is_deep = isinstance(field.of, StructType) and any(_arrays(field.struct))
            (deep if is_deep else flat).append(field.name)
    return Arrays(tuple(flat), tuple(deep))
