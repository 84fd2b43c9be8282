"""A cache with a bound in bytes, for values that are looked up by what clients choose.

A count of entries bounds nothing while a client chooses how large an entry is: a string of the protocol has up to 32,767 bytes, and takes
up to four times as much in memory. Here an entry counts with the memory of the texts in its key and in its value. The oldest entries are
evicted first. A key that is larger than `KEY_BYTES_MAX` is never kept.

`tests/tidy/test_bounded_tables.py` finds every cache and table with a bound, and says what bounds its size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from sys import getsizeof
from typing import Any, TypeVar

ENTRY_BYTES = 320
"""Memory of an entry in the table itself, and of the numbers in its key."""
KEY_BYTES_MAX = 4 << 10
"""A larger key is not kept. 4 KiB: the longest id that is accepted takes this much (`base/identifiers.py`)."""

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class BoundedCache(OrderedDict[KeyT, ValueT]):
    """A dictionary whose entries are added by `remember` and whose size is at most `bytes_max`. Read it like any dictionary."""

    def __init__(self, bytes_max: int, value_bytes: int = 0) -> None:
        """`value_bytes`: memory of a value that is neither a text nor a tuple of texts, and that only the cache refers to."""
        super().__init__()
        self.bytes_max = bytes_max
        self.bytes_kept = 0
        self._entry_bytes = ENTRY_BYTES + value_bytes

    def remember(self, key: KeyT, value: ValueT) -> ValueT:
        """Adds a value, evicts the oldest ones if there is no space, and returns the value."""
        if text_bytes(key) > KEY_BYTES_MAX:
            return value
        self.forget(key)
        self[key] = value
        self.bytes_kept += self._bytes_of(key, value)
        while self.bytes_kept > self.bytes_max:
            self.bytes_kept -= self._bytes_of(*self.popitem(last=False))
        return value

    def forget(self, key: KeyT) -> ValueT | None:
        """Removes an entry and returns its value, None if it is not there."""
        if key not in self:
            return None
        value = self.pop(key)
        self.bytes_kept -= self._bytes_of(key, value)
        return value

    def _bytes_of(self, key: KeyT, value: ValueT) -> int:
        return text_bytes(key) + text_bytes(value) + self._entry_bytes

    def clear(self) -> None:
        super().clear()
        self.bytes_kept = 0


def text_bytes(kept: object) -> int:
    """Memory of a text, or of the texts in a tuple."""
    if isinstance(kept, tuple):
        return sum(map(text_bytes, kept))
    return getsizeof(kept) if isinstance(kept, str | bytes | bytearray) else 0


def remembered(bytes_max: int) -> Callable[[FunctionT], FunctionT]:
    """Decorates a function of hashable arguments, which must not return None: its results are kept in a `BoundedCache`."""

    def decorate(function: FunctionT) -> FunctionT:
        cache: BoundedCache[tuple[Any, ...], Any] = BoundedCache(bytes_max)
        get = cache.get

        @wraps(function)
        def call(*arguments: Any) -> Any:
            value = get(arguments)
            return cache.remember(arguments, function(*arguments)) if value is None else value

        call.cache = cache  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate
