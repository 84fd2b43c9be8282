"""The interface of a coordinator as a state machine (a *machine*), whose state is computed from the records of its log. Each command has
five steps: decide, append, apply, hold, release.

`decide` reads state and returns a `Decision`; it changes no hard state. Only `apply` and `apply_marker` write hard state; they cannot fail
on a logged record, and read no clock. `resume` runs once after loading, and repeats effects that were possibly lost with the previous
leader. The host (`host.py`) appends the records; if this fails, hard state is unchanged. It applies them, holds the effects until the high
watermark has passed the records, and then releases the effects. An effect without records waits for the last applied offset, so that no
answer depends on records that may still be lost. When leadership is lost, the machine is dropped; the next leader loads it from the log.

`decide` may change soft state (waiting members, deadlines). Soft state is never logged and may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable

Reply = Callable[[Any], None]
"""Takes the response object; called exactly once, when the answer may be sent."""


@immutable
class LogRecord:
    """One record of an internal topic: encoded key, encoded value (None is a tombstone)."""

    key: bytes
    value: bytes | None


@immutable
class Transactional:
    """A client's transaction. Its records take effect when the commit marker is applied."""

    producer_id: int
    producer_epoch: int


@immutable
class Respond:
    """Effect: sends this response to the caller."""

    reply: Reply
    response: Any


@immutable
class Schedule:
    """Effect: runs `decide(now_ms)` after `delay_ms`. It replaces a scheduled decision with the same key. Schedules are soft state."""

    key: str
    delay_ms: int
    decide: Callable[[int], Decision]


@immutable
class Cancel:
    """Effect: cancels the scheduled decision with this key."""

    key: str


@immutable
class Call:
    """Effect: calls a function outside the machine, for example to send markers or a request to another broker. The function must not
    raise. After a change of leader the next coordinator may call it again.
    """

    function: Callable[[], None]


Effect = Respond | Schedule | Cancel | Call


def refuse_nothing(_code: ErrorCode) -> Sequence[Effect]:
    """Returns no effects: the refusal of a decision without a waiting client."""
    return ()


@immutable
class Decision:
    """The result of a command: records to log first, and effects to release when they are committed. `draft.py` builds it.

    `refused` returns the effects if the append fails, or if the host closes before the records are committed. They must answer every caller
    that `effects` would have answered. `parts` (instead of `records`) are independent decisions. The host logs
    their records in one batch. It halves a batch that is too large, so that each half is logged or refused separately. If all parts were
    logged, `effects` follow, otherwise `refused`.
    """

    records: Sequence[LogRecord] = ()
    effects: Sequence[Effect] = ()
    transactional: Transactional | None = None
    refused: Callable[[ErrorCode], Sequence[Effect]] = refuse_nothing
    parts: Sequence[Decision] = ()


NOTHING = Decision()

Decide = Callable[[int], Decision]
"""Takes the time in milliseconds."""
RunDecision = Callable[[Decide], None]
"""Runs a decision that a machine makes without a command, on its own host."""


def run_nothing(_decide: Decide) -> None:
    """The `RunDecision` of a machine that has no host, or whose host is closed."""


class Machine(Protocol):
    """One shard of a coordinator. Its hard state is a function of the log."""

    def apply(self, offset: int, record: LogRecord, transactional: Transactional | None) -> None:
        """Applies a logged record to hard state; a `transactional` record is pending until `apply_marker`."""

    def apply_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Commits or aborts a client's transaction in this log."""

    def resume(self, now_ms: int) -> Decision:
        """Called once when loading has reached the end of the log."""


class MachineLog(Protocol):
    """The partition that a host writes to: one term of its leadership (`replication/leader.py`), or a list in a test.

    After the term, appends are refused and nothing more is committed. The owner of the host then closes the host.
    """

    def append_records(self, records: Sequence[LogRecord], transactional: Transactional | None, now_ms: int) -> int:
        """Appends one batch with acks=all; returns the offset after its last record. Raises `ApiError` if refused; nothing has changed
        then."""

    def committed_end(self) -> int:
        """Returns the high watermark: everything below it will survive."""

    def call_when_committed(self, end: int, function: Callable[[], None]) -> None:
        """Calls `function` once: when everything below `end` is committed, or when the term ends before that. The function therefore checks
        `committed_end`. After the term nothing is called."""
