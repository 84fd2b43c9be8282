"""Finds sentences of docstrings, comments and Markdown pages that probably need a second reading.

A match of a pattern is a place to look at and not a verdict. Plain technical English matches in about one sentence of a hundred.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PATTERNS = {
    "a clause is the subject": re.compile(r"^(What|Whose|Who|Of what|So much|So many|Such as|That which|One that)\b(?!.*\?$)"),
    "a pronoun replaces a noun": re.compile(
        r"\b(that of|those of|those that|that which|the same of|one of which|each that|what it|what they)\b", re.IGNORECASE
    ),
    "'which' follows a preposition": re.compile(r"\b((of|by|for|in|from|with|to) which|(of|by|to) whom)\b", re.IGNORECASE),
    "a verb of motion describes a state": re.compile(r"\b(goes|comes?|gone|stands?|leaves|lets go)\b", re.IGNORECASE),
    "a word is unusual": re.compile(
        r"\b(anew|dear|dearer|at once so|lets others|its own way|for ever)\b", re.IGNORECASE
    ),
}
_END = re.compile(r"(?<=[.!?:])\s+")
_COMMENT = re.compile(r"(?:^|(?<=\s))#\s(?!type:|noqa|fmt:)(.*)")
_CODE_BLOCK = re.compile(r"```.*?```", re.DOTALL)
_PARAGRAPH = re.compile(r"^[^|#\n`].+(?:\n[^|#\n`-].+)*", re.MULTILINE)


def bad_sentences(path: Path) -> Iterator[str]:
    """Yields each sentence of a file that matches a pattern, with its line and the first pattern that it matches."""
    source = path.read_text(encoding="utf-8")
    for line, text in _paragraphs(source) if path.suffix == ".md" else _remarks(source):
        for sentence in _END.split(" ".join(text.split())):
            found = next((name for name, pattern in PATTERNS.items() if pattern.search(sentence)), None)
            if found:
                yield f"{line}: {found}: {sentence}"


def _paragraphs(source: str) -> Iterator[tuple[int, str]]:
    """Yields the text of a Markdown page without headings, tables and code."""
    prose = _CODE_BLOCK.sub(lambda block: "\n" * block.group().count("\n"), source)
    for found in _PARAGRAPH.finditer(prose):
        yield prose.count("\n", 0, found.start()) + 1, found.group()


def _remarks(source: str) -> Iterator[tuple[int, str]]:
    """Yields the docstrings and comments of a Python module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for number, line in enumerate(source.splitlines(), 1):
        if "# " in line and (found := _COMMENT.search(line)):
            yield number, found[1]
