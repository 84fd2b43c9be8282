"""Requests to other brokers. A broker by itself has none: whoever is asked for cannot be reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.transactions.markers import Marker


class NoPeers:
    """`transactions.markers.MarkerPeers` of a single broker."""

    def write_markers(
        self, broker_id: int, marker: Marker, partitions: Sequence[TopicPartition], done: Callable[[dict[TopicPartition, ErrorCode]], None]
    ) -> None:
        done(dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION))
