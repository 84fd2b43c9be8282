"""The commands of a share coordinator and their result.

Each command is about one share partition and has one answer, so that all of them are routed in one way, to this broker or another,
and one table of errors says which are worth a retry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState


class Initialize(NamedTuple):
    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class ReadState(NamedTuple):
    key: SharePartitionKey
    leader_epoch: int


class ReadSummary(NamedTuple):
    key: SharePartitionKey
    leader_epoch: int


class Write(NamedTuple):
    key: SharePartitionKey
    state: ShareState


class Delete(NamedTuple):
    key: SharePartitionKey


Command = Initialize | ReadState | ReadSummary | Write | Delete


class Result(NamedTuple):
    """`state` is there for a read or a summary that succeeded; `message` says more about a refusal."""

    code: ErrorCode
    state: ShareState | None = None
    message: str | None = None


DoneResult = Callable[[Result], None]
WRITTEN = Result(ErrorCode.NONE)
