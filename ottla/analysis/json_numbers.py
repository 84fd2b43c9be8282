"""Reads and writes JSON numbers with their digits unchanged: 2.50 stays 2.50, and a long fraction loses no digit. Python would round a
number with a fraction to the nearest binary number, but records that are only copied must not change.
"""

from __future__ import annotations

import json
import math
from typing import Any


class WrittenFloat(float):
    """A float that `str` prints as it was written. For `json.loads(..., parse_float=WrittenFloat)`."""

    text: str

    def __new__(cls, text: str) -> WrittenFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def json_text(value: Any, *, is_compact: bool = False) -> str:
    """Returns the value as JSON, each `WrittenFloat` with its digits. A value nested too deep for Python's stack has rounded numbers."""
    separators = (",", ":") if is_compact else (", ", ": ")
    try:
        return _with_digits(value, *separators)
    except RecursionError:
        return json.dumps(value, ensure_ascii=False, separators=separators)


def _with_digits(value: Any, comma: str, colon: str) -> str:
    if isinstance(value, WrittenFloat):
        return value.text
    if isinstance(value, dict):
        members = [f"{json.dumps(name, ensure_ascii=False)}{colon}{_with_digits(found, comma, colon)}" for name, found in value.items()]
        return f"{{{comma.join(members)}}}"
    if isinstance(value, list):
        return f"[{comma.join([_with_digits(found, comma, colon) for found in value])}]"
    return json.dumps(value, ensure_ascii=False)


def finite(text: str) -> WrittenFloat:
    """Returns the number. Raises ValueError for NaN, and for a number that is infinite as a float, such as 1e999."""
    number = WrittenFloat(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
