"""The production randomness: sizes and ranges are those that were asked for, and two answers differ."""

from __future__ import annotations

from ottla.adapters.randomness import SystemRandom
from ottla.base.ports import Random


def test_tokens_have_their_size_and_differ() -> None:
    random: Random = SystemRandom()
    tokens = {random.token_bytes(16) for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {16}


def test_numbers_stay_within_their_range() -> None:
    random: Random = SystemRandom()
    assert {random.randrange(3) for _ in range(200)} == {0, 1, 2}
    assert all(2.0 <= random.uniform(2.0, 3.0) <= 3.0 for _ in range(100))
