"""The output of a Kafka tool whose line runs as a command of ours: rows and steps are printed as Kafka prints them.

A tool brings a table of printers by the class of the rows or of the step (`kafka_tools/`). Rows without a printer become a table with tabs,
as some of Kafka's tools print it. Forms other than a table (`-o json`) are the same as ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.base.errors import ApiError
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, cell
from ottla.cli.render.rows import Row, titled

Printers = Mapping[type, Callable[[Any], None]]
"""A printer gets the list of the rows of one answer, or a single step."""


def print_nothing(_: object) -> None:
    """The printer of rows that the steps before have shown."""


class KafkaOutput(Output):
    """Prints as the tools of Kafka do. They have no prompt on stderr, no summary, and no exit code for what a check finds."""

    has_summary = False

    def __init__(self, printers: Printers, form: str, *, is_quiet: bool = False, is_verbose: bool = False) -> None:
        super().__init__(form, is_quiet=is_quiet, is_verbose=is_verbose)
        self.printers = printers

    @property
    def has_objects(self) -> bool:
        return True

    def rows(
        self, name: str, kind: type[Row], rows: Sequence[Row], *, is_wide: bool = False, extra: Mapping[str, Any] | None = None
    ) -> None:
        if kind in self.printers:
            self.printers[kind](rows)
        elif self.form == "table":
            write(tabbed(kind, rows))
        else:
            super().rows(name, kind, rows, is_wide=is_wide, extra=extra)

    def report(self, step: object) -> None:
        if type(step) in self.printers:
            self.printers[type(step)](step)

    def refused(self, error: ApiError) -> None:
        """Is shown among the results."""

    def explain_input(self, text: str) -> None:
        """Is not in the output of Kafka's tool."""

    def prompt(self) -> None:
        write(">")
        sys.stdout.flush()

    def verdict(self, is_fine: bool) -> int:
        return 0


def tabbed(kind: type[Row], rows: Sequence[Row]) -> str:
    """A table as some of Kafka's tools print it: padded cells, each followed by a tab; a missing value is `None`."""
    columns = titled(kind)
    found = [[vars(row)[one.key] for one in columns] for row in rows]
    texts = [["None" if value is None else "" if value in ("", [], ()) else cell(value) for value in values] for values in found]
    cells = [[str(one.title) for one in columns], *texts]
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    return "".join("".join(f"{text.ljust(width)}\t" for text, width in zip(line, widths, strict=True)) + "\n" for line in cells)
