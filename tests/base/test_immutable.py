"""`immutable`: objects are slotted, compared and hashed by their fields, and what the type checker refuses is refused."""

from __future__ import annotations

from dataclasses import field, replace

import pytest

from ottla.base.immutable import immutable


@immutable
class Point:
    x: int
    y: int = 0


@immutable(kw_only=True)
class Named:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)


def test_objects_are_equal_and_hash_alike_when_their_fields_are() -> None:
    assert Point(1) == Point(1, 0) != Point(2)
    assert {Point(1): "found"}[Point(1, 0)] == "found"
    assert replace(Named(name="a"), name="b") == Named(name="b", tags=())


def test_there_is_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError):
        object.__setattr__(Point(1), "z", 3)
    with pytest.raises(TypeError):
        Named("a")  # type: ignore[call-arg]


def test_the_type_checker_refuses_assignments() -> None:
    """`make lint` checks this module, and fails if the comment below ignores nothing. There is no check at run time."""
    point = Point(1)
    point.x = 2  # type: ignore[misc]
    assert point == Point(2)
