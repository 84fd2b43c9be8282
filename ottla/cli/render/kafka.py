"""Prints the results of a command line that was translated from a Kafka tool, as this tool prints them. The modules in `kafka_tools/` have
a printer for each class of rows or steps. A printer is used whatever `-o` says. Rows without a printer become a table with tabs, as some of
Kafka's tools print it, or our own form for another `-o`, such as json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.base.errors import ApiError
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row, cell, titled

Printers = Mapping[type, Callable[[Any], None]]
"""Printers by class of rows or step. A printer's argument is the list of all rows of an answer, or one step."""


def print_nothing(_: object) -> None:
    """Prints nothing: for rows that repeat what the printers of earlier steps or rows have printed."""


class KafkaOutput(Output):
    """Prints as Kafka's tools do: the prompt on stdout, no summary at the end, and exit code 0 even if a check has found a problem."""

    has_summary = False

    def __init__(self, printers: Printers, form: str, *, is_quiet: bool = False, is_verbose: bool = False) -> None:
        super().__init__(form, is_quiet=is_quiet, is_verbose=is_verbose)
        self.printers = printers

    @property
    def has_objects(self) -> bool:
        return True

    def rows(
        self,
        name: str,
        kind: type[Row],
        rows: Sequence[Row],
        *,
        is_wide: bool = False,
        has_heading: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if kind in self.printers:
            self.printers[kind](rows)
        elif self.form == "table":
            write(tabbed(kind, rows))
        else:
            super().rows(name, kind, rows, is_wide=is_wide, has_heading=has_heading, extra=extra)

    def report(self, step: object) -> None:
        if type(step) in self.printers:
            self.printers[type(step)](step)

    def refused(self, error: ApiError) -> None:
        """Does nothing, because the results include the refusal. The command continues."""

    def explain_input(self, text: str) -> None:
        """Does nothing, because Kafka's tool prints no explanation."""

    def prompt(self) -> None:
        write(">")
        sys.stdout.flush()

    def verdict(self, is_fine: bool) -> int:
        return 0


def tabbed(kind: type[Row], rows: Sequence[Row]) -> str:
    """Returns a table as some of Kafka's tools print it: padded cells, each followed by a tab; `None` for a missing value."""
    columns = titled(kind)
    found = [[vars(row)[one.key] for one in columns] for row in rows]
    texts = [["None" if value is None else "" if value in ("", [], ()) else cell(value) for value in values] for values in found]
    cells = [[str(one.title) for one in columns], *texts]
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    return "".join("".join(f"{text.ljust(width)}\t" for text, width in zip(line, widths, strict=True)) + "\n" for line in cells)
