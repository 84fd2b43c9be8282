"""The rules of a partition whose topic mirrors a topic of another cluster, or has done so (`mirrored.py` appends its records).

While `ottla.mirror.source` is set, only the mirror appends. Afterwards clients append, and the records below the first leader epoch of at
least `ottla.leader.epoch.min` are the source's. Producer ids of the source and of this cluster are not related: the same id may name two
producers. So the leader forgets the source's producers, or else it would take a batch of its own client for a repeated one of the source.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.replication.state import PartitionState
from ottla.storage.log import Log


def refusal_to_append(state: PartitionState, *, is_over: bool) -> ApiError:
    """Returns the error of an append by a client or a coordinator: the term is over, or the topic is mirrored."""
    return state.refusal() if is_over else refusal_to_write_mirrored(state.topic_partition.topic)


def refusal_to_write_mirrored(topic: str) -> ApiError:
    return ApiError(
        ErrorCode.POLICY_VIOLATION, f"{topic!r} is mirrored from another cluster and read-only; `ottla mirror --graduate` makes it writable"
    )


def begin_own_records(log: Log, leader_epoch: int) -> None:
    """Notes that the leader's own epoch begins at the log's end, if it has not begun, and forgets the producers of older records. A
    transaction of the source that is open stays open."""
    if log.epochs.latest < leader_epoch:
        log.epochs.assign(leader_epoch, log.log_end_offset)
    first_own = next(start for epoch, start in log.epochs.entries() if epoch >= log.config.leader_epoch_min)
    for entry in list(log.producers.active()):
        if not entry.batches or entry.batches[-1].last_offset < first_own:
            log.producers.forget(entry)
