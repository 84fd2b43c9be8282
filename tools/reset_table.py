"""The table of `group reset-offsets`: the partitions of an example, and the offsets that each scenario must set.

tests/cli/groups/test_reset_offsets.py creates the partitions on a broker, and runs every scenario in every scope and mode. tools/docs.py
makes docs/reference/resets.md from the same table, so everything on that page is tested.
"""

from __future__ import annotations

from typing import NamedTuple

STARTED_MS = 1_600_000_000_000
"""2020-09-13T12:26:40Z. The record at offset N has a timestamp N seconds later."""


class Partition(NamedTuple):
    """A partition of the example; records before `start` have been deleted."""

    name: str
    start: int
    end: int
    committed: int | None
    other: int | None


PARTITIONS = (
    Partition("orders-0", 3, 10, 6, 4),
    Partition("orders-1", 0, 5, 5, None),
    Partition("orders-2", 0, 0, None, None),
    Partition("bills-0", 0, 4, 1, 3),
)

Offsets = tuple[int | None, int | None, int | None, int | None]


class Row(NamedTuple):
    """A scenario with the new offsets of the four partitions, for the group with commits and for one without; None is an error."""

    scenario: str
    committed: Offsets
    new: Offsets
    warns: tuple[int, ...] = ()
    """The partitions that get a warning."""


ROWS = (
    Row("--to-earliest", (3, 0, 0, 0), (3, 0, 0, 0)),
    Row("--to-latest", (10, 5, 0, 4), (10, 5, 0, 4)),
    Row("--to-current", (6, 5, 0, 1), (10, 5, 0, 4)),
    Row("--to-offset 4", (4, 4, 0, 4), (4, 4, 0, 4), warns=(2,)),
    Row("--to-offset 1", (3, 1, 0, 1), (3, 1, 0, 1), warns=(0, 2)),
    Row("--shift-by 2", (8, 5, None, 3), (None, None, None, None), warns=(1,)),
    Row("--shift-by -5", (3, 0, None, 0), (None, None, None, None), warns=(0, 3)),
    Row("--to-datetime 2020-09-13T12:26:45.000", (5, 5, 0, 4), (5, 5, 0, 4), warns=(1, 2, 3)),
    Row("--to-datetime 2020-09-13T14:26:42.500+02:00", (3, 3, 0, 3), (3, 3, 0, 3), warns=(2,)),
    Row("--by-duration P9000D", (3, 0, 0, 0), (3, 0, 0, 0), warns=(2,)),
    Row("--by-duration PT1S", (10, 5, 0, 4), (10, 5, 0, 4), warns=(0, 1, 2, 3)),
    Row("--from-file FILE", (4, 5, 0, 2), (4, 5, 0, 2), warns=(1,)),
    Row("--to-group OTHER", (4, None, None, 3), (4, None, None, 3)),
)

FILE = (("orders", 0, 4), ("orders", 1, 99), ("orders", 2, 0), ("bills", 0, 2))
"""The lines of the file for `--from-file`: topic, partition, offset."""

SCOPES: dict[str, tuple[int, ...]] = {
    "--all-topics": (0, 1, 3),
    "--topic orders": (0, 1, 2),
    "--topic orders:0,2": (0, 2),
    "--topic orders:1 --topic bills": (1, 3),
}
"""The partitions of each scope; `--all-topics` means the partitions with a committed offset of the group."""

MODES = ("", "--dry-run", "--execute", "--export", "--execute --export")


def page_lines() -> list[str]:
    """Returns the lines of the page docs/reference/resets.md."""
    names = [partition.name for partition in PARTITIONS]
    lines = [
        "Four partitions, whose record at offset N was made N seconds after 2020-09-13T12:26:40Z, and what each scenario makes of them.",
        "",
        "| | " + " | ".join(f"`{name}`" for name in names) + " |",
        "| --- |" + " --- |" * len(names),
    ]
    for title, values in (
        ("log start offset", [partition.start for partition in PARTITIONS]),
        ("log end offset", [partition.end for partition in PARTITIONS]),
        ("committed", [partition.committed for partition in PARTITIONS]),
        ("committed by OTHER", [partition.other for partition in PARTITIONS]),
        ("in FILE", [offset for _, _, offset in FILE]),
    ):
        lines.append(f"| {title} | " + " | ".join("-" if value is None else str(value) for value in values) + " |")
    lines += ["", "The new offsets. `!` marks a warning, `-` a partition that the scenario does not reach; `error` means that a reset"]
    lines += ["whose scope has this partition is refused, and nothing changes."]
    heads = ["| Scenario | " + " | ".join(f"`{name}`" for name in names) + " |", "| --- |" + " --- |" * len(names)]
    lines += ["", "## A group with commits", "", *heads, *(_line(row, row.committed) for row in ROWS)]
    lines += ["", "## A group without", "", *heads, *(_line(row, row.new) for row in ROWS)]
    lines += ["", "## Scopes", "", "| Scope | Partitions |", "| --- | --- |"]
    lines += [f"| `{scope}` | {', '.join(f'`{names[number]}`' for number in reached)} |" for scope, reached in SCOPES.items()]
    lines += ["| none, with `--from-file` | those that the file names |", "", "## Modes", "", "| Mode | Effect |", "| --- | --- |"]
    lines += [
        "| none, `--dry-run` | the plan is shown, nothing changes |",
        "| `--execute` | the plan is shown and committed |",
        "| `--export` | the plan as lines for `--from-file`, alone or with `--execute` |",
    ]
    return lines


def _line(row: Row, offsets: Offsets) -> str:
    return f"| `{row.scenario}` | " + " | ".join(_cell(row, number, offsets) for number in range(len(offsets))) + " |"


def _cell(row: Row, number: int, offsets: Offsets) -> str:
    value = offsets[number]
    if value is None:
        return "-" if row.scenario.startswith("--to-group") else "error"
    return f"{value} !" if number in row.warns else str(value)
