"""The answer of a request that was cut into pieces. Each piece's answer is encoded at once, so that only bytes are kept.

An answer about ten thousand things would be a million objects. They take ten times the memory of their bytes, and the garbage collector
walks over them again and again. So the elements of each piece's answer are encoded as soon as they are there, and the whole answer is put
together from bytes. Only if one element was cut, its answers wait for each other as objects, and are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ottla.server.execution.disposal import dispose_elements
from ottla.server.execution.items import Items
from ottla.server.execution.pieces import join_rest, joined

PARTS_AT_ONCE = 4096
"""A million small parts of an answer are a tenth of a second to join."""


class Encoder(Protocol):
    """`server/execution/route.py`: the encoding of one API's answers."""

    @property
    def element_writer(self) -> Callable[[list[Any], list[Any]], Iterator[None]]: ...

    def spliced_frame(self, shell: Any, count: int, written: list[Any], correlation_id: int) -> list[Any]: ...


class LongAnswer:
    """Collects the answers of pieces by their numbers."""

    def __init__(self, route: Encoder, items: Items) -> None:
        self._route = route
        self._items = items
        self.shell: Any = None
        """The other fields of the response, from the first answer."""
        self._run_of: list[int] = []  # by number of a piece: the first piece of the element that it is about
        self._missing: dict[int, int] = {}  # by run: the pieces whose answers are not there yet
        self._is_open = False
        self._waiting: dict[int, dict[int, list[Any]]] = {}  # by run and number: elements that are not encoded yet
        self._written: dict[int, list[Any]] = {}  # by run
        self._count = 0
        self.size = 0
        """Bytes so far."""

    def expect(self, *, is_end: bool) -> int:
        """Announces a piece, the last of its element or not; returns its number."""
        number = len(self._run_of)
        run = self._run_of[-1] if self._is_open else number
        self._run_of.append(run)
        self._missing[run] = self._missing.get(run, 0) + 1
        self._is_open = not is_end
        return number

    def add(self, number: int, response: Any) -> Iterator[None]:
        """Adds the answer of a piece; None if no answer is wanted. Raises the answer if it is an exception (`Pending.fail`)."""
        if isinstance(response, Exception):
            raise response
        run = self._run_of[number]
        self._missing[run] -= 1
        if response is not None:
            name = self._items.response
            elements = getattr(response, name) or []
            setattr(response, name, [])
            if self.shell is None:
                self.shell = response
            else:
                join_rest(self.shell, response)
            self._waiting.setdefault(run, {})[number] = elements
        is_whole = not self._missing[run] and not (self._is_open and run == self._run_of[-1])
        if is_whole and run in self._waiting:
            yield from self._encode(run, self._waiting.pop(run))

    def _encode(self, run: int, answers: dict[int, list[Any]]) -> Iterator[None]:
        elements = list(next(iter(answers.values())))
        if len(answers) > 1:
            elements = yield from joined([answers[number] for number in sorted(answers)], self._items)
        answers.clear()
        parts: list[Any] = []
        pieces: list[Any] = []
        for _ in self._route.element_writer(elements, parts):
            if len(parts) >= PARTS_AT_ONCE:
                pieces.append(b"".join(parts))
                parts.clear()
            yield
        pieces.append(b"".join(parts))
        self._written[run] = pieces
        self._count += len(elements)
        self.size += sum(map(len, pieces))
        yield from dispose_elements(elements)

    def frame(self, correlation_id: int) -> list[Any]:
        """The whole frame; empty if no answer is wanted."""
        if self.shell is None:
            return []
        written = [piece for run in sorted(self._written) for piece in self._written[run]]
        return self._route.spliced_frame(self.shell, self._count, written, correlation_id)
