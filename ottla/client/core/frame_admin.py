"""Looks at the frames that a broker receives and sends, as a conversation on a `ClusterCore`. Only Ottla's brokers have them."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.client.core.admin import checked
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.errors import refused
from ottla.wire.apis import KEYS
from ottla.wire.messages.describe_frames import DescribeFramesRequest, DescribeFramesResponse

NOT_OURS = "only Ottla's brokers record frames"


@operation
def describe_frames(
    cluster: ClusterCore, broker_id: int, *, after: int = -1, bytes_max: int = 1 << 20
) -> Conversation[DescribeFramesResponse]:
    """Returns the pairs of request and answer after the number `after` that a broker has in memory, at most `bytes_max` bytes of frames.
    The first call begins the recording. The cluster must have been made with `with_extensions`. Raises `KafkaError`, with
    UNSUPPORTED_VERSION for a broker that is not Ottla's."""
    link = yield from cluster.link(broker_id)
    if not link.offers(KEYS["DescribeFrames"]):
        raise refused(ErrorCode.UNSUPPORTED_VERSION, NOT_OURS)
    request = DescribeFramesRequest(after=after, bytes_max=bytes_max)
    answer: DescribeFramesResponse = yield from checked(cluster.ask_broker(broker_id, request), "the frames of a broker")
    return answer
