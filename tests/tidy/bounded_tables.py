"""Finds every cache and table with a limited size: functions with `lru_cache`, queues with `maxlen`, and containers whose length is
compared with a limit in a file that adds to them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

ADDING = {"append", "appendleft", "add", "setdefault"}
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def bounded_tables(tree: ast.Module) -> Iterator[str]:
    """Yields the name of each, as it is written in the file."""
    grown = set(_grown(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from (node.name for decorator in node.decorator_list if _called(decorator) in ("cache", "lru_cache"))
        elif isinstance(node, ast.Call) and _called(node) == "deque":
            if len(node.args) > 1 or any(keyword.arg == "maxlen" for keyword in node.keywords):
                yield "deque"
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            lengths = [side.args[0] for side in sides if isinstance(side, ast.Call) and _called(side) == "len" and side.args]
            if len(sides) == 2 and lengths and isinstance(node.ops[0], ORDER) and any(map(_is_bound, sides)):
                yield from (name for length in lengths if (name := ast.unparse(length)) in grown or name == "self")


def _called(node: ast.expr) -> str:
    """Returns the name of a function, called or not."""
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _grown(tree: ast.Module) -> Iterator[str]:
    """Yields the names of containers to which a file adds elements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (ast.unparse(target.value) for target in targets if isinstance(target, ast.Subscript))
            if isinstance(node, ast.AugAssign):
                yield ast.unparse(node.target)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
            yield ast.unparse(node.func.value)


def _is_bound(side: ast.expr) -> bool:
    """Whether this is the name of a limit or a number above 1."""
    if isinstance(side, ast.Constant):
        return isinstance(side.value, int) and side.value > 1
    name = side.attr if isinstance(side, ast.Attribute) else side.id if isinstance(side, ast.Name) else ""
    return name.isupper() or name.endswith("_max")
