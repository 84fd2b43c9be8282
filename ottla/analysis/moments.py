"""The time as Kafka writes it, in milliseconds since 1970, and as people read and write it."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"@?-(\d+)\s*(ms|s|m|h|d|w)")
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def format_ms(timestamp: int) -> str | None:
    """Returns milliseconds since 1970 as a date in UTC: None for a negative number, the digits for a number after the year 9999."""
    if timestamp < 0:
        return None
    try:
        found = datetime.fromtimestamp(timestamp / 1000, tz=UTC)
    except (OverflowError, OSError, ValueError):
        return str(timestamp)
    return found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp % 1000:03d}Z"


def parse_datetime_ms(text: str) -> int:
    """Returns `YYYY-MM-DD` or `YYYY-MM-DDTHH:mm:SS.sss`, with or without a zone (UTC), as milliseconds since 1970. Raises ValueError with
    a message for people."""
    message = f"{text!r} is not a date and time; write YYYY-MM-DDTHH:mm:SS.sss"
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        raise ValueError(message)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(message) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=500)) // timedelta(milliseconds=1)


def parse_moment_ms(text: str, now: int | None = None) -> int:
    """Returns a date, milliseconds since 1970 or `-1h`, perhaps after `@`, as milliseconds since 1970. Raises ValueError with a message for
    people."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return (now_ms() if now is None else now) - int(ago.group(1)) * UNITS_MS[ago.group(2)]
    digits = text.strip().removeprefix("@")
    if digits.isascii() and digits.isdigit():
        return int(digits)
    return parse_datetime_ms(digits)
