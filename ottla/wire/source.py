"""Collects the source of one generated function: indented lines, names that do not clash, and the values of the names.

`decoding.py` and `encoding.py` generate a function for each message and version with it, and compile it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class GeneratedSource:
    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.names = names
        self._numbers = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, stem: str) -> str:
        """Returns a new name. Structs are inlined, so the same field may be read many times."""
        self._numbers += 1
        return f"{stem}{self._numbers}"

    def constant(self, stem: str, value: object) -> str:
        """Returns a new name whose value is `value`."""
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def compile_function(self, name: str, where: str, functions: list[str]) -> Callable[..., Any]:
        """Compiles the source and returns the function `name`. `where` is the file name that a traceback shows; `functions` has the source
        of other functions that it calls.
        """
        exec(compile("\n".join([*functions, *self.lines]), where, "exec"), self.names)
        return self.names[name]  # type: ignore[no-any-return]
