"""Limits the memory of one kind of state that coordinators keep: members, offsets, transactional ids or share states.

Memory use is estimated per shard. Adding something raises the estimate; removing does not lower it, because state is removed in many ways
(a member leaves or its session ends, an offset expires, a log refuses a record). When the total exceeds the limit, each request recounts up
to `COUNTED_AT_ONCE` items of its own shard and of one other. If there is still no memory, the request is refused with
COORDINATOR_NOT_AVAILABLE, and clients try again later.

Share groups count their memory exactly (`ExactShare`), so their requests recount nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from weakref import ref

from ottla.base.errors import ApiError, ErrorCode

UNBOUNDED = (1 << 63) - 1
COUNTED_AT_ONCE = 1000
"""Items that one request recounts in a shard. Counting 1,000 takes about a millisecond."""


class Share:
    """The part of one shard; `sizes` are what each of its things takes now, in bytes."""

    __slots__ = ("__weakref__", "_admitted", "_counted", "_memory", "_round", "_sizes", "bytes", "things")

    def __init__(self, memory: CoordinatorMemory, sizes: Callable[[], Iterable[int]], things: Sized = ()) -> None:
        """`things` are counted by `total_things`."""
        self.things = things
        self._memory = memory
        self._sizes = sizes
        self._round: Iterator[int] | None = None
        self._counted = self._admitted = 0
        self.bytes = 0

    def find_room(self, size: int) -> None:
        """Checks that `size` bytes more are allowed. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        self._memory.find_room(self, size)

    def end(self) -> None:
        """Breaks the reference cycle with a dropped shard, so that memory is freed without the garbage collector."""
        self.bytes, self._round, self._sizes, self.things = 0, None, tuple, ()

    def total_things(self) -> int:
        """The number of things of all shards of this broker."""
        return self._memory.total_things()

    def admit(self, size: int) -> None:
        """Adds `size` bytes to the estimate. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        self.find_room(size)
        self.bytes += size
        self._admitted += size

    def count(self) -> None:
        """Replaces the estimate by an exact count, after the shard was loaded."""
        self._round = None
        self.bytes = sum(self._sizes())

    def count_on(self) -> None:
        """Recounts some items. After the last item the estimate becomes the count plus everything admitted since the first item, so some
        items are counted twice until the next round."""
        if self._round is None:
            self._round, self._counted, self._admitted = iter(self._sizes()), 0, 0
        sizes = list(islice(self._round, COUNTED_AT_ONCE))
        self._counted += sum(sizes)
        if len(sizes) < COUNTED_AT_ONCE:
            self._round = None
            self.bytes = self._counted + self._admitted


class ExactShare(Share):
    """The part of one shard that keeps `bytes` up to date by itself."""

    __slots__ = ()

    def __init__(self, memory: CoordinatorMemory) -> None:
        super().__init__(memory, tuple)

    def count_on(self) -> None:
        """There is nothing to be counted."""


class CoordinatorMemory:
    """The shares of all shards of one broker; one that is not used any more counts for nothing."""

    def __init__(self, bytes_max: int = UNBOUNDED, things: str = "groups") -> None:
        self.bytes_max = bytes_max
        self._things = things
        self._shares: list[ref[Share]] = []
        self._next = 0

    def share(self, sizes: Callable[[], Iterable[int]], things: Sized = ()) -> Share:
        share = Share(self, sizes, things)
        self._add(share)
        return share

    def exact_share(self) -> ExactShare:
        share = ExactShare(self)
        self._add(share)
        return share

    def _add(self, share: Share) -> None:
        self._shares = [known for known in self._shares if known() is not None]
        self._shares.append(ref(share))

    def total_bytes(self) -> int:
        return sum([share.bytes for known in self._shares if (share := known()) is not None])

    def total_things(self) -> int:
        return sum([len(share.things) for known in self._shares if (share := known()) is not None])

    def find_room(self, share: Share, size: int) -> None:
        if self.total_bytes() + size <= self.bytes_max:
            return
        self._next = (self._next + 1) % len(self._shares)
        for counted in dict.fromkeys((share, self._shares[self._next]())):
            if counted is not None:
                counted.count_on()
        if self.total_bytes() + size > self.bytes_max:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the {self._things} of this broker take as much memory as they may")
