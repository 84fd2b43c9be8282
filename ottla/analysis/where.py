"""Evaluates filter expressions over one record, for `consume --where EXPR` and the filter of the console's messages.

Names: `key`, `value` (parsed when it is JSON, else text), `topic`, `partition`, `offset`, `timestamp`, `headers`. The language has members
by dot or bracket (`value.user.id`, `headers['x']`), comparisons, `in`, `and`, `or`, `not`, arithmetic and literals. There are no calls, and
only numbers are multiplied, divided and subtracted, so an expression can neither run code nor use much memory. Expressions are nested at
most `DEPTH_MAX` levels deep. A missing member is null, and a comparison of types that cannot be compared is false. Failed arithmetic makes
the whole expression false. Text that is compared with `timestamp`, also in a list, is a time, as for `-o`: `timestamp >= '2026-01-31'`.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ottla.analysis.json_numbers import WrittenFloat
from ottla.analysis.moments import parse_moment_ms
from ottla.wire.records import Record

NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
DEPTH_MAX = 100
"""Maximum depth of an expression, because each record's evaluation needs Python's stack."""

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_JSON_SPACE = " \t\n\r"
_WORDS = {"true": True, "false": False, "null": None}
_ALLOWED = (ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.BinOp, ast.Name, ast.Load, ast.Constant)
_ALLOWED_TOO = (ast.Attribute, ast.Subscript, ast.List, ast.Tuple, *_COMPARISONS, *_ARITHMETIC)


def parse_parts(text: str) -> list[tuple[str, Callable[[str, int, Record], Any]]]:
    """Parses a list such as `key,value.amount`. Returns each name with a function that returns this part of a record. Raises ValueError."""
    found = []
    for name in (part.strip() for part in text.split(",")):
        tree = _parse(name, "--columns")
        if not all(isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Constant | ast.Load) for node in ast.walk(tree)):
            raise ValueError(f"--columns {name!r} is not a part of a record such as value.amount")
        found.append((name, _part(tree)))
    return found


def _part(tree: ast.expr) -> Callable[[str, int, Record], Any]:
    return lambda topic, partition, record: _evaluate(tree, _Names(topic, partition, record))


def parse_where(text: str, option: str = "--where") -> Callable[[str, int, Record], bool]:
    """Compiles the expression to a function that checks a record. Raises ValueError for an invalid expression or time. The
    message about an expression names it by `option`."""
    tree = _parse(text, option)

    def keeps(topic: str, partition: int, record: Record) -> bool:
        try:
            return bool(_evaluate(tree, _Names(topic, partition, record)))
        except (TypeError, ArithmeticError):
            return False

    return keeps


def _parse(text: str, option: str) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{option} {text!r} is not an expression such as: value.amount > 10 and key == 'x'") from None
    if _depth(tree) > DEPTH_MAX:
        raise ValueError(f"{option} is an expression with more than {DEPTH_MAX} parts inside each other")
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED + _ALLOWED_TOO):
            raise ValueError(f"{option} takes comparisons, and, or, not and arithmetic, no {type(node).__name__.lower()}")
        if isinstance(node, ast.Name) and node.id not in NAMES and node.id not in _WORDS:
            raise ValueError(f"{option} has no name {node.id!r}; there are {', '.join(NAMES)}")
        if isinstance(node, ast.Compare):
            _read_times(node)
    return tree


def _depth(tree: ast.AST) -> int:
    level, depth = [tree], 0
    while level:
        level, depth = [child for node in level for child in ast.iter_child_nodes(node)], depth + 1
    return depth


def _read_times(comparison: ast.Compare) -> None:
    """Replaces text that is compared with `timestamp`, also in a list, by milliseconds. Raises ValueError if the text is not a time."""
    sides = [comparison.left, *comparison.comparators]
    for left, right in pairwise(sides):
        for side, other in ((left, right), (right, left)):
            if isinstance(other, ast.Name) and other.id == "timestamp":
                for part in side.elts if isinstance(side, ast.List | ast.Tuple) else [side]:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        part.value = parse_moment_ms(part.value)


class _Names:
    """The values of an expression's names for one record. Key, value and headers are decoded on first use."""

    def __init__(self, topic: str, partition: int, record: Record) -> None:
        self._given: dict[str, Any] = {
            **_WORDS,
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
        }
        self._record = record

    def __getitem__(self, name: str) -> Any:
        if name not in self._given:
            if name == "headers":
                self._given[name] = {key: _text(value) for key, value in self._record.headers}
            else:
                self._given[name] = _parsed(self._record.key if name == "key" else self._record.value)
        return self._given[name]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _parsed(data: bytes | None) -> Any:
    """Returns a key or value as its JSON value, or as text if it is not JSON. None stays None."""
    text = _text(data)
    if text is None or text.lstrip(_JSON_SPACE)[:1] not in '{["-0123456789tfn':
        return text
    try:
        return json.loads(text, parse_float=WrittenFloat)
    except (ValueError, RecursionError):
        return text


def _evaluate(node: ast.expr, names: _Names) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Attribute):
        return _member(_evaluate(node.value, names), node.attr)
    if isinstance(node, ast.Subscript):
        return _member(_evaluate(node.value, names), _evaluate(node.slice, names))
    if isinstance(node, ast.List | ast.Tuple):
        return [_evaluate(element, names) for element in node.elts]
    if isinstance(node, ast.BoolOp):
        join = any if isinstance(node.op, ast.Or) else all
        return join(_evaluate(value, names) for value in node.values)
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand, names)
        return not value if isinstance(node.op, ast.Not) else -value
    if isinstance(node, ast.BinOp):
        return _calculated(node.op, _evaluate(node.left, names), _evaluate(node.right, names))
    assert isinstance(node, ast.Compare)
    left = _evaluate(node.left, names)
    for comparison, following in zip(node.ops, node.comparators, strict=True):
        right = _evaluate(following, names)
        try:
            is_true = _COMPARISONS[type(comparison)](left, right)
        except TypeError:
            return False
        if not is_true:
            return False
        left = right
    return True


def _calculated(sign: ast.operator, left: Any, right: Any) -> Any:
    """Adds numbers, texts or lists; for other arithmetic both sides must be numbers. A text times a number would fill the memory."""
    if not isinstance(sign, ast.Add) and not (isinstance(left, int | float) and isinstance(right, int | float)):
        raise TypeError("only numbers can be calculated with")
    return _ARITHMETIC[type(sign)](left, right)


def _member(value: Any, name: Any) -> Any:
    if isinstance(value, dict):
        return value.get(name) if isinstance(name, str) else None
    if isinstance(value, list) and isinstance(name, int) and -len(value) <= name < len(value):
        return value[name]
    return None
