"""Finds which modules of the package import each other, and cycles of imports. Every import statement is used, also inside a function or
under `TYPE_CHECKING`: two modules that need each other's names are one module in two files, even if one import runs late.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

Graph = Mapping[str, frozenset[str]]


def import_graph(root: Path, package: str) -> dict[str, frozenset[str]]:
    """Returns for each module name the modules of the package that it imports. `root` is the folder that contains the package."""
    files = {_module_name(path.relative_to(root)): path for path in sorted((root / package).rglob("*.py"))}
    return {name: frozenset(_imported(name, path, files)) - {name} for name, path in files.items()}


def imported_by(path: Path, modules: Collection[str]) -> set[str]:
    """Returns those of the given modules that a file outside of the package imports."""
    return set(_imported("", path, modules))


def circles(graph: Graph) -> list[list[str]]:
    """Returns the cycles: sets of modules that import each other directly or indirectly, by Tarjan's algorithm, each sorted by name."""
    return [sorted(part) for part in _components(graph) if len(part) > 1]


def _module_name(relative: Path) -> str:
    parts = relative.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, path: Path, modules: Collection[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _known(alias.name, modules)
        elif isinstance(node, ast.ImportFrom):
            base = _base(name, path, node)
            for alias in node.names:
                # `from package import module` needs the module; `from module import name` the module before `import`.
                yield from _known(f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base, modules)


def _base(name: str, path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    package = parts if path.name == "__init__.py" else parts[:-1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def _known(module: str, modules: Collection[str]) -> Iterator[str]:
    if module in modules:
        yield module


def _components(graph: Graph) -> Iterator[list[str]]:
    """Returns the strongly connected components. It does not use recursion, because there are hundreds of modules."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: dict[str, None] = {}
    for start in graph:
        if start in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(start, iter(sorted(graph[start])))]
        index[start] = lowest[start] = len(index)
        stack.append(start)
        on_stack[start] = None
        while work:
            module, targets = work[-1]
            target = next(targets, None)
            if target is not None:
                if target not in index:
                    index[target] = lowest[target] = len(index)
                    stack.append(target)
                    on_stack[target] = None
                    work.append((target, iter(sorted(graph[target]))))
                elif target in on_stack:
                    lowest[module] = min(lowest[module], index[target])
                continue
            work.pop()
            if work:
                lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
            if lowest[module] == index[module]:
                part = []
                while True:
                    member = stack.pop()
                    del on_stack[member]
                    part.append(member)
                    if member == module:
                        break
                yield part
