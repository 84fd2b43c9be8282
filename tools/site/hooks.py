"""What mkdocs is asked to do besides: `\\|` in code in a table is a bar, as on GitHub, and only pages with a diagram load Mermaid."""

from __future__ import annotations

import re
from typing import Any

_MERMAID = re.compile(r'\s*<script src="[^"]*mermaid\.tiny\.js"></script>')

_CODE = re.compile(r"`[^`\n]*`")


def on_page_markdown(markdown: str, **_: Any) -> str:
    lines = markdown.split("\n")
    return "\n".join(_CODE.sub(_with_bars, line) if line.startswith("|") else line for line in lines)


def _with_bars(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def on_post_page(output: str, **_: Any) -> str:
    return output if 'class="mermaid"' in output else _MERMAID.sub("", output)
