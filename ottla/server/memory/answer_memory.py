"""Memory that connections use for waiting requests, and for answers that are not written to their sockets yet.

A connection stops reading at its own limit (`ConnectionLimits`). That alone does not bound the sum, because there are many connections, and
one answer may be large. When all connections together use more than their limit, some are closed until enough memory is free again.
Connections whose peer has taken nothing since its answers began to wait are closed first. Among equals, the largest connections of the
address that uses the most memory are closed first.

Slices of files are not charged, because they are not in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.base.ports import Channel, Part

log = logging.getLogger("ottla.network")

UNBOUNDED = (1 << 63) - 1
KEPT_PER_DROP = 7 / 8
"""Part of the limit. Connections are closed until no more than this is in use, so that the next answer does not close another one."""
WAITING_REQUEST_BYTES = 3000
"""Upper bound of the memory that a small waiting request uses: its slot, its timer and its callbacks."""


class Slot:
    """Reserves the position of one answer in the order of its connection's answers. The slot is used until this answer and all earlier
    answers have been passed to the channel."""

    __slots__ = ("abandon", "parts", "size")

    def __init__(self, parts: list[Part] | None, size: int) -> None:
        self.parts = parts
        """The answer; None until it is given."""
        self.size = size
        """Bytes that the request, or its answer, uses in memory."""
        self.abandon: Callable[[], None] | None = None
        """Abandons the request when the client has disconnected."""


class AnswerAccount:
    """The memory that one connection uses."""

    __slots__ = ("channel", "host", "memory", "parked_bytes", "sent_before", "unsent_bytes")

    def __init__(self, memory: AnswerMemory, channel: Channel, host: str) -> None:
        self.memory = memory
        self.channel = channel
        self.host = host
        self.parked_bytes = 0
        """Bytes of waiting requests, and of answers that wait for an earlier answer."""
        self.unsent_bytes = 0
        """Bytes of answers that were not written to the socket when they were last counted."""
        self.sent_before = -1
        """`bytes_sent` of the channel when answers began to wait; -1 if no answer waits."""

    @property
    def total_bytes(self) -> int:
        return self.parked_bytes + self.unsent_bytes

    def park(self, size: int) -> None:
        """Adds `size` to the counted bytes of waiting requests or parked answers; a negative `size` reduces them."""
        self.parked_bytes += size
        self.memory.total_bytes += size

    def note_unsent(self) -> None:
        """Notes that answers could not be written to the socket."""
        if self.sent_before < 0:
            self.sent_before = self.channel.bytes_sent
        self.count_unsent(self.channel.unsent_bytes())

    def note_taken(self) -> None:
        """Notes that all answers were written to the socket."""
        self.count_unsent(0)
        self.sent_before = -1

    def count_unsent(self, size: int) -> None:
        self.memory.total_bytes += size - self.unsent_bytes
        self.unsent_bytes = size

    def close(self) -> None:
        """Removes the account when its connection closes. If the connection's requests release memory later, that is not counted."""
        self.memory.remove(self)
        self.memory = AnswerMemory()


class AnswerMemory:
    """The accounts of all connections of one broker."""

    def __init__(self, bytes_max: int = UNBOUNDED) -> None:
        self.bytes_max = bytes_max
        self.total_bytes = 0
        self._accounts: dict[AnswerAccount, None] = {}

    def open(self, channel: Channel, host: str) -> AnswerAccount:
        account = AnswerAccount(self, channel, host)
        self._accounts[account] = None
        return account

    def remove(self, account: AnswerAccount) -> None:
        del self._accounts[account]
        self.total_bytes -= account.total_bytes

    def relieve(self) -> None:
        """Closes connections if all together use too much memory. Recounts the unsent answers first."""
        if self.total_bytes <= self.bytes_max:
            return
        by_host: dict[str, int] = {}
        for account in self._accounts:
            if account.sent_before >= 0:
                account.count_unsent(account.channel.unsent_bytes())
            by_host[account.host] = by_host.get(account.host, 0) + account.total_bytes
        if self.total_bytes <= self.bytes_max:
            return
        log.warning("closing connections: unsent answers and waiting requests use %d bytes of memory", self.total_bytes)

        def order(account: AnswerAccount) -> tuple[bool, int, int]:
            takes_nothing = account.sent_before >= 0 and account.sent_before == account.channel.bytes_sent
            return not takes_nothing, -by_host[account.host], -account.total_bytes

        for account in sorted(self._accounts, key=order):
            if self.total_bytes <= self.bytes_max * KEPT_PER_DROP:
                break
            if account.total_bytes:
                account.channel.close()


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of one connection. All connections share this object; `queued_bytes_max` shrinks as their number grows."""

    frame_bytes_max: int
    in_flight_max: int
    queued_bytes_max: int
    unauthenticated_frame_bytes_max: int = 512 << 10
    memory: AnswerMemory = field(default_factory=AnswerMemory)
    """The memory of all connections."""
    on_answers: Callable[[Any, list[Part]], object] | None = None
    """Called with the queue and the answers of each write to a socket, while frames are recorded (`execution/frame_watch.py`)."""
