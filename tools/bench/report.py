"""Runs loads in rounds, and formats medians and ratios as tables."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Sequence

from tools.bench.brokers import Broker
from tools.bench.loads import LOADS, Figures

Results = dict[str, dict[str, list[Figures]]]
"""The figures by load and broker, one set per round."""


Row = tuple[str, str, float]
"""One measurement: (what, unit, figure)."""


def run_rounds(brokers: Sequence[Broker], names: Sequence[str], rounds: int, scale: float, able: dict[str, Sequence[str]]) -> Results:
    """Runs each load on the brokers alternately (A B A B ...), and prints its rows. A failed run is reported and left out of the medians.
    `able` names the loads that a broker can run, for brokers that cannot run all.
    """
    results: Results = {}
    for name in names:
        results[name] = {broker.name: [] for broker in brokers}
        for _ in range(rounds):
            for broker in brokers:
                if name not in able.get(broker.name, names):
                    continue
                try:
                    results[name][broker.name].append(LOADS[name](broker, scale))
                except Exception as error:
                    print(f"bench: {name} failed on {broker.name}: {error}", file=sys.stderr)
        print("\n".join(rows_of(name, results[name], [broker.name for broker in brokers])), flush=True)
    return results


def header(names: Sequence[str]) -> str:
    columns = ["load", "figure", *names]
    if len(names) == 2:
        columns.append(f"{names[0]} / {names[1]}")
    return f"| {' | '.join(columns)} |\n|{'|'.join([' --- '] * len(columns))}|"


def rows_of(load: str, results: dict[str, list[Figures]], names: Sequence[str]) -> list[str]:
    """Returns one row per figure: medians, and for two brokers the median of the ratios within a round."""
    rows = []
    for figure in next((rounds[0] for rounds in results.values() if rounds), {}):
        cells = [load, figure]
        for name in names:
            values = [one[figure] for one in results[name]]
            cells.append(number(statistics.median(values)) if values else "-")
        if len(names) == 2:
            pairs = [(a[figure], b[figure]) for a, b in zip(results[names[0]], results[names[1]], strict=False) if b[figure]]
            cells.append(f"{statistics.median(a / b for a, b in pairs):.2f}" if pairs else "-")
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def machine() -> str:
    """Describes the machine in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, CPython {platform.python_version()}; client on the same machine"
