"""The nodes under `/log_dir_event_notification`: reports of a broker about its replicas that do not work.

Kafka's node names only the broker. Ours also names the replicas that do not work, the replicas that were opened again, and leaders whose
logs lack records (`ShortLeader`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.immutable import immutable
from ottla.base.uuids import uuid_from_text, uuid_to_text
from ottla.metadata_store.node_json import BROKER_EPOCH_MAX, NodeError, integer_of, integers, list_of, read_json, write_json

LOGS_FAILED = 1
"""Kafka's number for the kind of event; there is only this kind."""


@immutable(kw_only=True)
class ShortLeader:
    """A leader that lacks acknowledged records: its log diverges from a follower's log below the follower's high watermark."""

    topic_id: bytes
    partition: int
    leader: int
    leader_epoch: int


@immutable(kw_only=True)
class LogDirEvent:
    """The report of one broker. `replicas`: all replicas (topic id and partition) of the broker that do not work now. `reopened`: replicas
    that were opened again since the last report and may have lost records. `short`: leaders that the broker's replicas refuse to follow.
    A large report is cut (`cluster/failed_replicas.py`).
    """

    broker_id: int
    broker_epoch: int
    replicas: tuple[tuple[bytes, int], ...]
    reopened: tuple[tuple[bytes, int], ...] = ()
    short: tuple[ShortLeader, ...] = ()


def log_dir_event_bytes(event: LogDirEvent) -> bytes:
    value: dict[str, Any] = {
        "version": 1,
        "broker": event.broker_id,
        "event": LOGS_FAILED,
        "epoch": event.broker_epoch,
        "replicas": _by_topic(event.replicas),
        "reopened": _by_topic(event.reopened),
    }
    if event.short:
        value["short"] = [
            {"topic": uuid_to_text(one.topic_id), "partition": one.partition, "leader": one.leader, "leader_epoch": one.leader_epoch}
            for one in event.short
        ]
    return write_json(value)


def _by_topic(replicas: Sequence[tuple[bytes, int]]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic_id, partition in replicas:
        by_topic.setdefault(uuid_to_text(topic_id), []).append(partition)
    return by_topic


def read_log_dir_event(data: bytes) -> LogDirEvent:
    value = read_json(data)
    return LogDirEvent(
        broker_id=integer_of(value, "broker"),
        broker_epoch=integer_of(value, "epoch", number_max=BROKER_EPOCH_MAX) if "epoch" in value else -1,
        replicas=_named_replicas(value.get("replicas", {})),
        reopened=_named_replicas(value.get("reopened", {})),
        short=tuple(map(_short_leader, list_of(value, "short"))) if "short" in value else (),
    )


def _named_replicas(named: Any) -> tuple[tuple[bytes, int], ...]:
    if not isinstance(named, dict):
        raise NodeError("replicas are no map of topic ids to partitions")
    replicas: list[tuple[bytes, int]] = []
    for text in named:
        topic_id = _topic_id(text)
        replicas += [(topic_id, partition) for partition in integers(list_of(named, text), "replicas")]
    return tuple(replicas)


def _short_leader(value: Any) -> ShortLeader:
    if not isinstance(value, dict):
        raise NodeError("a leader that lacks records is no map")
    return ShortLeader(
        topic_id=_topic_id(value.get("topic")),
        partition=integer_of(value, "partition"),
        leader=integer_of(value, "leader"),
        leader_epoch=integer_of(value, "leader_epoch"),
    )


def _topic_id(text: Any) -> bytes:
    try:
        return uuid_from_text(str(text))
    except ValueError as error:
        raise NodeError(str(error)) from None
