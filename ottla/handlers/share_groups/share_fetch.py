"""ShareFetch: a member of a share group acquires records, and acknowledges earlier ones.

Behaviour: acknowledgements in the request are applied first (`acknowledgements.py`). Then the partitions of the session are read, each from
its first available offset, until `max_records` records are acquired. Each request begins with another partition of the session. The answer
has slices of segment files with whole batches; the member may use the offsets that are listed as acquired. If fewer than `min_bytes` are
available, the request waits up to `max_wait_ms` for changes of its partitions or for released records. It then checks the permissions again
and reads again. A request for 0 bytes or records acquires nothing and does not wait. The answer is sent when the acknowledgements are
durable and the reading has ended. While the feature `share.version` is at level 0, the answer is UNSUPPORTED_VERSION.

Version notes: 1 has `max_records`, and acquires batches of about `batch_size` records. 2 has a strict limit of records (KIP-1206), and can
renew acquisition locks (KIP-1222); a request that renews locks reads nothing.
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
    Stated,
    acknowledge,
    check_size,
    identity,
    leader_of,
    statements,
)
from ottla.handlers.share_groups.acquiring import ShareReading
from ottla.sharing.acquisition import BATCH_OPTIMIZED, RECORD_LIMIT
from ottla.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, TopicIdPartition
from ottla.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.wire.schema import maker

make_result = maker(PartitionData)
make_acquired = maker(AcquiredRecords)



def handle(broker: Broker, request: RequestContext, body: ShareFetchRequest) -> Generator[None, None, ShareFetchResponse | Pending]:
    try:
        group_id, member_id = identity(broker, request, body.group_id, body.member_id)
        is_renewing = request.version >= RENEWAL_SINCE and body.is_renew_ack
        if is_renewing:
            check_renewal(body)
        if body.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no acquire mode {body.share_acquire_mode}")
        check_size(body.topics, body.forgotten_topics_data)
        session, stated = enter(broker, request, body, group_id, member_id)
    except ApiError as error:
        refusal = ShareFetchResponse(error_code=error.code, error_message=error.message)
        return refusal if error.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED else answer_later(broker, refusal, body.max_wait_ms)
    acknowledging = yield from acknowledge(broker, request, group_id, member_id, stated, is_renewing)
    answer = ShareFetchAnswer(broker, request, body, session)
    if body.share_session_epoch == FINAL_EPOCH:
        broker.share_sessions.end(session)
    elif not is_renewing:
        yield from answer.fetch.start()
    acknowledging(answer.on_acknowledged)
    return answer.pending


def answer_later(broker: Broker, refusal: ShareFetchResponse, wait_ms: int) -> Pending:
    """Answers with an error after the request's wait, because a client without a session retries immediately."""
    pending = Pending()
    timer = broker.timers.call_later(max(wait_ms, 0), lambda: pending.complete(refusal))
    pending.abandon = timer.cancel
    return pending


def check_renewal(body: ShareFetchRequest) -> None:
    for name in ("max_bytes", "min_bytes", "max_records", "max_wait_ms"):
        if getattr(body, name):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} must be 0 in a request that renews locks, it is {getattr(body, name)}")


def enter(
    broker: Broker, request: RequestContext, body: ShareFetchRequest, group_id: str, member_id: str
) -> tuple[ShareSession, list[Stated]]:
    """Opens or continues the session, and updates its partitions. Returns the session and the request's acknowledgements. Raises
    `ApiError`."""
    stated = [
        ((topic.topic_id, partition.partition_index), statements(partition.acknowledgement_batches))
        for topic in body.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    ]
    sessions = broker.share_sessions
    if body.share_session_epoch == INITIAL_EPOCH:
        if stated:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a request that opens a session cannot acknowledge records")
        session = sessions.open(group_id, member_id, request.connection)
        if session is None:
            reason = "there are too many share sessions, or records of the member's last session are being released"
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, reason)
    else:
        found, code = sessions.step(group_id, member_id, body.share_session_epoch)
        if found is None:
            raise ApiError(code, f"the member {member_id} has no share session that continues with epoch {body.share_session_epoch}")
        session = found
    if body.share_session_epoch != FINAL_EPOCH:
        added = [(topic.topic_id, partition.partition_index) for topic in body.topics for partition in topic.partitions]
        forgotten = [(topic.topic_id, index) for topic in body.forgotten_topics_data for index in topic.partitions]
        if not sessions.update(session, added, forgotten):
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, "too many partitions in share sessions")
    return session, stated


class ShareFetchAnswer:
    """Waits for both parts of a request, the acknowledgements and the reading."""

    __slots__ = ("_body", "_broker", "_codes", "_request", "fetch", "pending")

    def __init__(self, broker: Broker, request: RequestContext, body: ShareFetchRequest, session: ShareSession) -> None:
        self._broker = broker
        self._request = request
        self._body = body
        self._codes: Codes | None = None
        self.fetch = ShareReading(broker, request, body, session, self._maybe_complete, self._fail)
        self.pending = Pending()
        self.pending.abandon = self.fetch.abandon

    def on_acknowledged(self, codes: Codes) -> None:
        self._codes = codes
        self._maybe_complete()

    def _maybe_complete(self) -> None:
        if self.fetch.is_over and self._codes is not None:
            self.pending.complete(self._response(self._codes))

    def _fail(self, error: Exception) -> None:
        self.pending.fail(error)

    def _response(self, codes: Codes) -> Generator[None, None, ShareFetchResponse]:
        """Builds the response. It has the partitions with records, with errors, or with acknowledgements."""
        results: dict[TopicIdPartition, PartitionData] = {}
        leaders: dict[int, None] = {}
        for number, (place, got) in enumerate(self.fetch.got.items(), 1):
            result = results[place] = make_result(partition_index=place[1])
            result.records = got.records
            result.acquired_records = [
                make_acquired(first_offset=first, last_offset=last, delivery_count=count) for first, last, count in got.acquired
            ]
            if not number % ITEMS_PER_STEP:
                yield
        for number, (place, code) in enumerate(self.fetch.outcomes(), 1):
            result = self._result(results, place)
            result.error_code = code
            self._name_leader(result, place, code, leaders)
            if not number % ITEMS_PER_STEP:
                yield
        for number, (place, code) in enumerate(codes.items(), 1):
            result = self._result(results, place)
            result.acknowledge_error_code = code
            self._name_leader(result, place, code, leaders)
            if not number % ITEMS_PER_STEP:
                yield
        return self._finished(results, leaders)

    def _finished(self, results: dict[TopicIdPartition, PartitionData], leaders: dict[int, None]) -> ShareFetchResponse:
        response = ShareFetchResponse(responses=by_topic(results))
        quotas, request = self._broker.quotas, self._request
        if quotas is not None and self.fetch.got:
            # The records are still sent: they are locked for this member, so no other member could get them.
            size = sum(got.records.length for got in self.fetch.got.values())
            response.throttle_time_ms = quotas.charge_fetch(request.connection.principal, request.client_id, size, is_sent=True)
        response.acquisition_lock_timeout_ms = self._broker.share_partitions.terms_of(self._body.group_id or "").lock_duration_ms
        self.fetch.let_go()
        if leaders:
            response.node_endpoints = [
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in live_brokers(self._broker, self._request)
                if node_id in leaders
            ]
        return response

    def _result(self, results: dict[TopicIdPartition, PartitionData], place: TopicIdPartition) -> PartitionData:
        found = results.get(place)
        if found is None:
            found = results[place] = make_result(partition_index=place[1])
        return found

    def _name_leader(self, result: PartitionData, place: TopicIdPartition, code: ErrorCode, leaders: dict[int, None]) -> None:
        if code in LEADERSHIP_ERRORS:
            leader_id, leader_epoch = leader_of(self._broker, place)
            result.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            leaders[leader_id] = None


def by_topic(results: dict[TopicIdPartition, PartitionData]) -> list[ShareFetchableTopicResponse]:
    topics: dict[bytes, list[PartitionData]] = {}
    for (topic_id, _), result in results.items():
        topics.setdefault(topic_id, []).append(result)
    return [ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
