"""Cuts a large request into pieces of the same kind, and joins their answers. Handlers know nothing of it.

`gather` brings repeated names together, `cut` makes requests of a bounded number of items, and `joined` joins the answers about one element
that was cut. All three are generators, so that other work can run in between. `items.py` has the arrays of each API.

A request that is cut has the same effect as its pieces, sent one after the other. So a commit of thousands of offsets is several record
batches, as any large commit is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.server.execution.items import Items, Repeats
from ottla.wire.schema import Struct

ELEMENTS_PER_STEP = 500
_NONE = [None] * ELEMENTS_PER_STEP


def item_count(body: Any, items: Items, count_max: int = 1 << 62) -> int:
    """How many innermost elements a request names, counted until there are more than `count_max`; a null array or an empty one is one."""
    elements = getattr(body, items.request)
    inner = items.inner
    if not elements or inner is None:
        return len(elements or ()) or 1
    count = 0
    for element in elements:
        count += item_count(element, inner, count_max - count)
        if count > count_max:
            break
    return count


def has_many_items(body: Any, items: Items | None) -> bool:
    return items is not None and item_count(body, items, 1) > 1


def gather(body: Any, items: Items) -> Iterator[None]:
    """Merges elements of the same name and drops repetitions, in place. A step handles a bounded number of elements, at any depth."""
    yield from _gather(body, items, _Work())


class _Work:
    """The elements looked at in short lists since the last step."""

    count = 0

    def is_enough(self, count: int) -> bool:
        self.count += count
        if self.count < ELEMENTS_PER_STEP:
            return False
        self.count = 0
        return True


def _gather(body: Any, items: Items, work: _Work) -> Iterator[None]:
    elements = getattr(body, items.request)
    if not elements or (items.repeats is Repeats.ALL and items.inner is None):
        return
    kept: list[Any] = []
    counts: dict[Hashable, int] = {}
    places: dict[Hashable, int] = {}
    key, inner = items.key, items.inner
    may_repeat = inner is None and items.repeats.value > 1
    for number, element in enumerate(elements, 1):
        name = key(element)
        place = places.get(name)
        if place is None or (may_repeat and counts[name] < items.repeats.value):
            if may_repeat:
                counts[name] = counts.get(name, 0) + 1
            places[name] = len(kept)
            kept.append(element)
        elif inner is None:
            kept[place] = _joined_keys(kept[place], element)
        else:
            _add_inner(kept[place], element, inner)
        if not number % ELEMENTS_PER_STEP:
            elements[number - ELEMENTS_PER_STEP : number] = _NONE  # repetitions are freed a few at a time
            yield
    setattr(body, items.request, kept)
    if work.is_enough(len(elements)):
        yield
    if inner is not None:
        for element in kept:
            yield from _gather(element, inner, work)


def _joined_keys(known: Any, again: Any) -> Any:
    """The later of two elements of one name. If each asks for certain settings (DescribeConfigs), the result asks for the settings of both.
    """
    wanted = getattr(known, "configuration_keys", ())
    if wanted == ():
        return again
    more = again.configuration_keys
    if more and wanted:
        again.configuration_keys = list(dict.fromkeys([*wanted, *more]))
    else:
        again.configuration_keys = None
    return again


def _add_inner(known: Any, again: Any, inner: Items) -> None:
    elements, more = getattr(known, inner.request), getattr(again, inner.request)
    if elements is None or more is None:
        setattr(known, inner.request, None)
    else:
        elements += more


def cut(body: Any, items: Items) -> Iterator[tuple[Any, bool]]:
    """Yields requests of at most `items.at_once` innermost elements each, which together ask for the same. With each request yields whether
    an element ends with it; False if the next request continues the same element."""
    for some, is_end in _cut(getattr(body, items.request), items, items.at_once):
        yield _with(body, items.request, some), is_end


def _cut(elements: list[Any], items: Items, count_max: int) -> Iterator[tuple[list[Any], bool]]:
    inner = items.inner
    if inner is None:
        for first in range(0, len(elements), count_max):
            yield elements[first : first + count_max], True
        return
    piece: list[Any] = []
    count = 0
    for element in elements:
        own = item_count(element, inner, count_max)
        if piece and count + own > count_max:
            yield piece, True
            piece, count = [], 0
        if own > count_max:
            yield from _cut_element(element, inner, count_max)
        else:
            piece.append(element)
            count += own
    if piece:
        yield piece, True


def _cut_element(element: Any, inner: Items, count_max: int) -> Iterator[tuple[list[Any], bool]]:
    last: list[Any] | None = None
    for some, _is_end in _cut(getattr(element, inner.request), inner, count_max):
        if last is not None:
            yield last, False
        last = [_with(element, inner.request, some)]
    assert last is not None, "an element of many items has no piece"
    yield last, True


def _with(struct: Any, name: str, value: list[Any]) -> Any:
    """A copy of a struct with another value of one field."""
    copy = object.__new__(type(struct))
    for field in struct.__fields__:
        setattr(copy, field.name, getattr(struct, field.name))
    setattr(copy, name, value)
    return copy


def joined(parts: list[list[Any]], items: Items) -> Generator[None, None, list[Any]]:
    """The elements of answers about the same things, each once."""
    into: list[Any] = []
    known: dict[Hashable, Any] = {}
    for elements in parts:
        yield from _join(into, elements, items, known)
    return into


def _join(into: list[Any], elements: Any, items: Items, known: dict[Hashable, Any]) -> Iterator[None]:
    inner = items.inner
    if inner is None:
        into.extend(elements)
        return
    for element in elements:
        name = items.response_key(element)
        same = known.get(name)
        if same is None:
            into.append(element)
            known[name] = (element, {})
            if inner.inner is not None:
                own = getattr(element, inner.response)
                setattr(element, inner.response, [])
                yield from _join(getattr(element, inner.response), own, inner, known[name][1])
        else:
            first, of_first = same
            join_rest(first, element)
            yield from _join(getattr(first, inner.response), getattr(element, inner.response), inner, of_first)
        yield


def join_rest(first: Any, other: Any) -> None:
    """Joins the fields beside the elements: the first error counts, the longest throttle time, and the leaders' addresses of both."""
    for field in first.__fields__:
        if field.name == "error_code" and not first.error_code:
            first.error_code = other.error_code
        elif field.name == "throttle_time_ms":
            first.throttle_time_ms = max(first.throttle_time_ms, other.throttle_time_ms)
        elif field.name == "node_endpoints":
            first.node_endpoints += [found for found in other.node_endpoints if found not in first.node_endpoints]


def refuse(response_class: Callable[..., Any], body: Any, items: Items, code: ErrorCode, message: str) -> Any:
    """An answer that refuses every element of a request."""
    elements = _refused(_element_class(response_class, items), getattr(body, items.request), items, code, message)
    return response_class(**{items.response: elements})


def _element_class(owner: Any, items: Items) -> type[Struct]:
    (field,) = [field for field in owner.__fields__ if field.name == items.response]
    found: type[Struct] = field.struct
    return found


def _refused(cls: type[Struct], elements: Any, items: Items, code: ErrorCode, message: str) -> list[Any]:
    names = {field.name for field in cls.__fields__}
    refused = []
    for element in elements or ():
        values = [getattr(element, name) for name in items.names] or [element]
        known: dict[str, Any] = dict(zip(items.response_names, values, strict=True)) if items.response_names else {}
        if "error_code" in names:
            known["error_code"] = code
        if "error_message" in names:
            known["error_message"] = message
        if items.inner is not None:
            of = _refused(_element_class(cls, items.inner), getattr(element, items.inner.request), items.inner, code, message)
            known[items.inner.response] = of
        refused.append(cls(**known))
    return refused
