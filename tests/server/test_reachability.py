"""A broker that does not answer is logged at its first failure, then at growing intervals, and when it answers again."""

from __future__ import annotations

import logging

import pytest

from ottla.server.reachability import AGAIN_MS_MAX, AGAIN_MS_MIN, Reachability
from tests.fakes import ManualClock


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.peers")


def test_one_line_at_the_loss_then_at_growing_intervals_and_one_at_recovery(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    noted = Reachability(clock)
    noted.answered(2)
    for _ in range(700):
        noted.failed(2, "cannot be reached")
        clock.advance(100)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "broker 2: cannot be reached",
        "broker 2: cannot be reached; 101 requests have failed in 10 s",
        "broker 2: cannot be reached; 301 requests have failed in 30 s",
    ]
    noted.answered(2)
    noted.answered(2)
    assert [record.getMessage() for record in caplog.records][3:] == ["broker 2 answers again after 70.0 s and 700 failed requests"]


def test_each_broker_and_each_loss_has_its_own_first_line(caplog: pytest.LogCaptureFixture) -> None:
    noted = Reachability(ManualClock())
    noted.failed(1, "a")
    noted.failed(2, "b")
    noted.answered(1)
    noted.failed(1, "c")
    found = [record.getMessage().partition(" answers")[0] for record in caplog.records]
    assert found == ["broker 1: a", "broker 2: b", "broker 1", "broker 1: c"]


def test_a_long_loss_is_named_now_and_then_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    noted = Reachability(clock)
    for _ in range(100):
        noted.failed(1, "away")
        clock.advance(AGAIN_MS_MAX)
    assert len(caplog.records) == 100 and AGAIN_MS_MIN < AGAIN_MS_MAX
