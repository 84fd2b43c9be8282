"""Fair eviction: a bounded set of items, grouped by client address and connection.

An item is added while there is a free slot. When there is none, a new item evicts an item of the address that holds the most items, if that
address holds at least two more items than the new item's address. Otherwise the new item evicts an item of its own address, or the least
recently used item of all if its own address has none. So no address keeps others from a fair share. Within an address, the connection with
the most items loses its least recently used item. If no connection has more than one item, the least recently used item of the address is
evicted.

The methods named `victim...` return the item to evict; the caller removes it.

An item has a weight (its partitions, for example), and the total weight may be bounded, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar


class Origin(Protocol):
    """A client's connection: `host` is its address, `identity` its address and port."""

    @property
    def host(self) -> str: ...

    @property
    def identity(self) -> str: ...


class Placed(NamedTuple):
    """The address and connection of an item, and its weight."""

    host: str
    connection: str
    weight: int


Item = TypeVar("Item", bound=Hashable)

SESSION_PARTITION_BYTES = 4 << 10
"""Memory that a broker must have for each partition of its fetch sessions or share sessions, in bytes. A partition takes up to 300 bytes in
a session, and more in an answer.
"""


class FairSlots(Generic[Item]):
    """Items by address, least recently used first. Finding an item to evict takes time linear in the number of items."""

    __slots__ = ("_hosts", "_placed", "_weights", "weight")

    def __init__(self) -> None:
        self._placed: dict[Item, Placed] = {}
        self._hosts: dict[str, dict[Item, None]] = {}
        self._weights: Counter[str] = Counter()
        self.weight = 0
        """The weight of all items together."""

    def __len__(self) -> int:
        return len(self._placed)

    def add(self, item: Item, origin: Origin, weight: int) -> None:
        host = origin.host
        self._placed[item] = Placed(host, origin.identity, 0)
        self._hosts.setdefault(host, {})[item] = None
        self.weigh(item, weight)

    def remove(self, item: Item) -> None:
        self.weigh(item, 0)
        host = self._placed.pop(item).host
        del self._hosts[host][item]
        if not self._hosts[host]:
            del self._hosts[host], self._weights[host]

    def weigh(self, item: Item, weight: int) -> None:
        placed = self._placed[item]
        self._placed[item] = placed._replace(weight=weight)
        self._weights[placed.host] += weight - placed.weight
        self.weight += weight - placed.weight

    def use(self, item: Item) -> None:
        """Marks an item as the most recently used one."""
        placed = self._placed[item] = self._placed.pop(item)
        items = self._hosts[placed.host]
        del items[item]
        items[item] = None

    # Eviction

    def victim_for(self, host: str) -> Item | None:
        """Returns the item to evict for a new item of `host`: of another address that has at least two more items, else of `host`, else the
        least recently used item. None if there are no items."""
        return self.victim_elsewhere(host) or self._first(self._hosts.get(host, ())) or next(iter(self._placed), None)

    def victim_elsewhere(self, host: str) -> Item | None:
        """Returns an item of the address with the most items, if that address has at least two more items than `host`; else None."""
        return self._of_heavier(self._count, self._count(host) + 1)

    def victim_beside(self, origin: Origin) -> Item | None:
        """Returns an item of the connection with the most items at the same address, if it has at least two more items than this
        connection; else None.
        """
        items = self._hosts.get(origin.host, ())
        counts = Counter([self._placed[item].connection for item in items])
        if max(counts.values(), default=0) <= counts[origin.identity] + 1:
            return None
        return self._first(items)

    def heavy_victim_for(self, keep: Item) -> Item | None:
        """Returns the item to evict so that `keep` fits into the total weight; None if `keep` is the only item."""
        items = [item for item in self._hosts[self._placed[keep].host] if item != keep]
        return self.heavy_victim_elsewhere(keep) or self._first(items) or next((item for item in self._placed if item != keep), None)

    def heavy_victim_elsewhere(self, keep: Item) -> Item | None:
        """Returns an item of the heaviest address, if it weighs more than the address of `keep` with `keep` counted twice; else None."""
        placed = self._placed[keep]
        return self._of_heavier(self._weights.__getitem__, self._weights[placed.host] + placed.weight)

    def _count(self, host: str) -> int:
        return len(self._hosts.get(host, ()))

    def _of_heavier(self, size: Callable[[str], int], than: int) -> Item | None:
        """Returns the first item to evict from the largest address, if it is larger than `than`, else None. Among equally large addresses
        the one with the least recently used item is selected.
        """
        most = max(map(size, self._hosts), default=0)
        if most <= than:
            return None
        least = next(item for item, placed in self._placed.items() if size(placed.host) == most)
        return self._first(self._hosts[self._placed[least].host])

    def _first(self, items: Collection[Item]) -> Item | None:
        """Returns the item of one address that is evicted first."""
        if not items:
            return None
        connection, count = Counter([self._placed[item].connection for item in items]).most_common(1)[0]
        return next(item for item in items if count == 1 or self._placed[item].connection == connection)
