"""Reads the metrics of a push: OpenTelemetry's `MetricsData` in the wire format of Protocol Buffers.

Gauges and sums with their attributes are read. Histograms and summaries are skipped, because clients of Kafka send none. Any client may
send any payload, so every part is limited: names and texts in bytes, small messages in their number of fields. Anything above a limit is
ignored. The reader is a generator that pauses after each field of a large message, so a payload of any form can be read in time slices.

Malformed bytes raise `WireError`. Fields that are unknown, or have another type than expected, are skipped as the format demands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from struct import Struct
from typing import NamedTuple

from ottla.base.errors import WireError

NAME_BYTES_MAX = 256
"""Maximum length of a metric's name in bytes; a metric with a longer name is skipped. The longest name of Kafka's clients has 85."""
TEXT_BYTES_MAX = 256
"""Bytes of an attribute's name or value that are read. 256: a client id, a group id or a topic's name is whole up to 249."""
FIELDS_MAX = 64
"""Maximum number of fields read of one data point or resource. 64: Kafka's clients send fewer than ten attributes."""
STEPS_MAX = 100_000
"""Maximum number of fields and points read of one payload, without the fields of small messages. 100,000: a push of Java's client with 250
series takes 3,250, and a kilobyte of compressed empty fields took two seconds."""
VALUE_FIELDS_MAX = 4
"""Maximum number of fields read of one attribute or value; the format has two and one."""

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_FIXED_SIZES = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


def _tag(number: int, wire_type: int = _LENGTH) -> int:
    return number << 3 | wire_type


RESOURCE_METRICS = _tag(1)
RESOURCE, SCOPE_METRICS = _tag(1), _tag(2)
RESOURCE_ATTRIBUTE = _tag(1)
METRIC = _tag(2)
METRIC_NAME, METRIC_GAUGE, METRIC_SUM = _tag(1), _tag(5), _tag(7)
DATA_POINT, TEMPORALITY, IS_MONOTONIC = _tag(1), _tag(2, _VARINT), _tag(3, _VARINT)
POINT_ATTRIBUTE, AS_DOUBLE, AS_INT, FLAGS = _tag(7), _tag(4, _EIGHT_BYTES), _tag(6, _EIGHT_BYTES), _tag(8, _VARINT)
KEY, VALUE = _tag(1), _tag(2)
STRING_VALUE, BOOL_VALUE, INT_VALUE, DOUBLE_VALUE = _tag(1), _tag(2, _VARINT), _tag(3, _VARINT), _tag(4, _EIGHT_BYTES)
DELTA_TEMPORALITY = 1
NO_VALUE = 1
"""A flag of a point that has no value."""

_DOUBLE = Struct("<d")
_INT64 = Struct("<q")

Attributes = tuple[tuple[str, str], ...]
Covers = Callable[[str], bool]


class Kind(Enum):
    """The meaning of a value: the current value, the sum since the client's start, or the sum since its last push."""

    GAUGE = "gauge"
    COUNTER = "counter"
    DELTA = "delta"


class Point(NamedTuple):
    """One value of a metric. The resource's attributes precede the point's."""

    name: str
    kind: Kind
    attributes: Attributes
    value: float


def read_points(data: bytes, covers: Covers) -> Iterator[Point | None]:
    """Yields the points of the metrics whose names `covers` accepts. Yields None where the caller may let other work run. Raises
    `WireError`.
    """
    return islice(_points(data, covers), STEPS_MAX)


def _points(data: bytes, covers: Covers) -> Iterator[Point | None]:
    for tag, part in _fields(data):
        yield None
        if tag == RESOURCE_METRICS:
            yield from _resource_metrics(_message(part), covers)


def _resource_metrics(data: bytes, covers: Covers) -> Iterator[Point | None]:
    attributes: Attributes = ()
    for tag, part in _fields(data):
        yield None
        if tag == RESOURCE:
            attributes = _attributes(_message(part), RESOURCE_ATTRIBUTE)
    for tag, part in _fields(data):
        yield None
        if tag == SCOPE_METRICS:
            for inner, metric in _fields(_message(part)):
                yield None
                if inner == METRIC:
                    yield from _metric(_message(metric), attributes, covers)


def _metric(data: bytes, resource: Attributes, covers: Covers) -> Iterator[Point | None]:
    name, is_sum, content = b"", False, b""
    for tag, part in _fields(data):
        yield None
        if tag == METRIC_NAME:
            name = _message(part)
        elif tag in (METRIC_GAUGE, METRIC_SUM):
            is_sum, content = tag == METRIC_SUM, _message(part)
    text = _text(name)
    if not text or len(name) > NAME_BYTES_MAX or not covers(text):
        return
    temporality = monotonic = 0
    for tag, part in _fields(content):
        yield None
        if tag == TEMPORALITY:
            temporality = _number(part)
        elif tag == IS_MONOTONIC:
            monotonic = _number(part)
    kind = Kind.GAUGE
    if is_sum and monotonic:
        kind = Kind.DELTA if temporality == DELTA_TEMPORALITY else Kind.COUNTER
    for tag, part in _fields(content):
        yield None
        if tag == DATA_POINT:
            point = _message(part)
            value = _value_of(point)
            if value is not None:
                yield Point(text, kind, resource + _attributes(point, POINT_ATTRIBUTE), value)


def _value_of(point: bytes) -> float | None:
    """Returns None for a point that has no value. franz-go omits the value 0."""
    value, flags = 0.0, 0
    for tag, part in islice(_fields(point), FIELDS_MAX):
        if tag == AS_DOUBLE:
            value = _DOUBLE.unpack(_message(part))[0]
        elif tag == AS_INT:
            value = _INT64.unpack(_message(part))[0]
        elif tag == FLAGS:
            flags = _number(part)
    return None if flags & NO_VALUE else value


def _attributes(data: bytes, wanted: int) -> Attributes:
    """Returns the attributes with a value that is a text, a number or a boolean."""
    found = []
    for tag, part in islice(_fields(data), FIELDS_MAX):
        if tag != wanted:
            continue
        key, value = "", None
        for inner, content in islice(_fields(_message(part)), VALUE_FIELDS_MAX):
            if inner == KEY:
                key = _text(_message(content))
            elif inner == VALUE:
                value = _any_value(_message(content))
        if key and value is not None:
            found.append((key, value))
    return tuple(found)


def _any_value(data: bytes) -> str | None:
    text = None
    for tag, part in islice(_fields(data), VALUE_FIELDS_MAX):
        if tag == STRING_VALUE:
            text = _text(_message(part))
        elif tag == BOOL_VALUE:
            text = "true" if part else "false"
        elif tag == INT_VALUE:
            number = _number(part)
            text = str(number - (1 << 64) if number >> 63 else number)
        elif tag == DOUBLE_VALUE:
            text = str(_DOUBLE.unpack(_message(part))[0])
    return text


# The wire format


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields tag and content of each field: a number for a varint, otherwise the bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            number, position = _varint(data, position)
            yield tag, number
            continue
        if wire_type == _LENGTH:
            size, position = _varint(data, position)
        elif wire_type in _FIXED_SIZES:
            size = _FIXED_SIZES[wire_type]
        else:
            raise WireError(f"a field of metrics has the wire type {wire_type}")
        if size > end - position:
            raise WireError("a field of metrics is cut off")
        yield tag, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number and the position behind it."""
    number = shift = 0
    for byte in data[position : position + _VARINT_BYTES_MAX]:
        number |= (byte & 127) << shift
        position += 1
        if byte < 128:
            return number & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise WireError("a number in metrics is cut off or too long")


def _message(part: int | bytes) -> bytes:
    assert isinstance(part, bytes), "the tag says that the field has bytes"
    return part


def _number(part: int | bytes) -> int:
    assert isinstance(part, int), "the tag says that the field is a varint"
    return part


def _text(data: bytes) -> str:
    return data[:TEXT_BYTES_MAX].decode(errors="replace")
