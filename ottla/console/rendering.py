"""Converts a page to HTML or JSON. Templates escape all text; nothing marks text as safe."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from ottla._version import __version__
from ottla.console.model import Age, Code, Link, Mark, Moment, Page, Table
from ottla.console.visit import PAGES, Visit

FOLDER = Path(__file__).parent
ROWS_A_PAGE = 100
"""Rows of a table in one HTML page. With 2,000 topics a page stays below 200 kB. Only the first table of a page has further pages; JSON has
all rows.
"""
CELL_LETTERS_MAX = 300
WORD_LETTERS_MAX = 24
"""Letters of a word in a cell that is not broken. 24: longer than the names of most APIs."""
SECTIONS = ("Cluster", "Data", "Access", "Console")
"""The sections of the menu, in their order."""


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["kind"] = kind
    made.filters["visible"] = visible
    made.filters["shown"] = shown
    made.filters["moment"] = moment
    made.filters["is_long"] = is_long
    made.filters["pieces"] = pieces
    return made


def kind(value: Any) -> str:
    """Returns the kind of a cell's value. A template chooses the form of the cell by it."""
    if isinstance(value, Link | Mark | Code | Moment | Age):
        return type(value).__name__.lower()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "list" if isinstance(value, list | tuple) else "text"
    return "number"


def shown(value: Any) -> str:
    """Returns a cell's value as text for people. Characters that control the direction of text are escaped."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    text = visible(str(value))
    return text if len(text) <= CELL_LETTERS_MAX else text[:CELL_LETTERS_MAX] + "..."


def is_long(value: Any) -> bool:
    """Whether a cell has a long word that would make its column wide, such as a path or a list of addresses. The browser may break such a
    word anywhere.
    """
    return any(len(word) > WORD_LETTERS_MAX for word in str(plain(value)).split())


def pieces(text: str) -> list[str]:
    """Splits a text after full stops and commas, where the browser should break a long name or a list of addresses first."""
    return re.findall(r"[^.,]*[.,]+|[^.,]+", text)


def visible(text: str) -> str:
    """Returns text with escapes for characters that are invisible or change the direction of writing. Line ends and tabs are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode() for letter in text)


def moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def plain(value: Any) -> Any:
    """Returns a value as JSON has it: the text of links, marks and times."""
    if isinstance(value, Link | Mark | Code | Moment | Age):
        return value.text
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_json(page: Page) -> bytes:
    """Returns a page as JSON: its facts, and each table under its key as an array of objects."""
    found: dict[str, Any] = {name.lower().replace(" ", "_"): plain(value) for name, value in page.facts}
    for table in page.tables:
        found[table.key] = [{column.key: plain(row.get(column.key)) for column in table.columns} for row in table.rows]
    found.update({key: plain(value) for key, value in page.extra.items() if key != "lists"})
    if page.notes:
        found["notes"] = [note.text for note in page.notes]
    return json.dumps(found, ensure_ascii=True, default=str).encode()


def as_html(page: Page, visit: Visit, location: str, *, is_part: bool = False) -> str:
    """Returns a page as HTML; with `is_part` only the part that is renewed while the page is open."""
    tables = [_Part(table, visit.query, is_first=not number) for number, table in enumerate(page.tables)]
    snapshot = visit.desk.snapshot
    return environment().get_template("part.html" if is_part and page.template == "page.html" else page.template).render(
        page=page,
        tables=tables,
        menu=menu(),
        location=location,
        query=visit.query,
        token=visit.session.new_token,
        is_read_only=visit.settings.is_read_only,
        user=visit.session.user,
        problem=snapshot.problem if snapshot.view is not None else "",
        seen_at=snapshot.view.at_s if snapshot.view is not None else time.time(),
        cluster_id=snapshot.view.look.cluster_id if snapshot.view is not None else "",
        done=visit.session.results.get(visit.query.get("done", "")),
        version=__version__,
        part_href="?" + urlencode({**visit.query, "part": "1"}),
    )


@cache
def menu() -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the sections of the menu with the names and paths of their pages."""
    sections: dict[str, list[tuple[str, str]]] = {name: [] for name in SECTIONS}
    for page in PAGES:
        if page.name:
            sections[page.section].append((page.name, page.path))
    return list(sections.items())


class _Part:
    """The rows of a table that a page shows. For the first table of the page these are the rows that contain the query's `q`, in the order
    of `sort`, on page `p`. For other tables these are the first rows.
    """

    def __init__(self, table: Table, query: Mapping[str, str], *, is_first: bool) -> None:
        self.table = table
        kept = {key: value for key, value in query.items() if key not in ("p", "done", "part")}
        self.json_query = f"?{urlencode(kept)}" if kept else ""
        self.query = kept if is_first else {}
        query = query if is_first else {}
        rows = list(table.rows)
        self.total = len(rows)
        if wanted := query.get("q", "").lower():
            rows = [row for row in rows if any(wanted in str(plain(value)).lower() for value in row.values())]
        self.sort = query.get("sort", "")
        key = self.sort.removeprefix("-")
        if any(column.key == key for column in table.columns):
            rows.sort(key=lambda row: _order(plain(row.get(key))), reverse=self.sort.startswith("-"))
        self.found = len(rows)
        self.pages = max(1, -(-len(rows) // ROWS_A_PAGE))
        number = query.get("p", "1")
        self.page = min(self.pages, max(1, int(number) if number.isdecimal() and len(number) < 9 else 1))
        self.numeric = {column.key for column in table.columns if any(kind(row.get(column.key)) == "number" for row in rows)}
        self.rows: Sequence[Mapping[str, Any]] = rows[(self.page - 1) * ROWS_A_PAGE : self.page * ROWS_A_PAGE]

    def href(self, **changes: str | int) -> str:
        return "?" + urlencode({**self.query, **changes})


def _order(value: Any) -> tuple[int, float, str]:
    """Orders numbers before text, and missing values first."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))
