"""Draws the picture of the cluster's demo: acknowledged and read records per second, the replicas in sync below, and the faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INTERVAL_SECONDS = 0.25
BLUE, ORANGE, RED, GREY = "#3465a4", "#e08a1e", "#cc2222", "#666666"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRun:
    """The data of the picture. Times are seconds since the start of the run. `acknowledged` and `read` have the time of each record,
    `in_sync` has (time, number of replicas in sync of all partitions), `faults` has (time, what).
    """

    acknowledged: Sequence[float]
    read: Sequence[float]
    in_sync: Sequence[tuple[float, int]]
    faults: Sequence[tuple[float, str]]
    seconds: float


def rates(moments: Sequence[float], seconds: float) -> list[float]:
    """Returns the events per second in each interval of the run."""
    found = [0.0] * (int(seconds / INTERVAL_SECONDS) + 1)
    for moment in moments:
        found[min(len(found) - 1, max(0, int(moment / INTERVAL_SECONDS)))] += 1 / INTERVAL_SECONDS
    return found


def draw(run: ClusterRun, path: Path) -> None:
    """Writes the picture as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(
        2, 1, figsize=(12, 5), dpi=110, layout="constrained", sharex=True, gridspec_kw={"height_ratios": (3, 1)}
    )
    _draw_rates(upper, run)
    _draw_in_sync(lower, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _draw_rates(axes: Any, run: ClusterRun) -> None:
    for name, moments, colour in (("acknowledged (acks=all)", run.acknowledged, BLUE), ("read by the group", run.read, ORANGE)):
        values = rates(moments, run.seconds)
        times = [number * INTERVAL_SECONDS for number in range(len(values))]
        axes.fill_between(times, values, step="post", color=colour, alpha=0.2, linewidth=0)
        axes.step(times, values, where="post", label=name, color=colour, linewidth=1.2)
    axes.set_title("Three brokers, three replicas, two kills and a restart", fontsize=10, loc="left")
    axes.set_ylabel("records/s")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, frameon=False)
    top = axes.get_ylim()[1]
    for moment, what in run.faults:
        axes.axvline(moment, color=RED, linestyle="--", linewidth=1)
        axes.text(moment, top * 0.97, f" {what}", color=RED, fontsize=8, rotation=90, va="top", ha="right")


def _draw_in_sync(axes: Any, run: ClusterRun) -> None:
    moments = [*(moment for moment, _ in run.in_sync), run.seconds]
    sizes = [*(size for _, size in run.in_sync), run.in_sync[-1][1] if run.in_sync else 0]
    axes.fill_between(moments, sizes, color=GREY, alpha=0.35, step="post")
    axes.set_ylabel("replicas\nin sync")
    axes.set_xlabel("seconds since the start")
    axes.set_xlim(0, run.seconds)
    axes.set_ylim(bottom=0)
    for moment, _ in run.faults:
        axes.axvline(moment, color=RED, linestyle="--", linewidth=1)
