"""Draws the picture of the pipeline's demo: delay by hour of the day, throughput, lag, and the kills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INTERVALS = 50
"""Number of intervals of the throughput, for a run of any length."""

BLUE, ORANGE, RED, GREY = "#3465a4", "#e08a1e", "#cc2222", "#666666"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The data of the picture. Times are seconds since the start of the run. `delays` has the mean delay in minutes by hour of the day,
    `commits` has (time, rows read) of each committed batch of each pipeline, `lag` has (time, records) of the first pipeline, `kills` has
    (time, what).
    """

    delays: dict[int, float]
    commits: dict[str, list[tuple[float, int]]]
    lag: list[tuple[float, int]]
    kills: list[tuple[float, str]]
    seconds: float


def throughput(commits: Sequence[tuple[float, int]], seconds: float, bin_seconds: float) -> list[float]:
    """Returns the rows per second in each interval of the run."""
    bins = [0.0] * (int(seconds / bin_seconds) + 1)
    for moment, rows in commits:
        bins[min(len(bins) - 1, max(0, int(moment / bin_seconds)))] += rows / bin_seconds
    return bins


def draw(run: Run, path: Path) -> None:
    """Writes the picture as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(12, 5), dpi=110, layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1, 2.1))
    _draw_delays(figure.add_subplot(grid[:, 0]), run)
    upper = figure.add_subplot(grid[0, 1])
    _draw_throughput(upper, run)
    _draw_lag(figure.add_subplot(grid[1, 1], sharex=upper), run)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _draw_delays(axes: Any, run: Run) -> None:
    hours = sorted(run.delays)
    axes.bar(hours, [run.delays[hour] for hour in hours], color=BLUE)
    axes.set_title("Mean departure delay by hour, NYC 2013", fontsize=10)
    axes.set_xlabel("scheduled hour of departure")
    axes.set_ylabel("minutes")


def _draw_throughput(axes: Any, run: Run) -> None:
    bin_seconds = run.seconds / INTERVALS
    for (name, commits), colour in zip(run.commits.items(), (BLUE, ORANGE), strict=False):
        rates = throughput(commits, run.seconds, bin_seconds)
        times = [number * bin_seconds for number in range(len(rates))]
        axes.fill_between(times, rates, step="post", color=colour, alpha=0.25, linewidth=0)
        axes.step(times, rates, where="post", label=name, color=colour, linewidth=1.2)
    axes.set_title("Exactly once, with kill -9 on the way", fontsize=10, loc="left")
    axes.set_ylabel("rows/s read and committed")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, frameon=False)
    axes.tick_params(labelbottom=False)
    top = axes.get_ylim()[1]
    for moment, what in run.kills:
        axes.axvline(moment, color=RED, linestyle="--", linewidth=1)
        axes.text(moment, top * 0.97, f" {what}", color=RED, fontsize=8, rotation=90, va="top", ha="right")


def _draw_lag(axes: Any, run: Run) -> None:
    axes.fill_between([moment for moment, _ in run.lag], [lag for _, lag in run.lag], color=GREY, alpha=0.35, step="post")
    axes.set_ylabel("lag of the first pipeline\n(flights)")
    axes.set_xlabel("seconds since the start")
    axes.set_xlim(0, run.seconds)
    axes.set_ylim(bottom=0)
    for moment, _ in run.kills:
        axes.axvline(moment, color=RED, linestyle="--", linewidth=1)
