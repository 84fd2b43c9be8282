"""Makes the largest valid bodies of every API. Each is the API's sample request with one array filled, by one repeated name or by different
names, or with one text of the maximum length.

Bodies are made from the messages' declarations, so a new API is included without a change here. All arrays and texts of the request's
version are used: tagged ones too, and those in one element of each array, at any depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.wire.codec import encoder
from ottla.wire.schema import Field, Request, Struct, StructType

REPEATED, DIFFERENT = "one name repeated", "all names different"
TEXT_BYTES_MAX = 32_767
TEXTS = ("string", "octets", "records")


class Body(NamedTuple):
    """One large request."""

    name: str
    request: Request
    version: int


def large_bodies(sample: Request, version: int, bytes_max: int, text_bytes_max: int | None = None) -> Iterator[Body]:
    """Yields every large body of the sample's API, in one version; texts may be longer than arrays."""
    for path in array_paths(type(sample), version):
        for kind in (REPEATED, DIFFERENT):
            name = f"{bytes_max >> 10} KiB of {'.'.join(path)}, {kind}"
            yield Body(name, filled(sample, version, path, kind, bytes_max), version)
    for path in text_paths(type(sample), version):
        whole: Request = copied(sample)
        owner, field = reached(whole, path, version)
        size = bytes_max if text_bytes_max is None else text_bytes_max
        size = min(size, TEXT_BYTES_MAX) if field.kind == "string" else size
        setattr(owner, field.name, "x" * size if field.kind == "string" else bytes(size))
        yield Body(f"{size >> 10} KiB in {'.'.join(path)}", whole, version)


def array_paths(cls: type[Struct], version: int) -> list[list[str]]:
    """Yields the paths of the arrays of a struct and of their elements."""
    return [path for path, field in _paths(cls, version) if field.kind == "array"]


def text_paths(cls: type[Struct], version: int) -> list[list[str]]:
    """Yields the paths of the texts and bytes of a struct and of its arrays' elements."""
    return [path for path, field in _paths(cls, version) if field.kind in TEXTS]


def _paths(cls: type[Struct], version: int) -> Iterator[tuple[list[str], Field]]:
    for field in cls.__fields__:
        if field.is_in(version):
            yield [field.name], field
            if field.kind == "array" and isinstance(field.of, StructType):
                yield from (([field.name, *path], inner) for path, inner in _paths(field.struct, version))


def reached(whole: Any, path: list[str], version: int) -> tuple[Any, Field]:
    """Returns the struct that has the field at the path, and the field. Each array on the path gets one element, which is a copy."""
    owner = whole
    for name in path[:-1]:
        elements = getattr(owner, name) or [example(field_of(type(owner), name), version)]
        inner = copied(elements[0])
        setattr(owner, name, [inner])
        owner = inner
    return owner, field_of(type(owner), path[-1])


def filled(request: Request, version: int, path: list[str], kind: str, bytes_max: int) -> Request:
    """Returns a copy of the request with the array at the path filled."""
    whole: Request = copied(request)
    owner, field = reached(whole, path, version)
    known = getattr(owner, field.name)
    element = known[0] if known else example(field, version)
    setattr(owner, field.name, [element] * 1000)
    at_thousand = len(encoder(type(request), version)(whole))
    setattr(owner, field.name, [element])
    element_bytes = max(1, (at_thousand - len(encoder(type(request), version)(whole))) // 999)
    count = bytes_max // (element_bytes + 6 if kind == DIFFERENT else element_bytes)
    if kind == REPEATED:
        setattr(owner, field.name, [element] * count)
    else:
        setattr(owner, field.name, [renamed(element, number, version, field) for number in range(count)])
    return whole


def copied(struct: Any) -> Any:
    copy = object.__new__(type(struct))
    for field in struct.__fields__:
        setattr(copy, field.name, getattr(struct, field.name))
    return copy


def field_of(cls: type[Struct], name: str) -> Field:
    (field,) = [field for field in cls.__fields__ if field.name == name]
    return field


def example(field: Field, version: int) -> Any:
    """Returns an element for an array that is empty in the sample."""
    if isinstance(field.of, StructType):
        return field.struct()
    kind = field.element.kind
    return "" if kind == "string" else b"" if kind == "octets" else bytes(16) if kind == "uuid" else 0


def renamed(element: Any, number: int, version: int, array: Field) -> Any:
    """Returns another element of the same kind: its first name or number is different."""
    if isinstance(element, str):
        return f"{element}{number}"
    if isinstance(element, bytes):
        return number.to_bytes(16, "big")
    if isinstance(element, int):
        return number % 100 if array.element.kind in ("i8", "boolean") else number
    copy = copied(element)
    for field in copy.__fields__:
        value = getattr(copy, field.name)
        if field.is_in(version) and field.kind == "string" and value is not None:
            setattr(copy, field.name, f"{value}{number}")
            return copy
    for field in copy.__fields__:
        if field.is_in(version) and field.kind in ("i32", "uuid"):
            setattr(copy, field.name, number.to_bytes(16, "big") if field.kind == "uuid" else number)
            return copy
    return copy
