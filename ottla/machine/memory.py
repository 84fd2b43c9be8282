"""Limits the memory of one kind of state that coordinators keep: members, offsets, transactional ids or share states.

Memory use is estimated per shard. Adding something raises the estimate. Removing lowers it only at the next recount, because state is
removed in many ways (a member is removed, an offset expires, a log refuses a record). When a request would exceed the limit of the total or
of its owner, it first recounts up to `COUNTED_AT_ONCE` items of its own shard and of the next shard in turn. If it would still exceed a
limit, it is refused with COORDINATOR_NOT_AVAILABLE, and clients try again later.

The states of share partitions are counted exactly (`ExactShare`), so their requests recount nothing. Members and offsets of share groups
are estimated as in other groups.

Owners are the principals of clients. If less than a quarter of the memory would be free after a request, its owner's memory may not exceed
the memory that would be free. So one user cannot take all memory, and a user who holds nothing can get half of the free memory. State that
was loaded from a log has no owner until a principal uses it. Clients without a login are no owners, because they all have the same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from weakref import ref

from ottla.base.errors import ApiError, ErrorCode

UNBOUNDED = (1 << 63) - 1
COUNTED_AT_ONCE = 1000
"""Items that one request recounts in a shard. Counting 1,000 takes about a millisecond."""
NO_OWNER = ""
SHARED_PART = 4
"""Divisor of the limit. 4: the limit of an owner applies when less than a quarter of the memory is free."""
Sizes = Callable[[], Iterable[tuple[str, int]]]
"""Yields the owner and the bytes of each item."""


class Share:
    """The memory of one shard; `sizes` yields the current size of each of its items."""

    __slots__ = ("__weakref__", "_admitted", "_bytes", "_counted", "_memory", "_round", "_sizes", "held", "things")

    def __init__(self, memory: CoordinatorMemory, sizes: Sizes, things: Sized = ()) -> None:
        """`things`: the shard's groups or transactional ids. `total_things` returns their number on this broker."""
        self.things = things
        self._memory = memory
        self._sizes = sizes
        self._round: Iterator[tuple[str, int]] | None = None
        self._counted, self._admitted = Counter[str](), Counter[str]()
        self._bytes = 0
        self.held = Counter[str]()
        """The bytes of each owner, which are included in `bytes`."""

    @property
    def bytes(self) -> int:
        return self._bytes

    @bytes.setter
    def bytes(self, size: int) -> None:
        self._memory.bytes_at_most += size - self._bytes
        self._bytes = size

    def require_free(self, size: int, owner: str = NO_OWNER) -> None:
        """Checks that `owner` may have `size` bytes more. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        self._memory.require_free(self, size, owner)

    def end(self) -> None:
        """Breaks the reference cycle with a dropped shard, so that memory is freed without the garbage collector."""
        self.bytes, self.held, self._round, self._sizes, self.things = 0, Counter(), None, tuple, ()

    def total_things(self) -> int:
        """Returns the number of `things` in all shards of this broker."""
        return self._memory.total_things()

    def part_of(self, owner: str) -> float:
        """Returns the owner's fraction of the used memory of this broker, from 0 to 1."""
        return self._memory.held_by(owner) / max(self._memory.total_bytes(), 1)

    def admit(self, size: int, owner: str = NO_OWNER) -> None:
        """Adds `size` bytes of `owner` to the estimate. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        self.require_free(size, owner)
        self.bytes += size
        self.held[owner] += size
        self._admitted[owner] += size

    def count(self) -> None:
        """Replaces the estimate by an exact count, after the shard was loaded."""
        self._round = None
        self._set(_sums(self._sizes()))

    def count_on(self) -> None:
        """Recounts some items. After the last item the estimate becomes the count plus everything admitted during the recount. Items that
        were admitted and then counted are therefore included twice until the next recount.
        """
        if self._round is None:
            self._round, self._counted, self._admitted = iter(self._sizes()), Counter(), Counter()
        sizes = list(islice(self._round, COUNTED_AT_ONCE))
        self._counted += _sums(sizes)
        if len(sizes) < COUNTED_AT_ONCE:
            self._round = None
            self._set(self._counted + self._admitted)

    def _set(self, held: Counter[str]) -> None:
        self.held, self.bytes = held, held.total()


class ExactShare(Share):
    """The memory of one shard that counts its `bytes` exactly."""

    __slots__ = ()

    def __init__(self, memory: CoordinatorMemory) -> None:
        super().__init__(memory, tuple)

    def count_on(self) -> None:
        """Does nothing, because `bytes` is exact."""


class CoordinatorMemory:
    """The memory of all shards of one broker, except dropped ones."""

    def __init__(self, bytes_max: int = UNBOUNDED, things: str = "groups") -> None:
        self.bytes_max = bytes_max
        self.bytes_at_most = 0
        """Upper bound of `total_bytes`. It still counts shards that were dropped since it was last summed up."""
        self._things = things
        self._shares: list[ref[Share]] = []
        self._next = 0

    def share(self, sizes: Sizes, things: Sized = ()) -> Share:
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

    def held_by(self, owner: str) -> int:
        """Returns the bytes of an owner in all shards of this broker."""
        return sum([share.held[owner] for known in self._shares if (share := known()) is not None])

    def require_free(self, share: Share, size: int, owner: str) -> None:
        if not self._lacks(size, owner):
            return
        self._next = (self._next + 1) % len(self._shares)
        for counted in dict.fromkeys((share, self._shares[self._next]())):
            if counted is not None:
                counted.count_on()
        if self._lacks(size, owner):
            part = f", or the part of it that {owner} may use" if owner != NO_OWNER else ""
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the memory for the {self._things} of this broker is used up{part}")

    def _lacks(self, size: int, owner: str) -> bool:
        shared = self.bytes_max // SHARED_PART
        if self.bytes_max - self.bytes_at_most - size >= shared:
            return False
        self.bytes_at_most = self.total_bytes()
        free = self.bytes_max - self.bytes_at_most - size
        return free < 0 or (owner != NO_OWNER and free < shared and self.held_by(owner) + size > free)


def _sums(sizes: Iterable[tuple[str, int]]) -> Counter[str]:
    sums = Counter[str]()
    for owner, size in sizes:
        sums[owner] += size
    return sums
