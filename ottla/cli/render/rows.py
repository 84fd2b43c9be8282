"""Rows are the results of commands. A row class declares each field once, with its column in tables and its key in JSON.

    class GroupRow(Row):
        group: str                                 # column GROUP, key "group"
        member_count: int = column("#MEMBERS")     # a title of its own
        instance_id: str | None = json_only()      # not in tables
        epoch: int | None = column(wide=True)      # in tables only with --verbose or its like

A row is made with positional or named values. A field with `default` may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

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
    """Declares a column with a title of its own, for wide tables only, or with a maximum width: longer cells continue in the next lines."""
    return Column("", title, default, wide, True, width_max)


def json_only(*, default: Any = _REQUIRED) -> Any:
    """Declares a field that JSON shows and tables do not."""
    return Column("", None, default)


def unshown(*, default: Any = _REQUIRED) -> Any:
    """Declares a field that neither tables nor JSON show. Printers of Kafka's output or later steps of the command use it."""
    return Column("", None, default, is_in_json=False)


def dashed(key: str) -> str:
    """Returns a field's title in the style of most tables: `CURRENT-OFFSET`."""
    return key.upper().replace("_", "-")


def spaced(key: str) -> str:
    """Returns a field's title in capitals with spaces: `CURRENT OFFSET`."""
    return key.upper().replace("_", " ")


def joined(key: str) -> str:
    """Returns a field's title in the style of kafka-transactions: `CurrentOffset`."""
    return key.title().replace("_", "")


@dataclass_transform(field_specifiers=(column, json_only, unshown))
class Row:
    """Base class of all rows."""

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
        """Returns a copy with some values replaced."""
        return type(self)(**{**self.__dict__, **values})


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_json()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return {key: _plain(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def titled(kind: type[Row], *, is_wide: bool = False) -> list[Column]:
    """Returns the columns of a table of these rows."""
    return [one for one in kind.columns if one.title is not None and (is_wide or not one.is_wide)]
