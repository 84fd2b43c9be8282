"""The arithmetic of the performance tools."""

from __future__ import annotations

from ottla.cli.bench import figures


def test_percentiles_are_counted_from_the_fastest() -> None:
    latencies = figures.Latencies()
    latencies.add(range(1, 1001))
    assert latencies.percentiles() == [501, 951, 991, 1000]
    assert (latencies.average_ms(), latencies.max_ms) == (500.5, 1000)
