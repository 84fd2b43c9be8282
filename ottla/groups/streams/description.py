"""Descriptions of topologies (KIP-1331): the processors, stores and topics of an application, which its members send for people to look at.

The topology that a member sends when it joins has only what the assignment of tasks needs. The description has the whole graph. The
coordinator asks one member for it in the answer to a heartbeat, and asks again with rising pauses until it has one: a client may be
configured not to send it.

A description is kept only in memory, where it is charged to the group's owner, and not in the log. A coordinator that has just loaded the
group asks for it again. Only the description of the group's current topology is kept. `description_update.py` takes what a member sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SOURCE, PROCESSOR, SINK = 1, 2, 3
NODE_KINDS = frozenset((SOURCE, PROCESSOR, SINK))
ASK_FIRST_MS, ASK_MAX_MS = 30_000, 3_600_000
"""Pause in milliseconds after a request for a description before the next one; it doubles up to the maximum, as in Kafka."""
TEXT_BYTES, NODE_BYTES = 60, 300
"""Memory of a text and of a node, in bytes, in addition to their letters."""


class Node(NamedTuple):
    """A source, processor or sink. `successors` are names of nodes; only a source has `sources`, and only a sink a topic."""

    name: str
    kind: int
    sources: tuple[str, ...] = ()
    sink: str | None = None
    stores: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()

    def topics(self) -> tuple[str, ...]:
        return self.sources if self.sink is None else (*self.sources, self.sink)

    def held_bytes(self) -> int:
        texts = (self.name, *self.topics(), *self.stores, *self.successors)
        return NODE_BYTES + sum([TEXT_BYTES + len(text) for text in texts])


class Description(NamedTuple):
    """The nodes of each subtopology by its id, and the source and processor of each global store."""

    subtopologies: tuple[tuple[str, tuple[Node, ...]], ...] = ()
    global_stores: tuple[tuple[Node, Node], ...] = ()

    def nodes(self) -> Iterable[Node]:
        for _, nodes in self.subtopologies:
            yield from nodes
        for store in self.global_stores:
            yield from store

    def topics(self) -> Iterable[str]:
        for node in self.nodes():
            yield from node.topics()

    def held_bytes(self) -> int:
        return sum([node.held_bytes() for node in self.nodes()]) + sum([NODE_BYTES + len(name) for name, _ in self.subtopologies])


class DescriptionState:
    """The description of one group's topology, and what was asked for and refused; soft state. The epochs are topology epochs; -1 means
    none."""

    __slots__ = ("asked_epoch", "description", "next_ask_ms", "pause_ms", "refused_epoch", "stored_epoch")

    def __init__(self) -> None:
        self.description: Description | None = None
        self.stored_epoch = -1
        self.refused_epoch = -1  # the topology whose description is too large
        self.asked_epoch = -1
        self.pause_ms = 0
        self.next_ask_ms = 0

    def must_ask(self, topology_epoch: int, now_ms: int) -> bool:
        """Whether the member whose heartbeat is answered shall send the description. Notes that it was asked."""
        if topology_epoch in (self.stored_epoch, self.refused_epoch):
            return False
        if self.asked_epoch != topology_epoch:
            self.asked_epoch, self.pause_ms = topology_epoch, 0
        elif now_ms < self.next_ask_ms:
            return False
        self.pause_ms = min(2 * self.pause_ms, ASK_MAX_MS) or ASK_FIRST_MS
        self.next_ask_ms = now_ms + self.pause_ms
        return True

    def current(self, topology_epoch: int) -> Description | None:
        """Returns the description of the topology with this epoch, if it is known."""
        return self.description if self.stored_epoch == topology_epoch else None

    def store(self, topology_epoch: int, description: Description) -> None:
        self.stored_epoch, self.description = topology_epoch, description

    def held_bytes(self) -> int:
        return 0 if self.description is None else self.description.held_bytes()
