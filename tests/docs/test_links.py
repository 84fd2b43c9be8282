"""Links between pages lead to pages and headings that are there, and the site's table of contents names every page once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, FOR_DEVELOPERS, ROOT

PAGES = sorted(DOCS.glob("**/*.md"))
SITE = ROOT / "mkdocs.yml"


def links_of(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors_of(page: Path) -> set[str]:
    """As both GitHub and the site make them: small letters, dashes for blanks, nothing else but word characters."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_internal_links_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors_of(found), f"{link}: {sorted(anchors_of(found))}"


def test_no_page_is_left_out_of_the_site() -> None:
    nav = re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", SITE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(nav) == len(set(nav))
    there = {page.relative_to(DOCS).as_posix() for page in PAGES}
    assert set(nav) <= there
    assert {page for page in there if "/" not in page and page not in FOR_DEVELOPERS} <= set(nav)


def test_the_front_page_leads_to_every_page() -> None:
    front = DOCS / "index.md"
    linked = {link.partition("#")[0] for link in links_of(front)}
    assert {page.relative_to(DOCS).as_posix() for page in PAGES if page != front} - linked == set()


def test_the_reading_of_links_finds_what_is_broken(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading, of `code`\n[a](gone.md#x) [b](#a-heading-of-code)\n```text\n[not](a link)\n# no heading\n```\n")
    assert links_of(page) == ["gone.md#x", "#a-heading-of-code"]
    assert anchors_of(page) == {"a-heading-of-code"}
