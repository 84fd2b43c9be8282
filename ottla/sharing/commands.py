"""The commands of a share coordinator and their result.

Each command is about one share partition and has one answer, so that all of them are routed in one way, to this broker or another,
and one table of errors says which are worth a retry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState


class InitializeState(NamedTuple):
    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class ReadState(NamedTuple):
    key: SharePartitionKey
    leader_epoch: int


class ReadSummary(NamedTuple):
    key: SharePartitionKey
    leader_epoch: int


class WriteState(NamedTuple):
    key: SharePartitionKey
    state: ShareState


class DeleteState(NamedTuple):
    key: SharePartitionKey


StateCommand = InitializeState | ReadState | ReadSummary | WriteState | DeleteState


class StateResult(NamedTuple):
    """`state` is there for a read or a summary that succeeded; `message` says more about a refusal."""

    code: ErrorCode
    state: ShareState | None = None
    message: str | None = None


DoneResult = Callable[[StateResult], None]
WRITTEN = StateResult(ErrorCode.NONE)
