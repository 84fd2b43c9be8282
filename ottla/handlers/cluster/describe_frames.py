"""DescribeFrames: the requests that this broker has executed lately and their answers, for the console's live wire.

Behaviour: the first request begins the recording, and the broker ends it some seconds after the last one. Frames contain records of
every topic, so ALTER on the cluster is needed, as for creating ACLs. The content of requests and answers with secrets is not
recorded. Requests of this API are not recorded, because every look would make the next one longer.

Version notes: 0 is the first.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.describe_frames import DescribeFramesRequest, DescribeFramesResponse

ANSWER_BYTES_MAX = 4 << 20
"""Bytes of frames in one answer. 4 MiB: all frames that the broker keeps."""


def handle(broker: Broker, request: RequestContext, body: DescribeFramesRequest) -> DescribeFramesResponse:
    if not is_allowed_on_cluster(broker, request, AclOperation.ALTER):
        return DescribeFramesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    lost, pairs = broker.frames.since(body.after, min(max(body.bytes_max, 0), ANSWER_BYTES_MAX))
    return DescribeFramesResponse(newest=broker.frames.newest, lost=lost, pairs=pairs)
