"""Moves the high watermark: the offset below which every record survives.

A leader moves it to the smallest end of all replicas that the controller may consider in sync (`IsrState.maximal`). It never decreases
while this leader leads (I11). It does not move while fewer than `min.insync.replicas` replicas are in sync, so records that were
acknowledged with acks=all are on that many replicas (I12, KIP-966). A replica's end is its durable end if acknowledgements wait for the
disk, else its log end. A follower sends both in its fetches, because records that are not synced yet must not be sent again. A follower
adopts its leader's watermark as far as its own log reaches. Only opening or truncating a log may lower it.

Invariant: log start <= high watermark <= log end (I2). It is asserted here, because only this module assigns the attribute (a tidy test
checks that).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ottla.base.types import TopicPartition
from ottla.storage.ledger import WATERMARK
from ottla.storage.log import Log


class HasHighWatermark(Protocol):
    """The part of `state.PartitionState` with the high watermark."""

    topic_partition: TopicPartition
    log: Log
    high_watermark: int


def next_high_watermark(current: int, *, own_end: int, remote_ends: Iterable[int], in_sync: int, in_sync_min: int) -> int:
    """Returns a leader's new high watermark. `remote_ends` are the ends of the other members of the maximal ISR; `in_sync` is the number of
    confirmed members."""
    if in_sync < in_sync_min:
        return current
    lowest = own_end
    for end in remote_ends:
        if end < lowest:
            lowest = end
    return lowest if lowest > current else current


def move_high_watermark(state: HasHighWatermark, offset: int, *, may_fall: bool = False) -> None:
    """Sets the high watermark. Only opening and truncating a log set `may_fall`; otherwise the watermark never decreases (I11)."""
    log = state.log
    assert may_fall or state.high_watermark <= offset, f"{state.topic_partition}: the high watermark back to {offset} (I11)"
    assert log.log_start_offset <= offset <= log.log_end_offset, f"{state.topic_partition}: high watermark {offset} (I2)"
    state.high_watermark = offset
    row = log.row
    row.cells[row.at + WATERMARK] = offset
    producers = log.producers
    if producers.completed:
        producers.on_high_watermark(offset)
