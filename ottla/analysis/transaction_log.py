"""Reads from `__transaction_state` when a transactional id changed its state. Works with any Kafka for users that may read this topic.

The topic is compacted, so the states of old transactions may be missing. The last state of each transactional id is always there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from ottla.analysis.resets import bounds_of
from ottla.base.errors import WireError
from ottla.base.java_hash import java_partition
from ottla.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.wire.codec import decoder
from ottla.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.wire.records import Record

OFFSETS_MAX = 10_000
"""Offsets before the end of the partition that are read: at most about 2 MB."""
READ_S = 3.0
STEPS_MAX = 100
STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip
"""Kafka's names of the states, by their number in a record."""
_ENDS = ("CompleteCommit", "CompleteAbort", "Dead")


class Step(NamedTuple):
    """A state that a transactional id has entered, or a partition that its transaction has added. `partitions` counts those of the
    transaction. Times are in milliseconds since 1970."""

    at_ms: int
    state: str
    producer_id: int
    producer_epoch: int
    partitions: int


def steps_of(cluster: Cluster, transactional_id: str, limit: int = STEPS_MAX) -> list[Step]:
    """Returns the last `limit` steps of a transactional id that are read within `READ_S` seconds, the oldest first. Raises `ApiError`."""
    from ottla.client.blocking.consumer import Consumer

    place = TopicPartition(TRANSACTION_STATE_TOPIC, java_partition(transactional_id, len(cluster.partitions(TRANSACTION_STATE_TOPIC))))
    bounds = bounds_of(cluster, [place])[place]
    steps: list[Step] = []
    position, deadline = max(bounds.start, bounds.end - OFFSETS_MAX), time.monotonic() + READ_S
    with Consumer(cluster, auto_offset_reset="earliest", max_wait_ms=100) as consumer:
        consumer.assign({place: position})
        while position < bounds.end and time.monotonic() < deadline:
            for fetched in consumer.poll(0.5):
                steps += [step for record in fetched.records() if (step := _step(record, transactional_id)) is not None]
                del steps[:-limit]
                position = fetched.next_offset
    return steps


def _step(record: Record, transactional_id: str) -> Step | None:
    """Returns the step of a record; None for a record of another transactional id, a deletion, and bytes that cannot be decoded."""
    if record.key is None or record.value is None:
        return None
    version = int.from_bytes(record.value[:2], "big", signed=True)
    if not TransactionLogValue.VERSIONS[0] <= version <= TransactionLogValue.VERSIONS[1]:
        return None
    try:
        if decoder(TransactionLogKey, 0)(record.key, 2)[0].transactional_id != transactional_id:
            return None
        found = decoder(TransactionLogValue, version)(record.value, 2)[0]
    except WireError:
        return None
    partitions = sum(len(one.partition_ids) for one in found.transaction_partitions or ())
    state = STATES[found.transaction_status] if 0 <= found.transaction_status < len(STATES) else str(found.transaction_status)
    return Step(found.transaction_last_update_timestamp_ms, state, found.producer_id, found.producer_epoch, partitions)


def current_times(steps: Sequence[Step]) -> dict[str, int]:
    """Returns when the last transaction of `steps` entered each state, in milliseconds since 1970."""
    times: dict[str, int] = {}
    for step in reversed(steps):
        if times and step.state in _ENDS:
            break
        times[step.state] = step.at_ms
        if step.state == "Empty":
            break
    return times
