"""The rate limit for replicas that are not in sync (KIP-73)."""

from __future__ import annotations

import pytest

from ottla.replication.throttle import UNLIMITED, ReplicationThrottle, is_throttled


def test_a_bucket_of_one_second_is_overdrawn_once_and_fills_at_the_rate() -> None:
    throttle = ReplicationThrottle(lambda: 1_000)
    assert throttle.allows(0)
    throttle.note(3_500, 0)
    assert not throttle.allows(0) and not throttle.allows(2_500) and throttle.allows(2_501)
    assert throttle.allows(60_000)
    throttle.note(1_001, 60_000)
    assert not throttle.allows(60_000), "a long pause saves up no more than a second"


def test_a_rate_that_is_set_or_taken_away_counts_at_once() -> None:
    rates = [UNLIMITED]
    throttle = ReplicationThrottle(lambda: rates[-1])
    throttle.note(1 << 40, 0)
    assert throttle.allows(0)
    rates.append(10)
    assert throttle.allows(0), "what was read without a bound is not held against it"
    throttle.note(100, 0)
    assert not throttle.allows(1_000)
    rates.append(UNLIMITED)
    assert throttle.allows(1_000)
    rates.append(0)
    assert not throttle.allows(90_000)


@pytest.mark.parametrize(
    ("replicas", "expected"), [((), False), (("*",), True), (("0:2", "1:3"), True), (("0:3", "1:2"), False), (("10:3",), False)]
)
def test_a_topic_names_its_throttled_replicas(replicas: tuple[str, ...], expected: bool) -> None:
    assert is_throttled(replicas, 1, 3) is expected
