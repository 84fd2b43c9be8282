"""Numbers of JSON with the digits with which they were written: 2.50 stays 2.50, and a long fraction loses nothing.

Python reads a number with a fraction as the nearest binary one and prints that. Data that only pass through must not change.
"""

from __future__ import annotations

import math


class WrittenFloat(float):
    """Compares and calculates as a float; `str` gives the text that it was read from. For `json.loads(..., parse_float=WrittenFloat)`."""

    text: str

    def __new__(cls, text: str) -> WrittenFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def finite(text: str) -> WrittenFloat:
    """ValueError for NaN and for numbers beyond those of JSON's readers."""
    number = WrittenFloat(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
