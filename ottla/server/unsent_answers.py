"""The answers that peers have not taken yet, of all connections together, and which of those connections are dropped when that is too much.

Each connection stops reading at its own bound, but a single answer may be large, and the bounds of many connections add up. Over the bound
on all of them the connections that hold the most are dropped, those first whose peer has taken nothing since its answers began to wait.
Slices of files do not count: they are in no memory of ours.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Protocol

from ottla.base.ports import Channel

log = logging.getLogger("ottla.network")

UNBOUNDED = (1 << 63) - 1
KEPT_PER_DROP = 7 / 8
"""Down to this part of the bound connections are dropped, so that it is not done again at once."""


class Holder(Hashable, Protocol):
    """A connection."""

    @property
    def channel(self) -> Channel: ...


class UnsentAnswers:
    """All connections of one broker with answers that wait for their peer."""

    def __init__(self, bytes_max: int = UNBOUNDED) -> None:
        self.bytes_max = bytes_max
        self.total_bytes = 0
        self._held: dict[Holder, tuple[int, int]] = {}
        """The bytes that wait, and what had been sent when they began to wait."""

    def note(self, holder: Holder) -> None:
        """The peer has not taken all that was sent."""
        before, sent = self._held.get(holder, (0, holder.channel.bytes_sent))
        size = holder.channel.unsent_bytes()
        self._held[holder] = (size, sent)
        self.total_bytes += size - before
        if self.total_bytes > self.bytes_max:
            self._relieve()

    def forget(self, holder: Holder) -> None:
        """All has been taken, or the connection is closed."""
        held = self._held.pop(holder, None)
        if held is not None:
            self.total_bytes -= held[0]

    def _relieve(self) -> None:
        """Counts again, as peers have taken some meanwhile, and drops connections if it is still too much."""
        self._held = {holder: (holder.channel.unsent_bytes(), sent) for holder, (_, sent) in self._held.items()}
        self.total_bytes = sum(size for size, _ in self._held.values())
        if self.total_bytes <= self.bytes_max:
            return
        order = sorted(self._held.items(), key=lambda item: (item[0].channel.bytes_sent != item[1][1], -item[1][0]))
        log.warning("%d bytes of answers wait for peers that do not take them; those that hold the most are closed", self.total_bytes)
        for holder, _ in order:
            if self.total_bytes <= self.bytes_max * KEPT_PER_DROP:
                break
            holder.channel.close()
