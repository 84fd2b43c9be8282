"""ShareAcknowledge: a member of a share group accepts, releases, rejects or renews records that it has acquired.

Behaviour: the acknowledgements of a partition are all applied or all refused. Completed offsets below the records in flight are skipped.
They are answered when they are durable. A renewal writes nothing. The final session epoch (-1) ends the session, which releases the records
that the member did not acknowledge. While the feature `share.version` is at level 0, the answer is UNSUPPORTED_VERSION.

Version notes: 2 can renew acquisition locks (KIP-1222), and the answer has the duration of a lock.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import ITEMS_PER_STEP
from ottla.handlers.broker_endpoints import live_brokers
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.share_groups.acknowledgements import (
    LEADERSHIP_ERRORS,
    RENEWAL_SINCE,
    Codes,
    acknowledge,
    check_size,
    identity,
    leader_of,
    statements,
)
from ottla.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH, SESSION_PARTITIONS_MAX
from ottla.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(
    broker: Broker, request: RequestContext, body: ShareAcknowledgeRequest
) -> Generator[None, None, ShareAcknowledgeResponse | Pending]:
    try:
        group_id, member_id = identity(broker, request, body.group_id, body.member_id)
        if body.share_session_epoch == INITIAL_EPOCH:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session is opened by ShareFetch")
        check_size(body.topics)
        if sum([len(topic.partitions) for topic in body.topics]) > SESSION_PARTITIONS_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"more than {SESSION_PARTITIONS_MAX} partitions, which no session has")
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    session, code = broker.share_sessions.step(group_id, member_id, body.share_session_epoch)
    if session is None:
        return ShareAcknowledgeResponse(error_code=code)
    stated = [
        ((topic.topic_id, partition.partition_index), statements(partition.acknowledgement_batches))
        for topic in body.topics
        for partition in topic.partitions
    ]
    pending = Pending()

    is_renewing = request.version >= RENEWAL_SINCE and body.is_renew_ack
    collect = yield from acknowledge(broker, request, group_id, member_id, stated, is_renewing)
    if body.share_session_epoch == FINAL_EPOCH:
        broker.share_sessions.end(session)
    collect(lambda codes: pending.complete(_response(broker, request, body, codes)))
    return pending


def _response(
    broker: Broker, request: RequestContext, body: ShareAcknowledgeRequest, codes: Codes
) -> Generator[None, None, ShareAcknowledgeResponse]:
    leaders: dict[int, None] = {}
    topics = []
    for topic in body.topics:
        results = []
        for number, partition in enumerate(topic.partitions, 1):
            place = (topic.topic_id, partition.partition_index)
            result = PartitionData(partition_index=place[1], error_code=codes[place])
            if codes[place] in LEADERSHIP_ERRORS:
                leader_id, leader_epoch = leader_of(broker, place)
                result.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
                leaders[leader_id] = None
            results.append(result)
            if not number % ITEMS_PER_STEP:
                yield
        topics.append(ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=results))
    response = ShareAcknowledgeResponse(responses=topics)
    response.acquisition_lock_timeout_ms = broker.share_partitions.terms_of(body.group_id or "").lock_duration_ms
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in live_brokers(broker, request)
            if node_id in leaders
        ]
    return response
