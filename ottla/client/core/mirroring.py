"""Appends batches of another cluster to mirrored topics (MirrorRecords), as a conversation. Ottla's extension of Kafka's protocol.

Brokers offer this only to connections that ask for extensions (`offers_mirroring`). A request names the end of the log that it expects, so
it may be repeated: a batch that was appended is not appended again, and the answer has the real end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.admin import refusal, timeout_ms
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Ask, AskAll, Conversation
from ottla.client.core.operation import operation
from ottla.client.core.topic_lists import each_partition
from ottla.client.errors import ClientError, KafkaError
from ottla.wire.apis import KEYS
from ottla.wire.batch_header import Buffer

MIRROR_RECORDS = KEYS["MirrorRecords"]


class MirrorPart(NamedTuple):
    """Batches of one partition. `source` is the topic's `ottla.mirror.source`. Without `records` only the bounds are asked for."""

    source: str
    expected_end: int
    source_log_start: int = -1
    records: Buffer = b""


class Mirrored(NamedTuple):
    """The partition after a request, and why its batches were refused. The offsets are -1 if the broker does not lead it."""

    error: KafkaError | None
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int


@operation
def offers_mirroring(cluster: ClusterCore) -> Conversation[bool]:
    """Whether the cluster accepts mirrored batches: its brokers are Ottla's, and the client was connected with `with_extensions`."""
    return (yield from cluster.any_link()).offers(MIRROR_RECORDS)


@operation
def mirror_records(cluster: ClusterCore, parts: Mapping[TopicPartition, MirrorPart]) -> Conversation[dict[TopicPartition, Mirrored]]:
    """Sends one request to each leader. A partition without a leader or an answer has the error alone. The leaders of partitions with an
    error are looked up again by the next call. Raises an error if no leader is known."""
    leaders, reasons = yield from cluster.leaders(list(parts))
    found = {partition: Mirrored(reason, -1, -1, -1, -1, -1) for partition, reason in reasons.items()}
    asks: list[Ask] = []
    try:
        for broker_id, partitions in leaders.items():
            link = yield from cluster.take_link(broker_id)
            asks.append(Ask(link, _request(cluster, {one: parts[one] for one in partitions}), None, cluster.timeout_s))
        answers = yield AskAll(tuple(asks))
    finally:
        cluster.give_back(ask.link for ask in asks)
    for partitions, answer in zip(leaders.values(), answers, strict=True):
        if isinstance(answer, ClientError):
            cluster.metadata.forget(partitions)
            raise answer
        for partition, one in each_partition(answer.topics):
            error = refusal(one.error_code, one.error_message, f"{partition} of the target")
            found[partition] = Mirrored(
                error, one.log_start_offset, one.log_end_offset, one.committed_end, one.last_stable_offset, one.leader_epoch
            )
    cluster.metadata.forget(partition for partition, one in found.items() if one.error is not None)
    return found


def _request(cluster: ClusterCore, parts: Mapping[TopicPartition, MirrorPart]) -> Any:
    from ottla.wire.messages import mirror_records as wire

    topics: dict[str, Any] = {}
    for partition, part in parts.items():
        topic = topics.setdefault(partition.topic, wire.MirrorTopic(name=partition.topic, source=part.source))
        topic.partitions.append(
            wire.MirrorPartition(
                index=partition.partition, expected_end=part.expected_end, source_log_start=part.source_log_start, records=part.records
            )
        )
    return wire.MirrorRecordsRequest(timeout_ms=timeout_ms(cluster), topics=list(topics.values()))
