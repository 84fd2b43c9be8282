"""Appends batches of another cluster to mirrored topics by Ottla's own request MirrorRecords; used by `ottla mirror`. The functions are
conversations: generators without I/O (`conversation.py`).

Brokers offer this only to connections that ask for extensions (`offers_mirroring`). A request names the end of the log that it expects, so
it may be repeated: a batch that was appended is not appended again, and the answer has the real end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.admin import refusal, timeout_ms
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Ask, AskAll, Conversation
from ottla.client.core.operation import operation
from ottla.client.core.topic_lists import each_partition
from ottla.client.errors import ClientError, KafkaError
from ottla.wire.apis import KEYS
from ottla.wire.batch_header import Buffer

if TYPE_CHECKING:
    from ottla.client.core.ports import Link

MIRROR_RECORDS = KEYS["MirrorRecords"]


REQUEST_BYTES_MAX = 1 << 20
"""Brokers receive requests of this size into pooled buffers. Larger requests take a third more CPU time at the broker."""
REQUEST_BATCHES_MAX = 4_000
"""Brokers refuse requests with more batches. They also refuse more than 8 MiB, except a single batch."""


class MirrorPart(NamedTuple):
    """Batches of one partition for one request. `source` is the topic's `ottla.mirror.source`. Without `records` only the bounds are asked
    for."""

    source: str
    expected_end: int
    source_log_start: int = -1
    records: Buffer = b""
    batch_count: int = 0


class Mirrored(NamedTuple):
    """The state of the partition after a request, and why its batches were refused. The offsets are -1 if the broker does not lead the
    partition.
    """

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
def mirror_records(
    cluster: ClusterCore, parts: Mapping[TopicPartition, Sequence[MirrorPart]]
) -> Conversation[dict[TopicPartition, list[Mirrored]]]:
    """Sends the parts of each partition to its leader, in order, and waits for the answers after the last request is sent. Each partition
    must have at least one part. If a part is refused, the later parts of its partition are refused too, because the log does not end where
    they begin. Returns the answers in the same order. For a partition without a leader there is only one answer, the error. The leaders of
    partitions with an error are looked up again by the next call. Raises an error if no leader is known or an answer is missing.
    """
    leaders, reasons = yield from cluster.leaders(list(parts))
    found = {partition: [Mirrored(reason, -1, -1, -1, -1, -1)] for partition, reason in reasons.items()}
    links: list[Link] = []
    asks: list[Ask] = []
    try:
        for broker_id, partitions in leaders.items():
            links.append((yield from cluster.take_link(broker_id)))
            for some in _in_requests({partition: parts[partition] for partition in partitions}):
                asks.append(Ask(links[-1], _request(cluster, some), None, cluster.timeout_s))
        answers = yield AskAll(tuple(asks))
    finally:
        cluster.give_back(links)
    for answer in answers:
        if isinstance(answer, ClientError):
            cluster.metadata.forget(parts)
            raise answer
        for partition, one in each_partition(answer.topics):
            error = refusal(one.error_code, one.error_message, f"{partition} of the target")
            mirrored = Mirrored(
                error, one.log_start_offset, one.log_end_offset, one.committed_end, one.last_stable_offset, one.leader_epoch
            )
            found.setdefault(partition, []).append(mirrored)
    cluster.metadata.forget(partition for partition, some in found.items() if any(one.error is not None for one in some))
    return found


def _in_requests(parts: Mapping[TopicPartition, Sequence[MirrorPart]]) -> Iterator[dict[TopicPartition, MirrorPart]]:
    """Yields the parts of each request to one leader. A request has at most one part of a partition."""
    some: dict[TopicPartition, MirrorPart] = {}
    size = count = 0
    for partition, of_partition in parts.items():
        for part in of_partition:
            size, count = size + len(part.records), count + part.batch_count
            if some and (partition in some or size > REQUEST_BYTES_MAX or count > REQUEST_BATCHES_MAX):
                yield some
                some, size, count = {}, len(part.records), part.batch_count
            some[partition] = part
    if some:
        yield some


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
