"""The page about other consoles names APIs that the broker serves to everybody."""

from __future__ import annotations

import re

from ottla.handlers.served_apis import TABLE
from ottla.wire.apis import API_NAMES
from tests.docs.pages import DOCS


def test_every_api_of_the_page_is_served() -> None:
    text = (DOCS / "consoles.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [a-z, ]+ \| ((?:[A-Z]\w+(?:, )?)+) \|$", text, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    assert len(rows) == 8
    assert named <= {API_NAMES[key] for key in TABLE}
