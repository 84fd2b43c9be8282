"""Prints keys and values that are numbers or booleans, as Kafka's deserializers read them: `key.deserializer=...LongDeserializer`.

Only the last part of the class name matters. Text, bytes and UUIDs are printed unchanged, floating-point numbers as in Java.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal

from ottla.cli.command import Refused, UsageError

Deserializer = Callable[[bytes], bytes]

_AS_THEY_ARE = ("StringDeserializer", "ByteArrayDeserializer", "ByteBufferDeserializer", "BytesDeserializer", "UUIDDeserializer")
_FORMATS = {
    "ShortDeserializer": ">h",
    "IntegerDeserializer": ">i",
    "LongDeserializer": ">q",
    "FloatDeserializer": ">f",
    "DoubleDeserializer": ">d",
    "BooleanDeserializer": ">?",
}


def deserializer(name: str | None) -> Deserializer | None:
    """Returns a function from bytes to printed text, None for a class whose bytes are printed unchanged. Raises UsageError for an unknown
    class. The function raises `Refused` for data of another length than the class needs."""
    if name is None or name.rpartition(".")[2] in _AS_THEY_ARE:
        return None
    short = name.rpartition(".")[2]
    if short not in _FORMATS:
        raise UsageError(f"no deserializer {name!r}; there are {', '.join((*_AS_THEY_ARE, *_FORMATS))}")
    form = struct.Struct(_FORMATS[short])
    is_single = short == "FloatDeserializer"

    def read(data: bytes) -> bytes:
        if len(data) != form.size:
            raise Refused(f"{short} needs {form.size} bytes, this record has {len(data)}", "SERIALIZATION")
        (value,) = form.unpack(data)
        if isinstance(value, bool):
            return b"true" if value else b"false"
        return (java_decimal(value, is_single=is_single) if isinstance(value, float) else str(value)).encode()

    return read


def java_decimal(value: float, *, is_single: bool = False) -> str:
    """Returns a number as Java prints a double, or a float if `is_single`: 1.0, 1.0E10, 1.2E-5, NaN, Infinity."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = _shortest_single(value) if is_single else repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = format(Decimal(text), "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, _ = Decimal(text).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{Decimal(text).adjusted()}"


def _shortest_single(value: float) -> str:
    """Returns the shortest decimal number that rounds to the same 32-bit float."""
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.pack(">f", float(text)) == struct.pack(">f", value):
            return text
    return repr(value)
