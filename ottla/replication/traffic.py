"""Counters of one partition since it was opened, for metrics.

Requests with some errors (a leader has moved, a batch is too large) are counted as requests, but not as failed ones, as in Kafka. Otherwise
every election would look like an outage.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode

_EVERYDAY = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
EVERYDAY_OF_PRODUCE = _EVERYDAY | {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE}
EVERYDAY_OF_FETCH = _EVERYDAY | {
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}


class Traffic:
    """Counters of one partition; requests are counted once for each of their partitions."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0

    def count_refused_produce(self, code: ErrorCode) -> None:
        self.produces += 1
        if code not in EVERYDAY_OF_PRODUCE:
            self.failed_produces += 1

    def count_refused_fetch(self, code: ErrorCode) -> None:
        if code not in EVERYDAY_OF_FETCH:
            self.failed_fetches += 1
