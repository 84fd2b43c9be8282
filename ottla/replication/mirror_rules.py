"""The rules of a partition whose topic mirrors a topic of another cluster, or has done so (`mirrored.py` appends its records).

While `ottla.mirror.source` is set, only the mirror appends. Afterwards clients append, and the records below the first leader epoch of at
least `ottla.leader.epoch.min` are the source's. A raised minimum may arrive before the election that it causes. Until the election, clients
are refused, because their records would have a smaller epoch and be taken for records of the source.

Producer ids of the source and of this cluster are not related: the same id may name two producers. So the leader forgets the source's
producers. Otherwise it would take a client's batch for a repetition of a batch of the source.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.log_config import LogConfig
from ottla.replication.state import PartitionState
from ottla.storage.log import Log


def may_append(config: LogConfig, leader_epoch: int) -> bool:
    """Whether clients and coordinators may append in this leader epoch."""
    return not config.mirror_source and leader_epoch >= config.leader_epoch_min


def refusal_to_append(state: PartitionState, *, is_over: bool) -> ApiError:
    """Returns the error of an append by a client or a coordinator: the term is over or about to be, or the topic is mirrored."""
    if is_over:
        return state.refusal()
    name, config = state.topic_partition, state.log.config
    if config.mirror_source:
        return refusal_to_write_mirrored(name.topic)
    message = f"{name} has leader epoch {state.leader_epoch}, and waits for an election in epoch {config.leader_epoch_min} or later"
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)


def refusal_to_write_mirrored(topic: str) -> ApiError:
    return ApiError(
        ErrorCode.POLICY_VIOLATION, f"{topic!r} is mirrored from another cluster and read-only; `ottla mirror --graduate` makes it writable"
    )


def forget_producers_of_source(log: Log) -> None:
    """Forgets the producers that have written nothing in this cluster. A transaction of the source that is open stays open."""
    epoch_min = log.config.leader_epoch_min
    first_own = next((start for epoch, start in log.epochs.entries() if epoch >= epoch_min), log.log_end_offset)
    for entry in list(log.producers.active()):
        if not entry.batches or entry.batches[-1].last_offset < first_own:
            log.producers.forget(entry)
