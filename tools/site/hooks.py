"""Hooks of mkdocs: `\\|` in code in a table is a bar, as on GitHub; long names may break; only pages with a diagram load Mermaid."""

from __future__ import annotations

import re
from typing import Any

_MERMAID = re.compile(r'\s*<script src="[^"]*mermaid\.tiny\.js"></script>')

_CODE = re.compile(r"`[^`\n]*`")
_LONG_NAME = re.compile(r"<code>[\w/.:]{25,}</code>")
_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_ERROR_NAME = re.compile(r"\b[A-Z]{2,}(?:_[A-Z]+){2,}\b(?![^<]*>)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    lines = markdown.split("\n")
    return "\n".join(_CODE.sub(_with_bars, line) if line.startswith("|") else line for line in lines)


def _with_bars(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def on_page_content(html: str, **_: Any) -> str:
    """Allows line breaks within paths and the names of settings, metrics and errors, which would otherwise take the whole width of a
    table.
    """
    return _CELL.sub(lambda cell: _ERROR_NAME.sub(lambda name: name[0].replace("_", "_<wbr>"), cell[0]), _LONG_NAME.sub(_with_breaks, html))


def _with_breaks(code: re.Match[str]) -> str:
    return re.sub(r"(?<=\w)(::|[/._])(?=\w)", lambda end: end[0] + "<wbr>", code[0].removesuffix("</code>")) + "</code>"


def on_post_page(output: str, **_: Any) -> str:
    return output if 'class="mermaid"' in output else _MERMAID.sub("", output)
