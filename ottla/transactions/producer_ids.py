"""Allocates producer ids that are unique in the cluster (I22).

Brokers claim blocks of 1,000 ids from one node of the metadata store, Kafka's `/latest_producer_id_block`, by a write conditional on the
version that they have read. If two brokers read the same version, one write fails, and that broker reads again. After a write with unknown
outcome a broker also reads again and claims the block after the stored one. If the write had succeeded, the ids of its block are lost. The
next block is fetched when nine tenths of the last one are used, so that `take` seldom has no id.

A node that cannot be parsed is not overwritten: no more blocks are claimed until an operator repairs it (C2).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from ottla.base.errors import ErrorCode
from ottla.base.loop.procedure import Procedure, Runner
from ottla.base.loop.store_reads import StoreFailure, read_node, write
from ottla.base.ports import Create, MetadataStore, Set, StoreResult
from ottla.base.types import NO_PRODUCER_ID

log = logging.getLogger("ottla.transactions")

BLOCK_PATH = "/latest_producer_id_block"
BLOCK_SIZE = 1_000
PREFETCH_LEFT = 100
ATTEMPTS_MAX = 16
PRODUCER_ID_MAX = (1 << 63) - 1
LOST_RACES = (StoreResult.BAD_VERSION, StoreResult.NODE_EXISTS, StoreResult.NO_NODE, StoreResult.UNKNOWN)
"""After a write with one of these results the node is read again at once, up to `ATTEMPTS_MAX` attempts in total. After any other error of
the store the claim fails, because an immediate attempt would fail too.
"""

Taken = Callable[[int, ErrorCode], None]
Ready = Callable[[ErrorCode], None]


class ProducerIds:
    """The producer ids of one broker. `take` returns an id or None at once; `next` waits for a block."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._following: range | None = None
        self._waiting: list[Ready] = []
        self._is_fetching = False
        self._is_damage_noted = False

    def take(self) -> int | None:
        if self._next == self._end and not self._open_following():
            self._maybe_fetch()
            # A local store answers within the call, so there may be a block now.
            if not self._open_following():
                return None
        producer_id = self._next
        self._next += 1
        if self._end - self._next <= PREFETCH_LEFT:
            self._maybe_fetch()
        return producer_id

    def next(self, done: Taken) -> None:
        """Takes an id as `take` does, but waits for the next block if necessary: `done(producer_id, NONE)` or `done(-1, error)`."""
        producer_id = self.take()
        if producer_id is not None:
            done(producer_id, ErrorCode.NONE)
        else:
            self.when_ready(lambda code: done(NO_PRODUCER_ID, code) if code else self.next(done))

    def when_ready(self, done: Ready) -> None:
        """Calls `done` with NONE when there are ids to take (at once if a block was logged since `take`), or with the error."""
        if self._following is not None:
            done(ErrorCode.NONE)
            return
        self._waiting.append(done)
        self._maybe_fetch()

    def _open_following(self) -> bool:
        if self._following is None:
            return False
        self._next, self._end = self._following.start, self._following.stop
        self._following = None
        return True

    def _maybe_fetch(self) -> None:
        if not self._is_fetching and self._following is None:
            self._is_fetching = True
            Runner().start(self._fetch())

    def _fetch(self) -> Procedure[None]:
        block = yield from self._claim_block()
        self._is_fetching = False
        self._following = block
        code = ErrorCode.NONE if block is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(code)

    def _claim_block(self) -> Procedure[range | None]:
        """Returns the claimed ids, or None if the store or its node fails. Logs a damaged node once, until a block is claimed again."""
        for _ in range(ATTEMPTS_MAX):
            try:
                node = yield from read_node(self._store, BLOCK_PATH)
            except StoreFailure:
                return None
            start = 0 if node is None else _block_end(node.data) + 1
            if start < 0 or start > PRODUCER_ID_MAX - BLOCK_SIZE:
                if not self._is_damage_noted:
                    self._is_damage_noted = True
                    log.error("%s in the metadata store is damaged, or all producer ids are used: there are no new ids", BLOCK_PATH)
                return None
            data = block_bytes(self._broker_id, start)
            outcome = yield from write(
                self._store, [Create(BLOCK_PATH, data) if node is None else Set(BLOCK_PATH, data, node.version)]
            )
            if outcome.result is StoreResult.OK:
                self._is_damage_noted = False
                return range(start, start + BLOCK_SIZE)
            if outcome.result not in LOST_RACES:
                return None
        return None


def block_bytes(broker_id: int, start: int) -> bytes:
    """Encodes the node of a block that a broker has claimed; `start` is the first id."""
    block = {"version": 1, "broker": broker_id, "block_start": str(start), "block_end": str(start + BLOCK_SIZE - 1)}
    return json.dumps(block, separators=(",", ":")).encode()


def _block_end(data: bytes) -> int:
    """Returns the last id of the block; -2 if the node has no valid one."""
    try:
        end = int(json.loads(data)["block_end"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return -2
    return end if end >= 0 else -2
