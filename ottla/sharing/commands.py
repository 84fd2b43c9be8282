"""The commands of a share coordinator and their result.

Each command is about one share partition and has one answer. All commands can therefore be routed in the same way, to this broker or
another. `persister.py` lists the retriable errors of all commands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState


class InitializeState(NamedTuple):
    """Creates the state, or resets it if the state epoch is not lower than the stored one. The new state has no batches."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class ReadState(NamedTuple):
    """Reads the state. The leader of the partition thereby takes over the state with its leader epoch."""

    key: SharePartitionKey
    leader_epoch: int


class ReadSummary(NamedTuple):
    """Reads the state without its batches. Changes nothing."""

    key: SharePartitionKey
    leader_epoch: int


class WriteState(NamedTuple):
    """Merges changes into the state. Refused for an older leader or another state epoch."""

    key: SharePartitionKey
    state: ShareState


class DeleteState(NamedTuple):
    """Deletes the state. Succeeds if there is none."""

    key: SharePartitionKey


StateCommand = InitializeState | ReadState | ReadSummary | WriteState | DeleteState


class StateResult(NamedTuple):
    """`state` is set for a successful read or summary; `message` explains an error."""

    code: ErrorCode
    state: ShareState | None = None
    message: str | None = None


DoneResult = Callable[[StateResult], None]
WRITTEN = StateResult(ErrorCode.NONE)
