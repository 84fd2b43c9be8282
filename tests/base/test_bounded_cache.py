"""A cache whose keys clients choose: its real memory stays within its bound, whatever the keys are."""

from __future__ import annotations

from sys import getsizeof
from typing import Any

import pytest

from ottla.base.bounded_cache import KEY_BYTES_MAX, BoundedCache, remembered

MIB = 1 << 20


def memory_of(kept: Any) -> int:
    """Returns the bytes, by the interpreter's count, of a container of texts, numbers and containers."""
    if isinstance(kept, dict):
        return getsizeof(kept) + sum(memory_of(key) + memory_of(value) for key, value in kept.items())
    if isinstance(kept, tuple | list):
        return getsizeof(kept) + sum(map(memory_of, kept))
    return getsizeof(kept)


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u20ac", "\U0001f600"])
@pytest.mark.parametrize("length", [1, 40, 1000, 32_767])
def test_memory_is_bounded_whatever_the_keys_are(letter: str, length: int) -> None:
    cache: BoundedCache[tuple[str, int], bool] = BoundedCache(MIB)
    for number in range(min(20_000, 4 * MIB // length)):  # several times what the cache may hold
        cache.remember((str(number).ljust(length, letter), number), True)
    assert memory_of(cache) <= MIB * 11 / 10 and cache.bytes_kept <= MIB
    assert bool(cache) is (length < 32_767)


def test_the_oldest_is_evicted_first() -> None:
    cache: BoundedCache[str, int] = BoundedCache(3_000)
    for number in range(100):
        assert cache.remember(f"name-{number}", number) == number
    assert 5 < len(cache) < 20 and list(cache.values())[-1] == 99 and "name-0" not in cache


def test_what_is_forgotten_or_replaced_is_counted_once() -> None:
    cache: BoundedCache[str, int] = BoundedCache(MIB)
    for value in range(3):
        cache.remember("a", value)
    cache.remember("b", 1)
    cache.forget("a")
    cache.forget("a")
    assert dict(cache) == {"b": 1}
    cache.forget("b")
    assert cache.bytes_kept == 0
    cache.remember("c", 1)
    cache.clear()
    assert not cache and cache.bytes_kept == 0


def test_results_of_a_function_are_remembered_unless_the_argument_is_large() -> None:
    asked: list[str] = []

    @remembered(MIB)
    def length(text: str) -> int:
        """Counts letters."""
        asked.append(text)
        return len(text)

    large = "x" * (KEY_BYTES_MAX + 1)
    assert [length("a"), length("a"), length(large), length(large)] == [1, 1, len(large), len(large)]
    assert asked == ["a", large, large] and length.__doc__ == "Counts letters."
