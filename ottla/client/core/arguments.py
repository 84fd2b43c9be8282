"""Checks the arguments of public calls against the annotations of the called function. Raises `UsageError` with what is expected.

`checked` decorates a method. `Arguments` is for code that wraps a function already, such as `ClientOperation` and `owned`. Annotations are
read at a function's first call, because a program calls few of the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from math import isnan
from types import NoneType, UnionType
from typing import Any, NamedTuple, ParamSpec, TypeVar, get_args, get_origin

from ottla.base.types import TopicPartition
from ottla.client.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")

_SHOWN_MAX = 100
"""Length of a wrong value in an error message, in characters."""


class _Kind(NamedTuple):
    """The values that an annotation allows. `text` names them in error messages."""

    text: str
    allows: Callable[[Any], bool]
    is_list: bool = False
    """Whether the value is a list. An iterator is read into a list first, so that its items can be checked."""


class Arguments:
    """The parameters of a function. With `is_method` the calls to check do not have the first one, such as `self`."""

    def __init__(self, function: Callable[..., Any], *, is_method: bool = True) -> None:
        self._function = function
        self._unchecked = (None,) * is_method
        self._kinds: dict[str, _Kind] | None = None
        self._positional: Sequence[str] = ()
        self._required: Sequence[tuple[int, str]] = ()
        """The position and name of each parameter without a default. Keyword-only parameters have higher positions."""

    def check(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Returns the arguments, with lists in place of iterators. Raises `UsageError` if an argument is unknown, missing, or of a wrong
        type.
        """
        kinds = self._read() if self._kinds is None else self._kinds
        given, positional = len(args), self._positional
        if (
            given > len(positional)
            or any(at >= given and name not in kwargs for at, name in self._required)
            or any(name not in kinds or name in positional[:given] for name in kwargs)
        ):
            self._refuse_call(args, kwargs)
        return (
            [self._checked(name, kinds[name], value) for name, value in zip(positional, args, strict=False)],
            {name: self._checked(name, kinds[name], value) if name in kinds else value for name, value in kwargs.items()},
        )

    def _checked(self, name: str, kind: _Kind, value: Any) -> Any:
        if kind.is_list and isinstance(value, Iterator):
            value = list(value)
        if not kind.allows(value):
            shown = " ".join(repr(value).split())
            shown = shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
            raise UsageError(f"{self._name}: {name} must be {kind.text}, not {shown}")
        return value

    def _refuse_call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raises `UsageError` if the function cannot be called with these arguments."""
        try:
            signature(self._function).bind(*self._unchecked, *args, **kwargs)
        except TypeError as error:
            raise UsageError(f"{self._name}: {error}") from None

    @property
    def _name(self) -> str:
        """The name of the function in error messages; the class if the function is `__init__`."""
        owner, _, name = self._function.__qualname__.rpartition(".")
        return owner if name == "__init__" else name.lstrip("_")

    def _read(self) -> dict[str, _Kind]:
        parameters = list(signature(self._function).parameters.values())[len(self._unchecked) :]
        named = [one for one in parameters if one.kind is not Parameter.VAR_KEYWORD]
        positional = [one.name for one in named if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
        names = self._function.__globals__
        self._positional = positional
        self._required = [(at, one.name) for at, one in enumerate(named) if one.default is Parameter.empty]
        self._kinds = {one.name: _kind(Any if one.annotation is Parameter.empty else eval(one.annotation, names)) for one in named}
        return self._kinds


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function or method: each call checks its arguments. A parameter without an annotation, such as `self`, is not
    checked.
    """
    arguments = Arguments(function, is_method=False)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        given, options = arguments.check(args, kwargs)
        return function(*given, **options)

    return call


# Kinds of annotations


def _kind(annotation: Any) -> _Kind:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return _union([_kind(part) for part in parts])
    if origin is Callable:
        return _Kind("a function", callable)
    if origin in (Mapping, dict):
        return _mapping(*map(_kind, parts))
    if annotation == Iterable[bytes]:  # the values of records may be an endless iterator, which is not copied
        return _Kind("an iterable of bytes", _is_iterable)
    if origin in (Iterable, Sequence, Collection, list):
        return _list(_kind(parts[0]))
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and annotation is not Any and not getattr(annotation, "_is_protocol", False):
        return _Kind(annotation.__name__, lambda value: isinstance(value, annotation))
    return _Kind("anything", lambda _: True)


def _union(kinds: Sequence[_Kind]) -> _Kind:
    texts = list(dict.fromkeys(kind.text for kind in kinds))
    text = f"{', '.join(texts[:-1])} or {texts[-1]}" if len(texts) > 1 else texts[0]
    allowing = [kind.allows for kind in kinds]
    return _Kind(text, lambda value: any(allows(value) for allows in allowing), any(kind.is_list for kind in kinds))


def _mapping(key: _Kind, value: _Kind) -> _Kind:
    def allows(given: Any) -> bool:
        return isinstance(given, Mapping) and all(key.allows(one) and value.allows(other) for one, other in given.items())

    return _Kind(f"a mapping from {key.text} to {value.text}", allows)


def _list(item: _Kind) -> _Kind:
    def allows(given: Any) -> bool:
        return _is_iterable(given) and all(map(item.allows, given))

    return _Kind(f"a list of {item.text}", allows, is_list=True)


def _is_iterable(value: Any) -> bool:
    """Whether a value has items. A str or bytes has none: a caller never means its characters."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray)


def _is_int(value: Any) -> bool:
    """Whether a value is a whole number, such as an int or an integer of numpy."""
    return value.__class__ is int or hasattr(value, "__index__")


def _is_number(value: Any) -> bool:
    """Whether a value is a number. Not-a-number is none: a wait of that time would never end."""
    if isinstance(value, float):
        return not isnan(value)
    return hasattr(value, "__float__") or _is_int(value)


def _is_partition(value: Any) -> bool:
    return isinstance(value, TopicPartition) and isinstance(value.topic, str) and _is_int(value.partition)


_BYTES = _Kind("bytes", lambda value: isinstance(value, bytes | bytearray | memoryview))
_PLAIN: dict[Any, _Kind] = {
    NoneType: _Kind("None", lambda value: value is None),
    int: _Kind("int", _is_int),
    float: _Kind("a number", _is_number),
    bytes: _BYTES,
    bytearray: _Kind("bytearray", lambda value: isinstance(value, bytearray)),
    memoryview: _BYTES,
    TopicPartition: _Kind("TopicPartition(str, int)", _is_partition),
}
