"""Generates the reference page of `ottla.client` from the signatures and docstrings of its public names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

CLASSES = ("Client", "Transaction", "Producer", "Consumer", "ShareConsumer")


def page_lines(table: Callable[[Sequence[str], Sequence[Sequence[object]]], list[str]]) -> list[str]:
    import ottla.client as public
    from ottla.client.core.operations import Operations

    lines = ["How they are used: [the Python client](../client.md). All names are imported from `ottla.client`.", ""]
    lines += [f"`connect{signature(public.connect)}`", "", _text(public.connect), ""]
    for name in CLASSES:
        cls = getattr(public, name)
        rows = [(f"`{found}`", text) for found, text in _members(cls)]
        lines += [f"## {name}", "", _text(cls), "", *table(("", ""), rows), ""]
    lines += [
        "## AsyncClient",
        "",
        "`ottla.client.aio.connect` gives one. It has the same operations as coroutines: "
        + ", ".join(f"`{name}`" for name in vars(Operations) if not name.startswith("_"))
        + "; and `run`, for any conversation of `ottla.client.core`.",
        "",
        "## Values",
        "",
    ]
    values = [getattr(public, name) for name in public.__all__]
    described = [(f"`{one.__name__}({', '.join(one._fields)})`", _text(one)) for one in values if hasattr(one, "_fields")]
    lines += [*table(("Value", "Meaning"), described), "", "## Errors", ""]
    errors = [one for one in values if inspect.isclass(one) and issubclass(one, Exception)]
    named = [(f"`{one.__name__}`", f"`{one.__bases__[0].__name__}`", _text(one)) for one in sorted(errors, key=_depth)]
    return lines + table(("Error", "Is a", "Meaning"), named)


def _depth(error: type[Exception]) -> tuple[int, str]:
    return len(error.__mro__), error.__name__


def _members(cls: type) -> Iterator[tuple[str, str]]:
    for name, found in {**vars(cls), **vars(cls.__base__)}.items():
        if name.startswith("_"):
            continue
        if isinstance(found, property):
            yield name, _text(found)
        elif callable(found):
            yield f"{name}{signature(found)}", _text(found)


def signature(function: Any) -> str:
    """Returns the signature without `self` or `cluster`, without `-> None`, and with X in place of `Conversation[X]`."""
    text = str(inspect.signature(inspect.unwrap(function)))
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"^\((self|cluster: ClusterCore)(, )?", "(", text)
    text = re.sub(r"-> Conversation\[(.*)\]$", r"-> \1", text)
    return text.removesuffix(" -> None")


def _text(found: Any) -> str:
    """Returns the docstring as one paragraph."""
    return " ".join((inspect.getdoc(found) or "").split())
