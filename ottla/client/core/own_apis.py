"""Asks an Ottla broker, through Ottla's own APIs, for its recorded requests and answers (frames) and for the segments of a log. The
functions are conversations (`conversation.py`) on a `ClusterCore`.

The cluster must have been made with `with_extensions`. For another broker they raise `KafkaError` with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin import checked
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.errors import refused
from ottla.wire.messages.describe_frames import DescribeFramesRequest, DescribeFramesResponse
from ottla.wire.messages.describe_segments import NO_INDEX, DescribeSegmentsRequest, DescribeSegmentsResponse
from ottla.wire.schema import Request


@operation
def describe_frames(
    cluster: ClusterCore, broker_id: int, *, after: int = -1, bytes_max: int = 1 << 20
) -> Conversation[DescribeFramesResponse]:
    """Returns the pairs of request and answer after the number `after` that a broker has in memory, at most `bytes_max` bytes of frames.
    The first call begins the recording. Raises `KafkaError`."""
    request = DescribeFramesRequest(after=after, bytes_max=bytes_max)
    answer: DescribeFramesResponse = yield from _ask(cluster, broker_id, request, "the frames of a broker", "record frames")
    return answer


@operation
def describe_segments(
    cluster: ClusterCore, broker_id: int, partition: TopicPartition, *, first_offset: int = 0, index_of: int = NO_INDEX
) -> Conversation[DescribeSegmentsResponse]:
    """Returns the segments of a partition's log on a broker from the segment with `first_offset` on, and the entries of the indexes of the
    segment with the base offset `index_of`. Raises `KafkaError`."""
    request = DescribeSegmentsRequest(
        topic=partition.topic, partition=partition.partition, first_offset=first_offset, index_of=index_of
    )
    answer: DescribeSegmentsResponse = yield from _ask(cluster, broker_id, request, f"the segments of {partition}", "describe segments")
    return answer


def _ask(cluster: ClusterCore, broker_id: int, request: Request, what: str, deed: str) -> Conversation[Any]:
    link = yield from cluster.link(broker_id)
    if not link.offers(request.API_KEY):
        raise refused(ErrorCode.UNSUPPORTED_VERSION, f"only Ottla's brokers {deed}")
    return (yield from checked(cluster.ask_broker(broker_id, request), what))
