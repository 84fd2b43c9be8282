"""The pytest plugin's work around each test: ends the faults of its brokers, and adds the brokers' logs to the report of a failed test.

Imported only when `ottla.testing.handle` is.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ottla.testing.handle import BrokerHandle

LOG_BYTES_MAX = 20_000


class LogMark(NamedTuple):
    path: Path
    size_bytes: int


def end_faults() -> None:
    for handle in BrokerHandle.all_handles():
        handle.end_faults()


def mark_logs() -> list[LogMark]:
    return [LogMark(path, _size(path)) for handle in BrokerHandle.all_handles() for path in handle.log_files.values()]


def logs_since(marks: list[LogMark]) -> list[tuple[str, str]]:
    """Returns a title and the new log lines of each broker that has any, at most the last `LOG_BYTES_MAX`."""
    starts = {mark.path: mark.size_bytes for mark in marks}
    found = []
    for handle in BrokerHandle.all_handles():
        for name, path in handle.log_files.items():
            text = _read(path, starts.get(path, 0))
            if text:
                found.append((f"Log of {name} at {handle.direct_server}", text))
    return sorted(found)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, start: int) -> str:
    try:
        data = path.read_bytes()[start:]
    except OSError:
        return ""  # it was removed with its broker
    cut = "...\n" if len(data) > LOG_BYTES_MAX else ""
    return cut + data[-LOG_BYTES_MAX:].decode(errors="replace")
