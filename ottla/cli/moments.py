"""Parses times as people write them: ISO dates (UTC unless a zone is given), milliseconds since 1970, `-1h` for an hour ago. Also parses
ISO durations."""

from __future__ import annotations

import re

from ottla.analysis import moments
from ottla.cli.command import UsageError

_DURATION = re.compile(r"([-+]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


def parse_datetime_ms(text: str) -> int:
    """Returns a date and time as milliseconds since 1970 (`analysis/moments.py`). Raises UsageError."""
    try:
        return moments.parse_datetime_ms(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def parse_duration_ms(text: str) -> int:
    """Returns `PnDTnHnMnS` or `PnW`, with a sign or without, in milliseconds. Raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()[1:]) or text.strip().upper().endswith("T"):
        raise UsageError(f"{text!r} is not a duration; write PnDTnHnMnS, for instance PT1H30M")
    weeks, days, hours, minutes = (int(part or 0) for part in match.groups()[1:5])
    seconds = float(match.group(6) or 0)
    total = ((weeks * 7 + days) * 24 + hours) * 3_600_000 + minutes * 60_000 + round(seconds * 1000)
    return -total if match.group(1) == "-" else total


def parse_moment_ms(text: str, now: int | None = None) -> int:
    """Returns a date, milliseconds since 1970 or `-1h` as milliseconds since 1970 (`analysis/moments.py`). Raises UsageError."""
    try:
        return moments.parse_moment_ms(text, now)
    except ValueError as error:
        raise UsageError(str(error)) from None
