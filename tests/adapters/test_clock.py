"""The production clock counts whole milliseconds and agrees with the operating system."""

from __future__ import annotations

import time

from ottla.adapters.clock import SystemClock
from ottla.base.ports import Clock


def test_both_clocks_agree_with_the_operating_system() -> None:
    clock: Clock = SystemClock()
    before_ns, before_wall_ns = time.monotonic_ns(), time.time_ns()
    now_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
    after_ns, after_wall_ns = time.monotonic_ns(), time.time_ns()
    assert before_ns // 1_000_000 <= now_ms <= after_ns // 1_000_000
    assert before_wall_ns // 1_000_000 <= wall_ms <= after_wall_ns // 1_000_000
    assert type(now_ms) is int and type(wall_ms) is int
