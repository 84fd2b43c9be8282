"""What the documentation's site is made of; how it looks is checked in a browser by `make site-check`."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT
from tools.site import check, hooks, readme

SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_site_loads_nothing_from_elsewhere() -> None:
    assets = re.findall(r"^ +- (assets/\S+)$", SETTINGS, re.MULTILINE)
    assert {"assets/mermaid.tiny.js", "assets/iframe-worker.js", "assets/site.css"} == set(assets)
    assert all((DOCS / asset).is_file() for asset in assets)
    assert "://" not in SETTINGS
    assert "font: false" in SETTINGS


def test_only_pages_with_a_diagram_load_mermaid() -> None:
    script = '<script src="../assets/mermaid.tiny.js"></script>'
    assert hooks.on_post_page(f"<p>text</p>\n{script}\n<p>") == "<p>text</p>\n<p>"
    drawn = f'<pre class="mermaid">flowchart</pre>{script}'
    assert hooks.on_post_page(drawn) == drawn


def test_a_bar_in_code_in_a_table_is_a_bar() -> None:
    assert hooks.on_page_markdown("| `a \\| b` | c \\| d |\n`a \\| b`") == "| `a | b` | c \\| d |\n`a \\| b`"


def test_long_names_may_break_at_their_joints() -> None:
    html = "<td><code>tests/sim/world.py::_check</code> <code>log.retention.check.interval.ms</code> <code>a/b_c</code></td>"
    names = "<code>tests/<wbr>sim/<wbr>world.<wbr>py::<wbr>_check</code> <code>log.<wbr>retention.<wbr>check.<wbr>interval.<wbr>ms</code>"
    assert hooks.on_page_content(html) == f"<td>{names} <code>a/b_c</code></td>"
    errors = '<p>NOT_LEADER_OR_FOLLOWER</p><td><a id="NOT_IN_TAGS">NOT_LEADER_OR_FOLLOWER, NO_ERROR</a></td>'
    broken = "NOT_<wbr>LEADER_<wbr>OR_<wbr>FOLLOWER, NO_ERROR"
    assert hooks.on_page_content(errors) == f'<p>NOT_LEADER_OR_FOLLOWER</p><td><a id="NOT_IN_TAGS">{broken}</a></td>'


def test_every_fault_that_the_check_looks_for_is_planted() -> None:
    """Found or not is seen in a browser: `blind_spots` is what `make site-check` begins with."""
    assert all(word in check.PLANTED for word in ("2000px", "stateDiagram", "missing.png", "console.error", "fetch(", "undefinedName"))
    assert len(check.FOUND_THERE) == 8


def test_readme_shows_pictures_of_this_source_tree_and_no_word_for_the_tests() -> None:
    shown = readme.without_headers('```sh needs="network"\npip install .\n```\n')
    assert shown == "```sh\npip install .\n```\n"
    names = readme.pictures_of('<img alt="a" src="docs/cluster.png" /><img src="https://elsewhere/badge.svg"><a href="docs/limits.md">')
    assert names == ["docs/cluster.png"]
