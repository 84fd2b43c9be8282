"""The memory of one kind of thing that coordinators remember (members, offsets, transactional ids, share states): what is new must
find room.

Things go in many ways (a member leaves or its session ends, an offset expires, a log refuses a record), so what is given back is not
counted. What comes is added to an estimate for its shard, and where the sum of all shards is too much shards are counted anew: the one that
asks, and with each question another one, some things of each, so that no question costs more than that. Where there is still no room the
new thing is refused with COORDINATOR_NOT_AVAILABLE, which clients try again later.

What share groups hold is counted as it comes and goes (`ExactShare`): nothing is estimated there, and a question costs no counting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from weakref import ref

from ottla.base.errors import ApiError, ErrorCode

UNBOUNDED = (1 << 63) - 1
COUNTED_AT_ONCE = 1000
"""So many things are counted for one question: a millisecond."""


class Share:
    """The part of one shard; `sizes` are what each of its things takes now, in bytes."""

    __slots__ = ("__weakref__", "_admitted", "_counted", "_memory", "_round", "_sizes", "bytes")

    def __init__(self, memory: CoordinatorMemory, sizes: Callable[[], Iterable[int]]) -> None:
        self._memory = memory
        self._sizes = sizes
        self._round: Iterator[int] | None = None
        self._counted = self._admitted = 0
        self.bytes = 0

    def find_room(self, size: int) -> None:
        """Asks for a shard that counts what it holds by itself. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        self._memory.find_room(self, size)

    def end(self) -> None:
        """The shard is thrown away. It refers to this, and this no longer to it: only the garbage collector would free both."""
        self.bytes, self._round, self._sizes = 0, None, tuple

    def admit(self, size: int) -> None:
        """Something that takes so many bytes comes. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        self.find_room(size)
        self.bytes += size
        self._admitted += size

    def count(self) -> None:
        """Counts everything: the shard has been loaded."""
        self._round = None
        self.bytes = sum(self._sizes())

    def count_on(self) -> None:
        """Counts some more things. After the last one the estimate is what was counted, and what has come since the first: some of it
        may be counted twice, until the next round."""
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

    def share(self, sizes: Callable[[], Iterable[int]]) -> Share:
        share = Share(self, sizes)
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

    def find_room(self, share: Share, size: int) -> None:
        if self.total_bytes() + size <= self.bytes_max:
            return
        self._next = (self._next + 1) % len(self._shares)
        for counted in dict.fromkeys((share, self._shares[self._next]())):
            if counted is not None:
                counted.count_on()
        if self.total_bytes() + size > self.bytes_max:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the {self._things} of this broker take as much memory as they may")
