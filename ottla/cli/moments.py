"""Parses times as people write them: ISO dates (UTC unless a zone is given), milliseconds since 1970, `-1h` for an hour ago. Also parses
ISO durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ottla.analysis.moments import now_ms
from ottla.cli.command import UsageError

_AGO = re.compile(r"@?-(\d+)\s*(ms|s|m|h|d|w)")
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"([-+]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


def parse_datetime_ms(text: str) -> int:
    """Returns `YYYY-MM-DD` or `YYYY-MM-DDTHH:mm:SS.sss`, with or without a zone, as milliseconds since 1970. Raises UsageError."""
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        raise UsageError(f"{text!r} is not a date and time; write YYYY-MM-DDTHH:mm:SS.sss")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a date and time; write YYYY-MM-DDTHH:mm:SS.sss") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    whole = int((found - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000 + 0.5)
    return whole


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
    """Returns a date, milliseconds since 1970 or `-1h`, perhaps after `@`, as milliseconds since 1970. Raises UsageError."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return (now_ms() if now is None else now) - int(ago.group(1)) * UNITS_MS[ago.group(2)]
    digits = text.strip().removeprefix("@")
    if digits.isascii() and digits.isdigit():
        return int(digits)
    return parse_datetime_ms(digits)
