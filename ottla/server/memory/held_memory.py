"""What connections hold in memory beyond the requests that are being received: answers that peers have not taken, and waiting requests.

Every byte counts three times: for its connection, which stops reading at its own bound (`ConnectionLimits`), for the client's address, and
for all of them together. A bound of each connection does not bound the sum: a single answer may be large, a single request may keep much,
and there are many connections. Over the bound on all of them connections are dropped, until there is room again: those first whose peer
has taken nothing since its answers began to wait, then those of the address that holds the most, the largest first.

Slices of files do not count: they are in no memory of ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol

from ottla.base.ports import Channel, Part

log = logging.getLogger("ottla.network")

UNBOUNDED = (1 << 63) - 1
KEPT_PER_DROP = 7 / 8
"""Down to this part of the bound connections are dropped, so that it is not done again at once."""
WAITING_REQUEST_BYTES = 3000
"""What a waiting request takes however small it is: its place, its timer, what is called when it may go on."""


class Slot:
    """The place of an answer that is not there yet, or must wait for one that is not; `size` is what it keeps in memory meanwhile."""

    __slots__ = ("abandon", "parts", "size")

    def __init__(self, parts: list[Part] | None, size: int) -> None:
        self.parts = parts
        self.size = size
        self.abandon: Callable[[], None] | None = None
        """Gives up the request when the client is gone."""


class Holder(Hashable, Protocol):
    """A connection."""

    @property
    def channel(self) -> Channel: ...


class Account:
    """What one connection holds."""

    __slots__ = ("_memory", "host", "parked_bytes", "sent_before", "unsent_bytes")

    def __init__(self, memory: HeldMemory, host: str) -> None:
        self._memory = memory
        self.host = host
        self.parked_bytes = 0
        """Of waiting requests, and of answers that wait for another one."""
        self.unsent_bytes = 0
        """Of answers that the peer has not taken."""
        self.sent_before = -1
        """What had been sent when they began to wait; -1: none do."""

    def park(self, size: int) -> None:
        """A request waits, or needs `size` bytes more or, below 0, less."""
        self.parked_bytes += size
        self._memory.total_bytes += size

    def detach(self) -> None:
        """The connection has ended: what is still released of it counts for nothing."""
        self._memory = HeldMemory()

    @property
    def held_bytes(self) -> int:
        return self.parked_bytes + self.unsent_bytes


class HeldMemory:
    """The accounts of all connections of one broker."""

    def __init__(self, bytes_max: int = UNBOUNDED) -> None:
        self.bytes_max = bytes_max
        self.total_bytes = 0
        self._accounts: dict[Holder, Account] = {}

    def open(self, holder: Holder, host: str) -> Account:
        """The account of a new connection from the address `host`."""
        account = self._accounts[holder] = Account(self, host)
        return account

    def close(self, holder: Holder) -> None:
        """The connection has ended."""
        account = self._accounts.pop(holder, None)
        if account is not None:
            self.total_bytes -= account.held_bytes
            account.detach()

    def note_unsent(self, holder: Holder) -> None:
        """The peer has not taken all that was sent."""
        account = self._accounts.get(holder)
        if account is None:
            return
        if account.sent_before < 0:
            account.sent_before = holder.channel.bytes_sent
        self._count_unsent(account, holder.channel.unsent_bytes())

    def note_taken(self, holder: Holder) -> None:
        """The peer has taken all that was sent."""
        account = self._accounts.get(holder)
        if account is not None:
            self._count_unsent(account, 0)
            account.sent_before = -1

    def relieve(self) -> None:
        """Drops connections if all together hold too much. Answers are counted again, as peers have taken some meanwhile."""
        if self.total_bytes <= self.bytes_max:
            return
        by_host: dict[str, int] = {}
        for holder, account in self._accounts.items():
            if account.sent_before >= 0:
                self._count_unsent(account, holder.channel.unsent_bytes())
            by_host[account.host] = by_host.get(account.host, 0) + account.held_bytes
        if self.total_bytes <= self.bytes_max:
            return
        text = "%d bytes of answers that peers do not take and of waiting requests; those that hold the most are closed"
        log.warning(text, self.total_bytes)

        def order(item: tuple[Holder, Account]) -> tuple[bool, int, int]:
            holder, account = item
            takes_nothing = account.sent_before >= 0 and account.sent_before == holder.channel.bytes_sent
            return not takes_nothing, -by_host[account.host], -account.held_bytes

        for holder, account in sorted(self._accounts.items(), key=order):
            if self.total_bytes <= self.bytes_max * KEPT_PER_DROP:
                break
            if account.held_bytes:
                holder.channel.close()

    def _count_unsent(self, account: Account, size: int) -> None:
        self.total_bytes += size - account.unsent_bytes
        account.unsent_bytes = size


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of one connection; all share this, and `queued_bytes_max` shrinks as they become many."""

    frame_bytes_max: int
    in_flight_max: int
    queued_bytes_max: int
    unauthenticated_frame_bytes_max: int = 512 << 10
    held: HeldMemory = field(default_factory=HeldMemory)
    """What all connections hold."""
