"""Draws a sample of a cluster (`Look`) with rich: a head line, and tables that share the lines of the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ottla.analysis.sample import Look
from ottla.cli.output import one_line, shown

HEAD_LINES = 3
TABLE_LINES = 3
"""Lines of a table besides its rows: a title, the headings, and an empty line."""
VIEWS = ("all", "topics", "groups", "transactions", "requests", "clients")
KEYS = {"a": "all", "t": "topics", "g": "groups", "x": "transactions", "r": "requests", "c": "clients"}


def draw(sample: Look, view: str, height: int) -> RenderableType:
    """Returns the view of a sample for a terminal with `height` lines. `view` is `all`, or the only table to draw. `all` includes clients
    only if some clients push metrics.
    """
    names = (view,) if view != "all" else VIEWS[1:] if sample.clients else VIEWS[1:-1]
    wanted = [len(rows) for rows in (sample.topics, sample.groups, sample.transactions, sample.requests or (), sample.clients)]
    lines = shared_lines([wanted[VIEWS.index(name) - 1] for name in names], height - HEAD_LINES - TABLE_LINES * len(names))
    tables = (_table(sample, name, count) for name, count in zip(names, lines, strict=True))
    return Group(_head(sample), Text(), *(part for table in tables for part in (table, Text())))


def shared_lines(wanted: Sequence[int], lines: int) -> list[int]:
    """Distributes `lines` among tables with these numbers of rows. Each table gets at least one line; lines that a table does not need are
    given to other tables.
    """
    shares = [1] * len(wanted)
    for left, place in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        shares[place] = max(1, min(wanted[place], lines // (len(wanted) - left)))
        lines -= shares[place]
    return shares


def _head(sample: Look) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    is_well = not sample.leaderless and not sample.out_of_sync
    text.append("healthy" if is_well else "TROUBLE", style="bold green" if is_well else "bold red")
    for count, what in ((sample.leaderless, "without leader"), (sample.out_of_sync, "out of sync")):
        if count:
            text.append(f"  {count} {what}", style="red")
    text.append(f"  cluster {shown(one_line(sample.cluster_id))}  brokers {sample.brokers}  controller {sample.controller}")
    text.append(f"  topics {len(sample.topics)}")
    text.append(f"  partitions {sample.partitions}")
    text.append("\nq quit, a all, t topics, g groups, x transactions, r requests, c clients", style="dim")
    return text


def _table(sample: Look, name: str, lines: int) -> RenderableType:
    rows: list[Sequence[Any]]
    if name == "topics":
        rows = [(row.name, row.partitions, row.out_of_sync or "", number(row.rate), f"{row.end:,}") for row in sample.topics]
        return _grid(f"Topics {len(rows)}", ("TOPIC", "PARTITIONS", "OUT OF SYNC", "RECORDS/S", "END OFFSETS"), rows, lines)
    if name == "groups":
        rows = [(row.name, row.state, row.partitions, f"{row.lag:,}", number(row.change, is_signed=True)) for row in sample.groups]
        return _grid(f"Groups {sample.group_count}", ("GROUP", "STATE", "PARTITIONS", "LAG", "LAG/S"), rows, lines)
    if name == "transactions":
        rows = [(row.name, row.state, row.partitions, seconds(row.age_ms), row.client) for row in sample.transactions]
        return _grid(f"Open transactions {len(rows)}", ("TRANSACTIONAL ID", "STATE", "PARTITIONS", "AGE", "CLIENT"), rows, lines)
    if name == "clients":
        title = f"Clients that push metrics {len(sample.clients)}"
        return _grid(title, ("CLIENT", "SOFTWARE", "VERSION", "ADDRESS"), sample.clients, lines)
    if sample.requests is None:
        return Text(f"Requests: {shown(sample.note)}", style="dim")
    rows = [(row.name, number(row.rate), "-" if row.p99_ms is None else f"{row.p99_ms:.1f}") for row in sample.requests]
    return _grid("Requests", ("REQUEST", "/S", "P99 MS"), rows, lines)


def _grid(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], lines: int) -> Table:
    more = f", the first {lines}" if len(rows) > lines else ""
    table = Table(title=title + more, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        is_text = place == 0 or heading in ("STATE", "CLIENT", "SOFTWARE", "VERSION", "ADDRESS")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis", header_style="dim")
    for row in rows[:lines]:
        table.add_row(*(Text(shown(one_line(str(cell)))) for cell in row))
    return table


def number(value: float | None, *, is_signed: bool = False) -> str:
    """Returns a rate as text, with one decimal below 10; `-` for None. `is_signed` adds a plus sign to positive rates."""
    if value is None:
        return "-"
    sign = "+" if is_signed and value > 0 else ""
    return f"{sign}{value:,.0f}" if abs(value) >= 10 or value == 0 else f"{sign}{value:.1f}"


def seconds(age_ms: int | None) -> str:
    return "-" if age_ms is None else f"{age_ms / 1000:,.1f} s"
