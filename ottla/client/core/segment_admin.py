"""Asks for the segments of a partition's log on a broker, as a conversation on a `ClusterCore`. Only Ottla's brokers answer."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin import checked
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.errors import refused
from ottla.wire.apis import KEYS
from ottla.wire.messages.describe_segments import NO_INDEX, DescribeSegmentsRequest, DescribeSegmentsResponse


@operation
def describe_segments(
    cluster: ClusterCore, broker_id: int, partition: TopicPartition, *, first_offset: int = 0, index_of: int = NO_INDEX
) -> Conversation[DescribeSegmentsResponse]:
    """Returns the segments of a partition's log on a broker from the segment with `first_offset` on, and the entries of the indexes of the
    segment with the base offset `index_of`. The cluster must have been made with `with_extensions`. Raises `KafkaError`, with
    UNSUPPORTED_VERSION for a broker that is not Ottla's."""
    link = yield from cluster.link(broker_id)
    if not link.offers(KEYS["DescribeSegments"]):
        raise refused(ErrorCode.UNSUPPORTED_VERSION, "only Ottla's brokers describe segments")
    request = DescribeSegmentsRequest(
        topic=partition.topic, partition=partition.partition, first_offset=first_offset, index_of=index_of
    )
    answer: DescribeSegmentsResponse = yield from checked(cluster.ask_broker(broker_id, request), f"the segments of {partition}")
    return answer
