"""`immutable`: the decorator of data classes that never change: commands, answers, records, effects, metadata.

The type checker refuses every assignment to a field. At run time there is no guard, because a guarded class sets its fields through a call
each, so that making an object of ten fields costs three times as much, and every request makes several.
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
    """Makes a slotted data class that is compared and hashed by its fields, and never changed once it is made."""
    make = dataclass(slots=True, kw_only=kw_only, unsafe_hash=True)
    return make if cls is None else make(cls)
