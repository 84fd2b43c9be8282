"""The time as Kafka writes it, in milliseconds since 1970, and as people read it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


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
