"""The rules of style as functions: a rule takes the source of a file and yields complaints. A complaint is a line number and a short
sentence. `test_rules.py` shows that each rule can complain. Rules do not know paths; `test_sources.py` decides to which files a rule
applies.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 499
VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"})

Complaint = tuple[int, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Unclear words for which there is a usual term (send, answer, notify, read). They are found in names too, but not within another word.
# Python's `.tell()` of a stream is allowed.
_RIDDLES = "told|tells?|telling|saw|hears?|heard|hearing|nobody|whoever|strangers?|out loud"
_UNWANTED = re.compile(rf"(?<![a-z])(?<!\.(?=tell\(\)))({_RIDDLES})(?![a-z])", re.IGNORECASE)
_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
_QUESTION = re.compile(r".*\?$|(What|How|Why|When|Where|Who) (do|does)\b")
# Hosts for downloads, and paths that exist on one machine only.
_FOREIGN = re.compile(
    r"(?<![\w./-])/(work|root|home)/[\w.]|\bpypi\.|pythonhosted\.|\brepo1?\.maven\.|\bregistry\.[a-z]+js\b|://[^\s/]*(mirror|artifactory|nexus)"
)


@lru_cache(maxsize=1)
def nodes(tree: ast.Module) -> list[ast.AST]:
    """Returns the nodes of a module; cached, because all rules need them."""
    return list(ast.walk(tree))


def function_lengths(tree: ast.Module) -> Iterator[Complaint]:
    """Yields functions that are too long, without their docstrings."""
    for node in nodes(tree):
        if isinstance(node, Function):
            lines = _lines(node) - _docstring_lines(node)
            if lines > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {lines} lines, {FUNCTION_LINES_MAX} is the limit"


def lengths(tree: ast.Module) -> list[int]:
    """Returns the number of lines of each function of a module, without docstrings."""
    return [_lines(node) - _docstring_lines(node) for node in nodes(tree) if isinstance(node, Function)]


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_lines(node: Function) -> int:
    return _lines(node.body[0]) if ast.get_docstring(node, clean=False) is not None else 0


def file_length(text: str) -> Iterator[Complaint]:
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield lines, f"the file has {lines} lines, fewer than {FILE_LINES_MAX + 1} are allowed"


def unfinished(text: str) -> Iterator[Complaint]:
    """Yields words that mark unfinished work."""
    yield from _matches(_UNFINISHED, text)


def unwanted_words(text: str) -> Iterator[Complaint]:
    """Yields words that the code and its documentation must not use."""
    yield from _matches(_UNWANTED, text)


def foreign_places(text: str) -> Iterator[Complaint]:
    """Yields paths and download hosts that do not exist on other machines."""
    yield from _matches(_FOREIGN, text)


_NOUNS = "partition|topic|group|broker|record|member|row|replica|transaction|message|cell|chunk|warning|rule|marker|day|offset|directorie"
_PLURAL = re.compile(rf" (?:\w+ )?({_NOUNS})s\b")


def uncounted_nouns(tree: ast.Module) -> Iterator[Complaint]:
    """Yields texts with a number and a plural, which could print `1 partitions`. Names in capitals are limits and are allowed."""
    for node in nodes(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for part, after in pairwise(node.values):
            if isinstance(part, ast.FormattedValue) and isinstance(after, ast.Constant) and _is_number(part.value):
                found = _PLURAL.match(str(after.value))
                if found:
                    yield node.lineno, f"'{{{ast.unparse(part.value)}}}{found.group()}' may be one; write it by counted()"


def _is_number(node: ast.expr) -> bool:
    """Whether a name or a call is a count that may be one."""
    if isinstance(node, ast.Call):
        return _called(node) in ("len", "sum", "count")
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("total", "number", "many", "records", "partitions", "days") or name.endswith("count")


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[Complaint]:
    for number, line in enumerate(text.splitlines(), 1):
        found = pattern.search(line)
        if found:
            yield number, f"has {found.group()!r}"


def opening(tree: ast.Module) -> Iterator[Complaint]:
    """Yields a complaint unless the module begins with a docstring and then `from __future__ import annotations`."""
    if ast.get_docstring(tree) is None:
        yield 1, "the module has no docstring"
        return
    code = tree.body[1:]
    first = code[0] if code else None
    if first is not None and not (isinstance(first, ast.ImportFrom) and first.module == "__future__"):
        yield first.lineno, "`from __future__ import annotations` does not come first"


def questions(tree: ast.Module) -> Iterator[Complaint]:
    """Yields docstrings whose first line is a question instead of a statement."""
    for node in nodes(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if _QUESTION.match(first):
                yield getattr(node, "lineno", 1), f"the docstring asks: {first!r}"


def swallowed_exceptions(tree: ast.Module) -> Iterator[Complaint]:
    """Yields exception handlers that would hide a broken invariant. A handler of BaseException that raises again is allowed."""
    for node in nodes(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        names = {"BaseException"} if node.type is None else {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
        raises_again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        if "Exception" in names or ("BaseException" in names and not raises_again):
            yield node.lineno, "catches everything, broken invariants included"


def asynchrony(tree: ast.Module) -> Iterator[Complaint]:
    for node in nodes(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno, "the core is synchronous"


def salted_hashes(tree: ast.Module) -> Iterator[Complaint]:
    """Yields calls of `hash`, because the hash of a string differs from process to process. Calls within `__hash__` are allowed."""
    at_home: set[ast.AST] = set()
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__hash__":
            at_home.update(ast.walk(node))
    for node in nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hash" and node not in at_home:
            yield node.lineno, "hash() gives another number in each process"


_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
_ORDER_FREE = frozenset({"sorted", "set", "frozenset", "sum", "min", "max", "any", "all", "len"})
_ORDER_BOUND = frozenset({"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "dict", "join", "extend"})


def set_order(tree: ast.Module) -> Iterator[Complaint]:
    """Yields code whose result depends on the order of a set: loops, comprehensions and calls that keep the order. A set is recognised by
    its form, or by a name that is a set in all annotations and assignments of this module.
    """
    sets = _set_names(tree)
    free = {
        id(argument) for call in nodes(tree) if isinstance(call, ast.Call) and _called(call) in _ORDER_FREE for argument in call.args
    }
    for node in nodes(tree):
        sources: list[ast.expr] = []
        if isinstance(node, ast.For):
            sources = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and id(node) not in free:
            sources = [generator.iter for generator in node.generators]
        elif isinstance(node, ast.Call) and _called(node) in _ORDER_BOUND:
            sources = list(node.args)
        elif isinstance(node, ast.Starred):
            sources = [node.value]
        for source in sources:
            if _is_set(source, sets):
                yield source.lineno, f"the order of the set `{ast.unparse(source)}` shows; use sorted()"


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _is_set(node: ast.expr, sets: frozenset[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitOr | ast.BitAnd | ast.BitXor):
        return _is_set(node.left, sets) or _is_set(node.right, sets)
    if isinstance(node, ast.Call):
        called = _called(node)
        return called in ("set", "frozenset") or called in sets or (isinstance(node.func, ast.Attribute) and called in _SET_METHODS)
    return _name(node) in sets


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _set_names(tree: ast.Module) -> frozenset[str]:
    """Returns names that are sets in all annotations and assignments of this module."""
    seen: dict[str, set[bool]] = {}

    def note(name: str, is_set: bool) -> None:
        if name:
            seen.setdefault(name, set()).add(is_set)

    for node in nodes(tree):
        if isinstance(node, ast.AnnAssign):
            note(_name(node.target), _says_set(node.annotation))
        elif isinstance(node, ast.arg) and node.annotation is not None:
            note(node.arg, _says_set(node.annotation))
        elif isinstance(node, Function) and node.returns is not None:
            note(node.name, _says_set(node.returns))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                note(_name(target), _is_set(node.value, frozenset()))
    return frozenset(name for name, kinds in seen.items() if kinds == {True})


def _says_set(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).split("[")[0].strip("'\"") in ("set", "frozenset", "AbstractSet")


def excused_tests(tree: ast.Module) -> Iterator[Complaint]:
    """Yields tests that are marked to be skipped or expected to fail."""
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif", "xfail") and _name(node.value) == "mark":
            yield node.lineno, f"a test is excused by {node.attr}"


def empty_tests(tree: ast.Module) -> Iterator[Complaint]:
    """Yields tests that cannot fail: they have no assert, no `raises`, and no call of a function that checks."""
    checks = re.compile(r"^_?(assert|check|raises|fail|expect|run|verify|round_trip)")
    for node in tree.body:
        if not isinstance(node, Function) or not node.name.startswith("test_"):
            continue
        inside = list(ast.walk(node))
        calls = (_called(call) for call in inside if isinstance(call, ast.Call))
        if not any(isinstance(found, ast.Assert) for found in inside) and not any(checks.match(name) for name in calls):
            yield node.lineno, f"{node.name} checks nothing"


def views_in_steps(tree: ast.Module) -> Iterator[Complaint]:
    """Yields generators with a local memoryview. After a `yield` the buffer of a connection may have the bytes of another request."""
    if not any(isinstance(node, ast.Name) and node.id == "memoryview" for node in nodes(tree)):
        return
    for function in nodes(tree):
        if isinstance(function, ast.FunctionDef):
            inside = _without_inner_functions(function)
            views = {name for node in inside if (name := _view_name(node))}
            if views and any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside):
                yield function.lineno, f"{function.name} keeps a view across a yield: {', '.join(sorted(views))}"


def _without_inner_functions(function: Function) -> list[ast.AST]:
    found: list[ast.AST] = []
    left = [*ast.iter_child_nodes(function)]
    while left:
        node = left.pop()
        if not isinstance(node, Function | ast.Lambda):
            found.append(node)
            left += ast.iter_child_nodes(node)
    return found


def _view_name(node: ast.AST) -> str | None:
    """Returns the name of a memoryview that the node binds."""
    annotated = node.annotation if isinstance(node, ast.arg | ast.AnnAssign) else None
    if annotated is not None and "memoryview" in ast.unparse(annotated):
        return node.arg if isinstance(node, ast.arg) else ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _name(node.value.func) == "memoryview":
        return ast.unparse(node.targets[0])
    return None


def decisions_built(tree: ast.Module) -> Iterator[Complaint]:
    """Yields calls of the class `Decision`."""
    for node in nodes(tree):
        if isinstance(node, ast.Call) and _name(node.func) == "Decision":
            yield node.lineno, "machines build decisions by machine/draft.py"


def high_watermark_moves(tree: ast.Module) -> Iterator[Complaint]:
    """Yields assignments to an attribute `high_watermark`, by any statement."""
    for node in nodes(tree):
        is_assigned = isinstance(node, ast.Attribute) and node.attr == "high_watermark" and not isinstance(node.ctx, ast.Load)
        is_set = isinstance(node, ast.Call) and any(isinstance(word, ast.Constant) and word.value == "high_watermark" for word in node.args)
        if isinstance(node, ast.expr) and (is_assigned or is_set):
            yield node.lineno, "only replication/high_watermark.py moves a high watermark"
