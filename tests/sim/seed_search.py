"""Searches for seeds: a seed whose run fails with a planted fault, or several seeds whose runs together show enough events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar


class RunnableWorld(Protocol):
    """A simulated world."""

    def run(self) -> None: ...


WorldType = TypeVar("WorldType", bound=RunnableWorld)


def assert_noticed(name: str, found: tuple[int, str], seeds: int, verdict: str = "") -> None:
    """Fails if no seed noticed the planted fault, or if the verdict of the run that noticed it does not match the regular expression."""
    seed, why = found
    print(f"{name} was caught by seed {seed}: {why}")
    assert seed > 0, f"{name} was not noticed in {seeds} seeds"
    assert why and re.search(verdict, why)


def run_until(make: Callable[[int], WorldType], seeds: Iterable[int], is_enough: Callable[[list[WorldType]], object]) -> None:
    """Runs the worlds of these seeds, one after the other, until together they have shown enough events; fails if they never do. A single
    seed is not sufficient, because its events change with every change of the product.
    """
    worlds: list[WorldType] = []
    for seed in seeds:
        world = make(seed)
        world.run()
        worlds.append(world)
        if is_enough(worlds):
            return
    raise AssertionError(f"{len(worlds)} worlds have not shown enough")


def catch_seed(
    fault: AbstractContextManager[Any], run: Callable[[int], object], seeds: int, first: int, verdict: str = ""
) -> tuple[int, str]:
    """Returns the first of `seeds` seeds whose run fails with the fault and with a verdict that matches the regular expression, and the
    message; (0, "") if no seed fails.
    """
    with fault:
        for seed in range(first, first + seeds):
            try:
                run(seed)
            except AssertionError as failure:
                why = str(failure).split("\n", 1)[0]
                if re.search(verdict, why):
                    return seed, why
    return 0, ""


@contextmanager
def together(patches: Sequence[Any]) -> Iterator[None]:
    """Applies several patches (`mock.patch`) within one block."""
    if not patches:
        yield
        return
    with patches[0], together(patches[1:]):
        yield
