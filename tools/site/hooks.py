"""What mkdocs is asked to do besides: pages without a diagram do not load Mermaid's two and a half megabytes."""

from __future__ import annotations

import re
from typing import Any

_MERMAID = re.compile(r'\s*<script src="[^"]*mermaid\.tiny\.js"></script>')


def on_post_page(output: str, **_: Any) -> str:
    return output if 'class="mermaid"' in output else _MERMAID.sub("", output)
