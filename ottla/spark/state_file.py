"""Stores the state of a running pipeline in a small JSON file next to its checkpoint; the file is replaced atomically at each change."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ottla.spark.local_files import is_alive, replace_file

RUNNING, STOPPED, FAILED, KILLED = "running", "stopped", "failed", "killed"


@dataclass(slots=True, kw_only=True)
class SourcePosition:
    """One source partition: the group's committed offset, the last stable offset of its log, and the age of the first record that is not
    committed (0 without lag)."""

    topic: str
    partition: int
    committed: int
    end: int
    lag_seconds: float = 0.0

    @property
    def lag(self) -> int:
        """Returns the offsets that are not committed yet; transaction markers count."""
        return max(0, self.end - self.committed)


@dataclass(slots=True, kw_only=True)
class PipelineState:
    """The state of one pipeline. Times are milliseconds since 1970, 0 means never. Counts continue over restarts.

    `rows_in` and `batch_ms` are from Spark's progress. `commits`, `rows_out` and the positions are from the group's log, read up to
    `log_position`; they are exact, also for batches whose progress was not seen. `log_restarts` is the number of restarts in the group's
    log, -1 if unknown.
    """

    group: str
    sources: list[str] = field(default_factory=list)
    sinks: list[str] = field(default_factory=list)
    state: str = STOPPED
    error: str = ""
    host: str = ""
    process_id: int = 0
    query_id: str = ""
    starts: int = 0
    started_ms: int = 0
    updated_ms: int = 0
    batch_id: int = -1
    batches: int = 0
    batch_ms: int = 0
    rows_in: int = 0
    commits: int = 0
    rows_out: int = 0
    last_commit_ms: int = 0
    log_position: int = 0
    log_restarts: int = -1
    positions: list[SourcePosition] = field(default_factory=list)

    @property
    def restarts(self) -> int | None:
        """Returns how often the pipeline was started again; None if unknown. It is the larger one of two counts: the starts on this machine
        do not include those on others, and the log does not have the runs that committed no batch."""
        found = max(self.starts - 1, self.log_restarts)
        return None if found < 0 else found

    @property
    def lag(self) -> int:
        return sum(position.lag for position in self.positions)

    @property
    def lag_seconds(self) -> float:
        """Returns the age of the oldest record that is not committed; 0 without lag."""
        return max((position.lag_seconds for position in self.positions), default=0.0)


def is_killed(state: PipelineState) -> bool:
    """Whether the pipeline's process has died without recording its end. False for a process on another host, which cannot be checked."""
    return state.state == RUNNING and state.host == socket.gethostname() and not is_alive(state.process_id)


def state_path(checkpoint: str, group: str) -> Path:
    """Returns the path of a pipeline's state file: beside a local checkpoint, else in the working directory."""
    local = checkpoint.removeprefix("file://")
    if "://" in local:
        return Path(f"{group}.state.json")
    return Path(local.rstrip("/") + ".state.json")


def load_state(path: Path) -> PipelineState | None:
    """Returns the stored state; None if there is none or it is invalid."""
    try:
        value: Any = json.loads(path.read_text())
        if not isinstance(value, dict):
            return None
        known = {one.name for one in fields(PipelineState)}
        state = PipelineState(**{name: found for name, found in value.items() if name in known})
        state.positions = [SourcePosition(**found) for found in value.get("positions", [])]
    except (OSError, ValueError, TypeError):
        return None
    return state


def save_state(path: Path, state: PipelineState) -> None:
    replace_file(path, json.dumps(asdict(state), indent=1) + "\n", 0o644)
