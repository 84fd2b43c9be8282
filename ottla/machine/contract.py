"""The contract of a coordinator as a log machine: decide -> append -> apply -> hold -> release.

`decide` reads state and answers a `Decision`; it changes no hard state. `apply` is the only writer of hard state, cannot fail on a record
that was logged, and never looks at a clock. `resume` runs once after loading and re-makes the effects that a lost leader may have dropped.
The host (`host.py`) appends the records (may fail: nothing has changed), applies them, holds the effects until the high watermark has
passed the records, and only then releases them. An effect made without records waits for the last applied offset, so that a read cannot
leak what may still be lost. Leadership lost: the machine is thrown away and loaded again.

Soft state (waiting joiners, deadlines) may be touched by `decide`; it is never logged and may be lost.
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
    """Records written inside a client's transaction: they count only after its commit marker."""

    producer_id: int
    producer_epoch: int


@immutable
class Respond:
    """Effect: send this response to the caller."""

    reply: Reply
    response: Any


@immutable
class Schedule:
    """Effect: run `decide(now_ms)` after `delay_ms`, replacing an earlier one of the same key. Soft: lost with the machine."""

    key: str
    delay_ms: int
    decide: Callable[[int], Decision]


@immutable
class Cancel:
    """Effect: cancel the scheduled decision of this key."""

    key: str


@immutable
class Call:
    """Effect: call a function of the shell (send markers, send a request to a peer). It must not raise, and must bear being called again
    after a restart."""

    function: Callable[[], None]


Effect = Respond | Schedule | Cancel | Call


def refuse_nothing(_code: ErrorCode) -> Sequence[Effect]:
    """The refusal of decisions without a caller."""
    return ()


@immutable
class Decision:
    """The outcome of a command: records to log first, effects to release when they are committed. `draft.py` builds it.

    `refused` is asked for other effects when the append fails; it must answer every caller that `effects` would have answered.
    `parts` (instead of `records`) are decisions that do not depend on each other: each is logged or refused by itself, in as few batches as
    `max.message.bytes` allows. `effects` follow when all of them were logged, else `refused`.
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
"""Runs a decision that a machine makes by itself, on its own host."""


def run_nothing(_decide: Decide) -> None:
    """The `RunDecision` of a machine that has no host, or whose host is closed."""


class Machine(Protocol):
    """One shard of a coordinator: the hard state is a function of the log."""

    def apply(self, offset: int, record: LogRecord, transactional: Transactional | None) -> None:
        """Changes hard state by one logged record; `transactional` records stay pending until `apply_marker`."""

    def apply_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Ends a client's transaction in this log."""

    def resume(self, now_ms: int) -> Decision:
        """Called once when loading has reached the end of the log."""


class MachineLog(Protocol):
    """The partition under a host: one term of its leadership (`replication/leader.py`), or a list in a test.

    When the term is over, appends are refused and nothing is committed any more; the owner of the host closes it then.
    """

    def append_records(self, records: Sequence[LogRecord], transactional: Transactional | None, now_ms: int) -> int:
        """Appends one batch as leader with acks=all; the offset after its last record. Raises `ApiError` if refused; nothing has changed
        then."""

    def committed_end(self) -> int:
        """The high watermark: everything below will survive."""

    def call_when_committed(self, end: int, function: Callable[[], None]) -> None:
        """Calls `function` once, when everything below `end` is committed. The call may be early, but never late."""
