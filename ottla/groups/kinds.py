"""The kinds of modern groups: how each kind's records are applied, and how its groups are removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.records import CONSUMER_KEYS, CONSUMER_SCHEMA, ConsumerChange, fold_consumer
from ottla.groups.modern.records import EpochChange, EpochSchema
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.records import SHARE_KEYS, SHARE_SCHEMA, ShareChange, fold_share
from ottla.groups.streams.group import StreamsGroup
from ottla.groups.streams.records import STREAMS_KEYS, STREAMS_SCHEMA, StreamsChange, fold_streams
from ottla.machine.contract import LogRecord


class EpochKind(NamedTuple):
    group: type[Any]
    schema: EpochSchema
    keys: tuple[Any, ...]
    fold: Callable[[Any, Any, Any], None]
    change: Callable[[Any], EpochChange[Any, Any, Any]]


KINDS: dict[type[Any], EpochKind] = {
    kind.group: kind
    for kind in (
        EpochKind(ConsumerGroup, CONSUMER_SCHEMA, CONSUMER_KEYS, fold_consumer, ConsumerChange),
        EpochKind(ShareGroup, SHARE_SCHEMA, SHARE_KEYS, fold_share, ShareChange),
        EpochKind(StreamsGroup, STREAMS_SCHEMA, STREAMS_KEYS, fold_streams, StreamsChange),
    )
}


def removal(group: Any) -> list[LogRecord]:
    """Returns the tombstones of all records of a modern group. The tombstone of the group record is the last."""
    change = KINDS[type(group)].change(group)
    change.remove_group()
    return change.records
