"""Decoding of the metrics in a push: which metrics are read, and that no payload can block the loop or use too much memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import WireError
from ottla.telemetry.otlp import FIELDS_MAX, NAME_BYTES_MAX, STEPS_MAX, TEXT_BYTES_MAX, Kind, Point, read_points
from tests.telemetry.otlp_writer import DELTA, counter, field, gauge, metrics, point, varint


def read(payload: bytes, prefix: str = "") -> list[Point]:
    return [found for found in read_points(payload, lambda name: name.startswith(prefix)) if found is not None]


def test_gauges_and_sums() -> None:
    payload = metrics(
        gauge("a", point(1.5), point(-2, node_id=7)),
        counter("b", point(3)),
        counter("c", point(4), temporality=DELTA),
        counter("d", point(5), is_monotonic=False),
    )
    assert read(payload) == [
        Point("a", Kind.GAUGE, (), 1.5),
        Point("a", Kind.GAUGE, (("node_id", "7"),), -2),
        Point("b", Kind.COUNTER, (), 3),
        Point("c", Kind.DELTA, (), 4),
        Point("d", Kind.GAUGE, (), 5),
    ]


def test_attributes_of_the_resource_precede_those_of_a_point() -> None:
    payload = metrics(gauge("a", point(1, topic="t", part=-1, share=0.5, on=True)), group_id="g") + metrics(gauge("b", point(2)))
    assert read(payload) == [
        Point("a", Kind.GAUGE, (("group_id", "g"), ("topic", "t"), ("part", "-1"), ("share", "0.5"), ("on", "true")), 1),
        Point("b", Kind.GAUGE, (), 2),
    ]


def test_only_wanted_metrics() -> None:
    assert [found.name for found in read(metrics(gauge("a.b", point(1)), gauge("b", point(2))), "a.")] == ["a.b"]


def test_other_kinds_of_metrics_and_unknown_fields_are_skipped() -> None:
    histogram = field(1, b"h") + field(9, field(1, b"\x19" + bytes(8)))
    unknown = field(100, 1) + field(101, b"x") + varint(102 << 3 | 5) + bytes(4)
    assert read(metrics(histogram, gauge("a", point(1)) + unknown)) == [Point("a", Kind.GAUGE, (), 1)]


def test_a_point_without_a_value() -> None:
    """franz-go omits 0."""
    assert read(metrics(gauge("a", b"", field(8, 1), field(8, 2)))) == [Point("a", Kind.GAUGE, (), 0)] * 2


def test_the_order_of_fields_is_free() -> None:
    data = field(3, 1) + field(1, point(1)) + field(2, 2)
    scope = field(2, field(7, data) + field(1, b"a"))
    assert read(field(1, field(2, scope) + field(1, field(1, field(2, field(1, b"v")) + field(1, b"k"))))) == [
        Point("a", Kind.COUNTER, (("k", "v"),), 1)
    ]


def test_large_parts_are_cut() -> None:
    assert read(metrics(gauge("n" * (NAME_BYTES_MAX + 1), point(1)))) == []
    (found,) = read(metrics(gauge("a", point(1, **{"k" * 1000: "v" * 1000}))))
    assert found.attributes == (("k" * TEXT_BYTES_MAX, "v" * TEXT_BYTES_MAX),)
    many = {f"k{index}": "v" for index in range(FIELDS_MAX + 9)}
    ((name, kind, attributes, value),) = read(metrics(gauge("a", field(4, 1.0) + point(1.0, **many))))
    assert (name, kind, len(attributes), value) == ("a", Kind.GAUGE, FIELDS_MAX - 1, 1.0)


def test_text_that_is_not_utf_8_is_shown() -> None:
    (found,) = read(metrics(field(1, b"a\xff") + field(5, field(1, point(1)))))
    assert found.name == "a\ufffd"


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0a\x05ab",  # fewer bytes than the length says
        b"\x0b",  # a group
        b"\x0a" + b"\xff" * 9,  # a length without an end
        b"\x0a" + b"\xff" * 10 + b"\x01",  # a number of more than 64 bits
        b"\x09\x01",  # a double that is cut off
        field(1, field(2, field(2, b"\x0a\x7f"))),
        field(1, b"\x0a\x05a"),
    ],
)
def test_malformed_payloads(payload: bytes) -> None:
    with pytest.raises(WireError):
        read(payload)


def test_a_payload_of_any_form_is_read_with_pauses() -> None:
    """One step reads at most a small message."""
    unknown = b"\x1a\x00" * 5_000
    empty_scopes = b"\x12\x00" * 5_000
    for payload in (unknown, metrics(*[b""] * 5_000), metrics(field(1, b"a") + unknown)):
        assert pauses(payload) >= 5_000
    for payload in (field(1, unknown), field(1, empty_scopes)):
        assert pauses(payload) >= 2 * 5_000, "the resource is looked for first"


def pauses(payload: bytes) -> int:
    return sum(found is None for found in read_points(payload, lambda _name: True))


def test_a_payload_of_countless_fields_is_read_in_part() -> None:
    assert pauses(b"\x12\x00" * (STEPS_MAX + 1)) == STEPS_MAX


def is_read_or_refused(payload: bytes) -> bool:
    try:
        return all(found.name for found in read(payload))
    except WireError:
        return True


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    assert is_read_or_refused(payload)


WHOLE = metrics(gauge("a", point(1.5, node_id=7)), counter("b", point(3)), group_id="g")


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(position: int, byte: int) -> None:
    assert is_read_or_refused(WHOLE[:position] + bytes([byte]) + WHOLE[position + 1 :])
