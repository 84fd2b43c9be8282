"""DescribeFrames: the requests that this broker has just executed, and their answers. The console shows them on its page "Live wire".

Behaviour: the first request begins the recording, and the broker ends it some seconds after the last one. Frames contain records of every
topic, so ALTER on the cluster is needed, as for creating ACLs. The content of requests and answers with secrets is not recorded. Requests
of this API are not recorded, because each answer would contain the answers before it. An answer has at most the 4 MiB that the broker keeps
(`server/execution/frame_watch.py`).

Version notes: 0 is the first.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.describe_frames import DescribeFramesRequest, DescribeFramesResponse


def handle(broker: Broker, request: RequestContext, body: DescribeFramesRequest) -> DescribeFramesResponse:
    if not is_allowed_on_cluster(broker, request, AclOperation.ALTER):
        return DescribeFramesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    lost, pairs = broker.frames.since(body.after, body.bytes_max)
    return DescribeFramesResponse(newest=broker.frames.newest, lost=lost, pairs=pairs)
