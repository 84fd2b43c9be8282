"""The parts of a page. A page's function returns a `Page` that consists of these parts; `rendering.py` converts it to HTML or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from ottla.analysis.moments import format_ms
from ottla.base.errors import OttlaError


class PageError(OttlaError):
    """A page cannot be shown or an action cannot be done. It has an HTTP status and a message of one sentence. `form` is the refused form,
    which the user can correct.
    """

    def __init__(self, sentence: str, status: int = 400, form: Form | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.form = form


class Link(NamedTuple):
    text: str
    href: str


class Mark(NamedTuple):
    """A word with a level (`ok`, `warn` or `bad`), which is shown as a sign and as a colour."""

    text: str
    level: str


class Code(NamedTuple):
    """Text in a fixed-width font, such as a command to copy or the bytes of a record."""

    text: str


class Moment(NamedTuple):
    """A time: in UTC as text, and in milliseconds since 1970. A browser shows it in local time on request."""

    text: str
    ms: int


class Age(NamedTuple):
    """A time in UTC as text, and how long ago it was, which a page shows."""

    text: str
    ago: str


class Column(NamedTuple):
    key: str
    title: str


class Table(NamedTuple):
    """A table. `key` is its name in JSON, which has all rows. In HTML the query of the request filters, sorts and pages the first table of
    a page; other tables show only their first rows."""

    key: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    empty: str = "Nothing here."


class Field(NamedTuple):
    """An input of a form. `choices` makes it a list to choose from; `kind` is an HTML input type, `textarea` or `checkbox`."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"
    choices: Sequence[tuple[str, str]] = ()
    is_needed: bool = False


class Form(NamedTuple):
    """An action. `effect` describes the result. With `typed` the user has to type this name. A form with `is_query` changes nothing and is
    sent by GET.
    """

    action: str
    title: str
    button: str
    fields: Sequence[Field] = ()
    effect: str = ""
    typed: str = ""
    hidden: Mapping[str, str] = {}
    is_query: bool = False
    is_open: bool = False


class Note(NamedTuple):
    """A sentence at the top of a page, with a level as in `Mark`, or `info`."""

    text: str
    level: str = "info"


class Page(NamedTuple):
    """A page. `template` is an HTML template for further parts, which are in `extra`. If `refresh_s` is set, the browser reloads the page's
    tables after this many seconds while the page is open.
    """

    title: str
    facts: Sequence[tuple[str, Any]] = ()
    tables: Sequence[Table] = ()
    forms: Sequence[Form] = ()
    notes: Sequence[Note] = ()
    tabs: Sequence[tuple[str, str]] = ()
    trail: Sequence[Link] = ()
    template: str = "page.html"
    extra: Mapping[str, Any] = {}
    refresh_s: int = 0


class Done(NamedTuple):
    """The result of an action: a sentence, and the page that shows it."""

    sentence: str
    href: str
    level: str = "ok"


def columns(**titles: str) -> list[Column]:
    return [Column(key, title) for key, title in titles.items()]


def href(*parts: str, **query: Any) -> str:
    """Returns the path of a page, with its parts and query quoted. A path that ends with `.json` gets a final slash, because it would
    otherwise be the path of the JSON form of another page."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    given = {key: value for key, value in query.items() if value is not None}
    return path + ("/" if path.endswith(".json") else "") + (f"?{urlencode(given)}" if given else "")


def moment(ms: float) -> Moment | str | None:
    """Returns the moment `ms`, in milliseconds since 1970. For a value that is no time, returns the text of `format_ms`."""
    text = format_ms(int(ms))
    return Moment(text, int(ms)) if text is not None and text.endswith("Z") else text


def age(ms: int, now_ms: float) -> Age | None:
    """Returns how long ago a time in milliseconds since 1970 was; None for a negative number."""
    text = format_ms(ms)
    return None if text is None else Age(text, f"{seconds(max(0.0, (now_ms - ms) / 1000))} ago")


def topic_link(name: str, *tab: str) -> Link:
    return Link(name, href("topics", name, *tab))


def group_link(name: str) -> Link:
    return Link(name, href("group", name=name))


def number(value: float | None, digits: int = 0) -> str:
    """Formats a number for people, with commas; a dash for None."""
    return "-" if value is None else f"{value:,.{digits}f}"


def size(value: float | None) -> str:
    """Formats a number of bytes with a binary unit."""
    if value is None or value < 0:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def seconds(value: float | None) -> str:
    """Formats a duration in seconds, minutes, hours or days."""
    if value is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if value >= 2 * length:
            return f"{value / length:.1f} {unit}"
    return f"{value:.1f} s"
