"""Creating and deleting things repeatedly does not make the broker's memory grow. Runs a few rounds of `tools/bench/churn.py`, which
measures this for a quarter of an hour.
"""

from __future__ import annotations

from pathlib import Path

from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tools.bench.churn import QUICK, churn, growth_mib

SECONDS = 4
GROWTH_MIB_MAX = 8
"""Of a few rounds behind a few others: what a single one may leave is the long run's affair."""


def test_a_few_rounds_leave_next_to_nothing(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, (*SETTINGS, *QUICK)).start()
    try:
        samples = [(elapsed, rounds, used) for elapsed, rounds, used in churn(broker, SECONDS)]
    finally:
        broker.stop()
    assert samples[-1][1] >= 2, "no round came to its end"
    growth = growth_mib([(elapsed, used) for elapsed, rounds, used in samples if rounds], SECONDS / 2)
    assert growth < GROWTH_MIB_MAX


def test_growth_counts_from_when_the_broker_has_settled() -> None:
    samples = [(10.0, 40.0), (120.0, 50.0), (130.0, 52.0), (900.0, 53.5)]
    assert growth_mib(samples, 120) == 3.5
    assert growth_mib(samples[:1], 120) == 0
