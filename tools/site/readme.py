"""Renders README.md in build/readme as a code host shows it, so that a browser can check it.

`python -m tools.site.readme` (a part of `make site`) needs the environment of the site. The layout is one column, with tables and code that
scroll. The pictures are copied beside the page. Links do not work.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tools.site import hooks

ROOT = Path(__file__).resolve().parents[2]
DESTINATION = ROOT / "build" / "readme"
STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 900px; margin: 24px auto; padding: 0 24px; color: #1f2328; overflow-wrap: break-word }
img { max-width: 100% } h1, h2 { border-bottom: 1px solid #d1d9e0; padding-bottom: 6px } a { color: #0969da }
code, pre { font: 85%/1.5 monospace; background: #f0f2f4; border-radius: 6px } code { padding: 2px 5px }
pre code { padding: 0; font-size: 100%; background: none }
pre { padding: 16px; overflow-x: auto } table { display: block; overflow-x: auto; border-collapse: collapse; font-size: 14px }
th, td { border: 1px solid #d1d9e0; padding: 6px 13px; text-align: left }
"""
_PICTURE = re.compile(r'<img [^>]*?src="([^":]+)"')
_FENCE = re.compile(r"^(```\w+) .*$", re.MULTILINE)


def without_headers(markdown: str) -> str:
    """Removes the attributes after the language of code blocks, which are for tests and not shown."""
    return _FENCE.sub(r"\1", markdown)


def page(content: str) -> str:
    """Returns a whole document. Its empty icon keeps browsers from requesting one."""
    head = f'<meta charset="utf-8"><title>README</title><link rel="icon" href="data:,"><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{content}</body></html>'


def pictures_of(html: str) -> list[str]:
    """Returns the paths of the page's pictures that are in this source tree."""
    return _PICTURE.findall(html)


def render() -> None:
    """Writes build/readme, in place of an older one."""
    import markdown

    text = hooks.on_page_markdown(without_headers((ROOT / "README.md").read_text(encoding="utf-8")))
    html = markdown.markdown(text, extensions=["fenced_code", "tables", "toc"])
    shutil.rmtree(DESTINATION, ignore_errors=True)
    DESTINATION.mkdir(parents=True)
    (DESTINATION / "index.html").write_text(page(html), encoding="utf-8")
    for name in pictures_of(html):
        copied = DESTINATION / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copied)


if __name__ == "__main__":
    render()
