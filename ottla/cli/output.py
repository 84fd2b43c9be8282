"""How results are shown: a table for people, JSON and its kin for programs. Data goes to stdout, everything else to stderr.

`Output.show` takes rows (dictionaries whose keys are the JSON contract) and columns (heading and key). JSON is one object, `{name: rows}`;
jsonl one object a row; csv and plain one line a row. An error is one line on stderr, for the structured forms an object:
`{"error": {"name": ..., "message": ...}}`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from ottla.cli.terminal import one_line, shown

ERROR_LETTERS_MAX = 1_000
"""Longer error messages are cut: they quote what was pasted into an option."""

Row = Mapping[str, Any]
Columns = Sequence[tuple[str, str]]

_BOLD = "\x1b[1m"
_RED = "\x1b[31m"
_RESET = "\x1b[0m"


class Output:
    """Where and how a command prints."""

    def __init__(
        self, form: str = "table", *, is_quiet: bool = False, is_verbose: bool = False, has_colour: bool = False, is_tabbed: bool = False
    ) -> None:
        self.form = form
        self.is_quiet = is_quiet
        self.is_verbose = is_verbose
        self.has_colour = has_colour
        self.is_tabbed = is_tabbed

    @property
    def is_structured(self) -> bool:
        return self.form in ("json", "jsonl", "yaml")

    def show(
        self, name: str, rows: Sequence[Row], columns: Columns, *, extra: Row | None = None, widths_max: Mapping[str, int] | None = None
    ) -> None:
        """Rows under a name; `extra` are further members of the one JSON object.

        `widths_max`: columns of a table that hold sentences, and their width; longer cells go on in further lines.
        """
        if self.form == "table" and self.is_tabbed:
            write(tabbed(rows, columns))
        elif self.form == "table":
            heading, end, lines = table(rows, columns, widths_max=widths_max).partition("\n")
            write(heading, _BOLD if self.has_colour else "")
            write(end + lines)
        elif self.form in ("csv", "plain"):
            write(separated(rows, columns, self.form))
        elif self.form == "jsonl":
            write("".join(_json(row, indent=None) + "\n" for row in rows))
        else:
            self.show_object({name: list(rows), **(extra or {})})

    def show_object(self, value: Row) -> None:
        """One object, for the structured forms; the others get it as a table of names and values."""
        if self.form == "json":
            write(_json(value, indent=2) + "\n")
        elif self.form == "jsonl":
            write(_json(value, indent=None) + "\n")
        elif self.form == "yaml":
            write(yaml(value))
        else:
            rows = [{"name": key, "value": found} for key, found in value.items()]
            columns = (("NAME", "name"), ("VALUE", "value"))
            write(table(rows, columns) if self.form == "table" else separated(rows, columns, self.form))

    def done(self, message: str, value: Row) -> None:
        """Prints that a command is done: a sentence for people, an object for programs."""
        if self.is_structured:
            self.show_object(value)
        elif not self.is_quiet:
            write(message + "\n")

    def note(self, message: str) -> None:
        """A remark on stderr, unless -q."""
        if not self.is_quiet:
            write_error(message + "\n")

    def detail(self, message: str) -> None:
        """A remark on stderr with -v."""
        if self.is_verbose:
            write_error(message + "\n")

    def error(self, message: str, name: str = "") -> None:
        """Prints an error: one line on stderr, an object where an object was asked for."""
        if self.is_structured:
            write_error(_json({"error": {"name": name, "message": message}}, indent=None) + "\n")
            return
        line = " ".join(message.split())
        write_error("error", _RED if self.has_colour and wants_colour(sys.stderr) else "")
        write_error(": " + (line if len(line) <= ERROR_LETTERS_MAX else line[:ERROR_LETTERS_MAX] + " ...") + "\n")


def wants_colour(stream: TextIO, *, is_forbidden: bool = False) -> bool:
    """Colour only for a terminal that can show it, or where FORCE_COLOR asks for it, and never against NO_COLOR."""
    if is_forbidden or os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "") not in ("", "0") or (os.environ.get("TERM") != "dumb" and stream.isatty())


def write(text: str, colour: str = "") -> None:
    """On stdout; `colour` is one of ours, the text may be of others."""
    _write(sys.stdout, text, colour)


def write_error(text: str, colour: str = "") -> None:
    """The same on stderr."""
    _write(sys.stderr, text, colour)


def _write(stream: TextIO, text: str, colour: str) -> None:
    shown_text = shown(text) if stream.isatty() else text
    stream.write(f"{colour}{shown_text}{_RESET}" if colour else shown_text)


def _json(value: object, indent: int | None) -> str:
    import json

    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)


def cell(value: object) -> str:
    """A value as text in a table, without line ends and tabs: None is `-`, lists are joined by commas."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(cell(part) for part in value) or "-"
    if isinstance(value, Mapping):
        return ",".join(one_line(f"{key}={part}") for key, part in value.items()) or "-"
    return one_line(str(value))


def table(rows: Sequence[Row], columns: Columns, *, widths_max: Mapping[str, int] | None = None) -> str:
    """A table whose columns are as wide as their widest cell; numbers are aligned right, and no line ends in spaces."""
    cells = [line for row in rows for line in _lines(row, columns, widths_max or {})]
    widths = [max([len(title), *(len(line[n]) for line in cells)]) for n, (title, _) in enumerate(columns)]
    is_number = [bool(rows) and all(isinstance(row.get(key), int | float) or row.get(key) is None for row in rows) for _, key in columns]

    def line(values: Sequence[str]) -> str:
        parts = [value.rjust(width) if right else value.ljust(width) for value, width, right in zip(values, widths, is_number, strict=True)]
        return "  ".join(parts).rstrip()

    lines = [line([title for title, _ in columns]), *map(line, cells)]
    return "\n".join(lines) + "\n"


def _lines(row: Row, columns: Columns, widths_max: Mapping[str, int]) -> list[tuple[str, ...]]:
    """The lines that a row takes in a table: one, unless a cell is longer than its column may be wide."""
    texts = [cell(row.get(key)) for _, key in columns]
    if not any(key in widths_max and len(text) > widths_max[key] for text, (_, key) in zip(texts, columns, strict=True)):
        return [tuple(texts)]
    from itertools import zip_longest
    from textwrap import wrap

    parts = [
        wrap(text, widths_max[key], break_long_words=False, break_on_hyphens=False) if key in widths_max else [text]
        for text, (_, key) in zip(texts, columns, strict=True)
    ]
    return list(zip_longest(*parts, fillvalue=""))


def tabbed(rows: Sequence[Row], columns: Columns) -> str:
    """A table as some of Kafka's tools print it: padded cells, each followed by a tab; a missing value is `None`."""
    found = [[row.get(key) for _, key in columns] for row in rows]
    texts = [["None" if value is None else "" if value in ("", [], ()) else cell(value) for value in values] for values in found]
    cells = [[title for title, _ in columns], *texts]
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    return "".join("".join(f"{text.ljust(width)}\t" for text, width in zip(line, widths, strict=True)) + "\n" for line in cells)


def separated(rows: Sequence[Row], columns: Columns, form: str) -> str:
    """csv with a heading, or plain: cells between tabs and no heading, for shell scripts."""
    if form == "plain":
        return "".join("\t".join(cell(row.get(key)) for _, key in columns) + "\n" for row in rows)
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([title for title, _ in columns])
    for row in rows:
        writer.writerow(["" if row.get(key) is None else cell(row.get(key)) for _, key in columns])
    return buffer.getvalue()


def yaml(value: object, indent: int = 0) -> str:
    """YAML for our values: mappings, lists, and scalars as JSON writes them (which is YAML too)."""
    pad = "  " * indent
    if isinstance(value, Mapping) and value:
        lines = []
        for key, part in value.items():
            is_nested = isinstance(part, Mapping | list | tuple) and len(part) > 0
            lines.append(f"{pad}{key}:\n{yaml(part, indent + 1)}" if is_nested else f"{pad}{key}: {_json(part, None)}\n")
        return "".join(lines)
    if isinstance(value, list | tuple) and value:
        lines = []
        for part in value:
            lines.append(f"{pad}- {yaml(part, indent + 1)[len(pad) + 2 :]}")
        return "".join(lines)
    return f"{pad}{_json(value, None)}\n"
