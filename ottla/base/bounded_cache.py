"""A cache with a limit in bytes, for keys that clients choose.

A limit on the number of entries would not bound the memory, because clients choose the size of an entry: a string of the protocol has up to
32,767 bytes, and takes up to four times as much in memory. Here each entry is charged with the memory of the texts in its key and value.
The oldest entries are evicted first. A key whose texts take more than `KEY_BYTES_MAX` is never cached.

`tests/tidy/test_bounded_tables.py` finds every cache and table with a limit, and names what bounds its size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from sys import getsizeof
from typing import Any, TypeVar

ENTRY_BYTES = 336
"""Memory of an entry besides its texts, in bytes: the table's slot, and the numbers in its key."""
KEY_BYTES_MAX = 4 << 10
"""Maximum memory of a key's texts, in bytes; a larger key is not cached. 4 KiB: the longest accepted id takes this much
(`base/identifiers.py`).
"""

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class BoundedCache(OrderedDict[KeyT, ValueT]):
    """A dictionary of at most `bytes_max` bytes. Entries are added by `remember` and read as in any dictionary."""

    def __init__(self, bytes_max: int, value_bytes: int = 0) -> None:
        """`value_bytes`: memory of one value in bytes, besides its texts."""
        super().__init__()
        self.bytes_max = bytes_max
        self.bytes_kept = 0
        self._entry_bytes = ENTRY_BYTES + value_bytes

    def remember(self, key: KeyT, value: ValueT) -> ValueT:
        """Adds or replaces a value, evicts the oldest entries while the cache is above its limit, and returns the value. Does not cache a
        key that is too large."""
        if text_bytes(key) > KEY_BYTES_MAX:
            return value
        self.forget(key)
        self[key] = value
        self.bytes_kept += self._bytes_of(key, value)
        while self.bytes_kept > self.bytes_max:
            self.bytes_kept -= self._bytes_of(*self.popitem(last=False))
        return value

    def forget(self, key: KeyT) -> ValueT | None:
        """Removes an entry. Returns its value, or None if there was none."""
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
    """Returns the memory of a text, or of all texts in a tuple, in bytes; 0 for other values."""
    if isinstance(kept, tuple):
        return sum(map(text_bytes, kept))
    return getsizeof(kept) if isinstance(kept, str | bytes | bytearray) else 0


def remembered(bytes_max: int) -> Callable[[FunctionT], FunctionT]:
    """Decorates a function of hashable arguments: caches its results in a `BoundedCache`. The function must not return None."""

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
