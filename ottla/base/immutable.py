"""`immutable`: the decorator of data classes that never change, such as commands, answers, records, effects and metadata.

The type checker refuses every assignment to a field. There is no check at run time: it would make the creation of an object with ten fields
three times as expensive, and every request creates several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def immutable(cls: type[T], /) -> type[T]: ...


@overload
def immutable(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """Makes a slotted data class that is compared and hashed by its fields."""
    make = dataclass(slots=True, kw_only=kw_only, unsafe_hash=True)
    return make if cls is None else make(cls)
