"""The pace of a snapshot: looks that are expensive are taken less often."""

from __future__ import annotations

from ottla.console.snapshot import COST_SHARE_MAX, IDLE_INTERVAL_S, INTERVAL_S, pause_s


def test_looks_take_a_bounded_share_of_a_core() -> None:
    assert pause_s(0.001, is_idle=False) == INTERVAL_S and pause_s(0.001, is_idle=True) == IDLE_INTERVAL_S
    for cost_s in (0.1, 0.5, 3.0):
        assert cost_s / pause_s(cost_s, is_idle=False) <= COST_SHARE_MAX
    assert pause_s(0.5, is_idle=True) == pause_s(0.5, is_idle=False) > IDLE_INTERVAL_S
