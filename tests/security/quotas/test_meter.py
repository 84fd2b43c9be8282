"""The throttle time that a share shows."""

from __future__ import annotations

from ottla.security.quotas.meter import Meter
from ottla.security.quotas.rates import Windows


def test_the_average_is_that_of_the_requests_that_were_throttled_lately() -> None:
    meter = Meter(Windows(2, 1000), 0)
    assert meter.throttle_time_ms(0) == 0
    meter.note_throttle(100, 0)
    meter.note_throttle(300, 0)
    assert meter.throttle_time_ms(500) == 200
    assert meter.throttle_time_ms(2000) == 0


def test_only_changes_of_the_cluster_have_tokens() -> None:
    assert Meter(Windows(2, 1000), 0).bucket is None
    assert Meter(Windows(2, 1000), 0, has_bucket=True).bucket is not None
