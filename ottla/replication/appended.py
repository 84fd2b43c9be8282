"""The result of an append by a leader."""

from __future__ import annotations

from typing import NamedTuple


class AppendResult(NamedTuple):
    """The offsets of an appended batch; `log_append_time_ms` is -1 unless the broker sets the timestamps."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
