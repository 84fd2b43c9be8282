"""Declares and prints rows, the results of commands: as a table for people; as json, jsonl, yaml, csv or plain for programs.

A row class declares each field once, with its column in tables and its key in JSON:

    class GroupRow(Row):
        group: str                                 # column GROUP, key "group"
        member_count: int = column("#MEMBERS")     # a title of its own
        instance_id: str | None = json_only()      # not in tables
        epoch: int | None = column(wide=True)      # in tables only with --verbose or its like

A row is made with positional or named values; a field with `default` may be left out. json and yaml print one object, `{name: rows}`; jsonl
prints one object for each row; csv and plain print one line for each row. Notes and errors are printed on stderr. In the structured forms
(json, jsonl and yaml) an error is an object, `{"error": {"name": ..., "message": ...}}`, in other forms one line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

from ottla.base.errors import ApiError
from ottla.cli.output import one_line, wants_colour, write, write_error

_REQUIRED = object()
R = TypeVar("R", bound="Row")


class Column(NamedTuple):
    """A field of a row: its key, its title in tables (None: no column), and the outputs that show it."""

    key: str
    title: str | None
    default: Any = _REQUIRED
    is_wide: bool = False
    is_in_json: bool = True
    width_max: int | None = None


def column(title: str = "", *, default: Any = _REQUIRED, wide: bool = False, width_max: int | None = None) -> Any:
    """Declares a column with a title of its own, for wide tables only, or with a maximum width. A longer cell continues in the next lines;
    only a single word may be longer."""
    return Column("", title, default, wide, True, width_max)


def json_only(*, default: Any = _REQUIRED) -> Any:
    """Declares a field that JSON shows and tables do not."""
    return Column("", None, default)


def unshown(*, default: Any = _REQUIRED) -> Any:
    """Declares a field that neither tables nor JSON show. Printers of Kafka's output or later steps of the command use it."""
    return Column("", None, default, is_in_json=False)


def dashed(key: str) -> str:
    return key.upper().replace("_", "-")


def spaced(key: str) -> str:
    return key.upper().replace("_", " ")


def joined(key: str) -> str:
    """Returns a field's title in the style of kafka-transactions: `CurrentOffset`."""
    return key.title().replace("_", "")


@dataclass_transform(field_specifiers=(column, json_only, unshown))
class Row:
    columns: ClassVar[tuple[Column, ...]] = ()

    def __init_subclass__(cls, titles: Callable[[str], str] = dashed) -> None:
        """Collects the fields of the class. `titles` returns the title of a field without an explicit title."""
        found = {one.key: one for one in cls.columns}
        for key, annotation in vars(cls).get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            given = cls.__dict__.get(key, _REQUIRED)
            declared = given if isinstance(given, Column) else Column(key, "", given)
            title = titles(key) if declared.title == "" else declared.title
            found[key] = declared._replace(key=key, title=title)
        cls.columns = tuple(found.values())

    def __init__(self, *values: Any, **named: Any) -> None:
        assert len(values) <= len(self.columns), f"{type(self).__name__} has no field for {values[len(self.columns) :]}"
        fields = self.__dict__
        for one, value in zip(self.columns, values, strict=False):
            fields[one.key] = value
        fields.update(named)
        for one in self.columns:
            if one.key not in fields:
                assert one.default is not _REQUIRED, f"{type(self).__name__} lacks {one.key}"
                fields[one.key] = one.default
        assert len(fields) == len(self.columns), f"{type(self).__name__} has no such fields: {sorted(fields)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def as_json(self, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Returns the row as a JSON object, and rows inside it as objects. `without` are keys to leave out."""
        return {one.key: _plain(self.__dict__[one.key]) for one in self.columns if one.is_in_json and one.key not in without}

    def changed(self: R, **values: Any) -> R:
        return type(self)(**{**self.__dict__, **values})


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_json()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return {key: _plain(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def titled(kind: type[Row], *, is_wide: bool = False) -> list[Column]:
    return [one for one in kind.columns if one.title is not None and (is_wide or not one.is_wide)]


ERROR_LETTERS_MAX = 1_000
"""Maximum characters of an error message outside of structured forms. Longer messages are cut, because they quote text that was pasted into
an option."""

_BOLD = "\x1b[1m"
_RED = "\x1b[31m"


class Output:
    """The output of a command, in one form."""

    has_summary = True
    """Whether a command prints a summary at its end."""

    def __init__(self, form: str = "table", *, is_quiet: bool = False, is_verbose: bool = False, has_colour: bool = False) -> None:
        self.form = form
        self.is_quiet = is_quiet
        self.is_verbose = is_verbose
        self.has_colour = has_colour

    @property
    def is_structured(self) -> bool:
        return self.form in ("json", "jsonl", "yaml")

    @property
    def has_objects(self) -> bool:
        """Whether a command prints nested rows as one object. Otherwise it prints one table for each level."""
        return self.is_structured

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
        """Prints rows of one class. json and yaml have them as member `name` of an object, with `extra` as further members. With
        `has_heading` csv begins with a line of titles.
        """
        columns = titled(kind, is_wide=is_wide)
        if self.is_structured:
            self.objects(name, [row.as_json() for row in rows], extra=extra)
        elif self.form == "table":
            heading, end, lines = table(columns, rows).partition("\n")
            write(heading, _BOLD if self.has_colour else "")
            write(end + lines)
        else:
            write(separated(columns, rows, self.form, has_heading=has_heading))

    def objects(self, name: str, objects: Sequence[Mapping[str, Any]], *, extra: Mapping[str, Any] | None = None) -> None:
        """Prints objects in a structured form: jsonl one a line, json and yaml as member `name` of one object, with `extra`."""
        if self.form == "jsonl":
            write("".join(_json(value, indent=None) + "\n" for value in objects))
        else:
            self.show_object({name: list(objects), **(extra or {})})

    def show_object(self, value: Mapping[str, Any]) -> None:
        """Prints one object: in structured forms as it is, in other forms as a table of names and values."""
        if self.form == "json":
            write(_json(value, indent=2) + "\n")
        elif self.form == "jsonl":
            write(_json(value, indent=None) + "\n")
        elif self.form == "yaml":
            write(yaml(value))
        else:
            rows = [_Named(key, found) for key, found in value.items()]
            write(table(_Named.columns, rows) if self.form == "table" else separated(_Named.columns, rows, self.form))

    def report(self, step: object) -> None:
        """Reports a step of the work. Does nothing here, because the result contains it; Kafka's tools print some steps."""

    def refused(self, error: ApiError) -> None:
        """Called if the broker refuses a part of the request: raises the error, which ends the command."""
        raise error

    def explain_input(self, text: str) -> None:
        write_error(text)

    def prompt(self) -> None:
        write_error("> ")
        sys.stderr.flush()

    def verdict(self, is_fine: bool) -> int:
        """Returns the exit code of a check: 1 if it has found a problem, else 0."""
        return 0 if is_fine else 1

    def done(self, message: str, value: Mapping[str, Any]) -> None:
        """Prints that a command is done: an object in structured forms, else a sentence, unless `-q`."""
        if self.is_structured:
            self.show_object(value)
        elif not self.is_quiet:
            write(message + "\n")

    def note(self, message: str) -> None:
        """Prints a remark on stderr, unless `-q`."""
        if not self.is_quiet:
            write_error(message + "\n")

    def detail(self, message: str) -> None:
        """Prints a remark on stderr with `-v`."""
        if self.is_verbose:
            write_error(message + "\n")

    def error(self, message: str, name: str = "") -> None:
        """Prints an error on stderr: an object in structured forms, else one line."""
        if self.is_structured:
            write_error(_json({"error": {"name": name, "message": message}}, indent=None) + "\n")
            return
        line = " ".join(message.split())
        write_error("error", _RED if self.has_colour and wants_colour(sys.stderr) else "")
        write_error(": " + (line if len(line) <= ERROR_LETTERS_MAX else line[:ERROR_LETTERS_MAX] + " ...") + "\n")


def _json(value: object, indent: int | None) -> str:
    import json

    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)


def cell(value: object) -> str:
    """Returns a value as text for a cell, with line ends and tabs as escapes. None and empty values are `-`, lists have commas."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(cell(part) for part in value) or "-"
    if isinstance(value, Mapping):
        return ",".join(one_line(f"{key}={part}") for key, part in value.items()) or "-"
    return one_line(str(value))


class _Named(Row):
    """A row with the name and value of an object's member."""

    name: str
    value: Any


def table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Returns a table. Columns are as wide as their widest cell, columns of numbers are aligned right, and no line ends in spaces."""
    cells = [line for row in rows for line in _lines(row, columns)]
    titles = [str(one.title) for one in columns]
    widths = [max([len(title), *(len(line[n]) for line in cells)]) for n, title in enumerate(titles)]
    values = [[vars(row)[one.key] for row in rows] for one in columns]
    is_number = [bool(rows) and all(isinstance(value, int | float) or value is None for value in found) for found in values]

    def line(texts: Sequence[str]) -> str:
        parts = [text.rjust(width) if right else text.ljust(width) for text, width, right in zip(texts, widths, is_number, strict=True)]
        return "  ".join(parts).rstrip()

    return "\n".join([line(titles), *map(line, cells)]) + "\n"


def _lines(row: Row, columns: Sequence[Column]) -> list[tuple[str, ...]]:
    """Returns the lines of a row in a table: one, or more if a cell is longer than the maximum width of its column.
    A longer word is not broken."""
    texts = [(cell(vars(row)[one.key]), one.width_max) for one in columns]
    if all(width is None or len(text) <= width for text, width in texts):
        return [tuple(text for text, _ in texts)]
    from itertools import zip_longest
    from textwrap import wrap

    parts = [[text] if width is None else wrap(text, width, break_long_words=False, break_on_hyphens=False) for text, width in texts]
    return list(zip_longest(*parts, fillvalue=""))


def separated(columns: Sequence[Column], rows: Sequence[Row], form: str, *, has_heading: bool = True) -> str:
    """Returns csv, by default with a heading, or for the form `plain` lines with tabs between cells and no heading, for shell scripts."""
    values = [[vars(row)[one.key] for one in columns] for row in rows]
    if form == "plain":
        return "".join("\t".join(map(cell, found)) + "\n" for found in values)
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if has_heading:
        writer.writerow([one.title for one in columns])
    writer.writerows(["" if value is None else cell(value) for value in found] for found in values)
    return buffer.getvalue()


def yaml(value: object, indent: int = 0) -> str:
    """Returns mappings, lists and scalars as YAML. Scalars are written as JSON, which is valid YAML."""
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
