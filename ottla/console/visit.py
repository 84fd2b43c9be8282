"""A request to a page, and the registry of pages and actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.client.blocking.cluster import Cluster
from ottla.console.desk import Desk, Settings
from ottla.console.model import Done, Page, PageError
from ottla.console.safety import Session
from ottla.console.snapshot import View

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
"""The largest numbers in requests: of partitions and replicas, and of offsets."""


class Visit(NamedTuple):
    """A request: the session, the parts of the path, the query, and the fields of a form."""

    session: Session
    desk: Desk
    settings: Settings
    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]

    @property
    def cluster(self) -> Cluster:
        return self.desk.cluster

    def view(self) -> View:
        return self.desk.snapshot.current()

    def whole(self, name: str, default: int | None = None, *, maximum: int = LONG_MAX) -> int:
        """Returns a field of the form or the query as a whole number. Raises `PageError` for other text, for a number that is too large,
        and for a missing field without a default."""
        text = (self.form.get(name) or self.query.get(name) or "").strip()
        if not text and default is not None:
            return default
        try:
            found = int(text)
        except ValueError:
            raise PageError(f"{name} must be a whole number, not {text[:40]!r}.") from None
        if not -maximum <= found <= maximum:
            raise PageError(f"{name} is too large.")
        return found

    def field(self, name: str) -> str:
        """Returns a field of the form. Raises `PageError` if it is empty."""
        text = self.form.get(name, "").strip()
        if not text:
            raise PageError(f"{name} is empty; nothing was done.")
        return text


class PageHandler(NamedTuple):
    """A registered page: its path, its name in the menu (empty: not in the menu), its section of the menu, and the function that makes it.
    """

    path: str
    name: str
    section: str
    summary: str
    query: tuple[str, ...]
    make: Callable[[Visit], Page]


class ActionHandler(NamedTuple):
    path: str
    act: Callable[[Visit], Done]


PAGES: list[PageHandler] = []
ACTIONS: list[ActionHandler] = []


def page(
    path: str, summary: str, *, name: str = "", section: str = "", query: tuple[str, ...] = ()
) -> Callable[[Callable[[Visit], Page]], Callable[[Visit], Page]]:
    """Decorator: registers a page, which is also served as JSON at `path.json` and `/api/v1/path`."""

    def added(make: Callable[[Visit], Page]) -> Callable[[Visit], Page]:
        PAGES.append(PageHandler(path, name, section, summary, query, make))
        return make

    return added


def action(path: str) -> Callable[[Callable[[Visit], Done]], Callable[[Visit], Done]]:
    """Decorator: registers an action, which a form sends by POST."""

    def added(act: Callable[[Visit], Done]) -> Callable[[Visit], Done]:
        ACTIONS.append(ActionHandler(path, act))
        return act

    return added


def check_typed(visit: Visit, name: str) -> None:
    """Raises `PageError` unless the user has typed the name of the thing that an action destroys."""
    if visit.form.get("typed", "") != name:
        raise PageError(f"Type {name!r} to confirm; nothing was done.")
