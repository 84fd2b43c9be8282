"""What a share coordinator can be asked, and what it answers.

Each command is about one share partition and has one answer, so that one way leads all of them to the coordinator, be it here or elsewhere,
and one table of errors says which of them are worth another try.
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
