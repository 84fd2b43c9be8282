"""TxnOffsetCommit: a producer commits a group's offsets inside its transaction.

Behaviour: the group's partition of `__consumer_offsets` must be part of the ongoing transaction. If the transaction has not written to the
partition yet, this broker asks the transaction coordinator. The offsets are logged immediately and take effect when the transaction
commits. If the request names a member and a generation, it is refused when the member is no longer in this generation (KIP-447). After
`offsets.commit.timeout.ms` the answer is COORDINATOR_NOT_AVAILABLE.

Version notes: 2 has leader epochs, 3 member and generation (KIP-447), 4 TRANSACTION_ABORTABLE (KIP-890). In 5 this request adds the group's
partition to the transaction (transactions v2, KIP-890); before, AddOffsetsToTxn does. 6 has topic ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.java_hash import java_partition
from ottla.base.types import GROUP_METADATA_TOPIC, TopicPartition
from ottla.groups.commands import CommitOffsetsInTransaction
from ottla.groups.offsets.commit import commit_in_transaction
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import run_commit
from ottla.handlers.groups.offset_topics import check_topics, joined, offsets_of
from ottla.handlers.rights import require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ABORTABLE_SINCE = 4
TRANSACTIONS_V2_SINCE = 5
TOPIC_IDS_SINCE = 6
NO_SEQUENCE = -1


def handle(broker: Broker, request: RequestContext, body: TxnOffsetCommitRequest) -> Any:
    pending = Pending()
    try:
        require(broker, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        require(broker, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        topics, refused = check_topics(broker, request, body.topics, TxnOffsetCommitRequestTopic, by_id=request.version >= TOPIC_IDS_SINCE)
        results = [outcome(topic, repeat(code)) for topic, code in refused]
        if not topics:
            return TxnOffsetCommitResponse(topics=joined(results))
        if not body.group_id:
            results += [outcome(topic, repeat(ErrorCode.INVALID_GROUP_ID)) for topic in topics]
            return TxnOffsetCommitResponse(topics=joined(results))
        broker.groups.host_of(body.group_id)
    except ApiError as error:
        return TxnOffsetCommitResponse(topics=[outcome(topic, repeat(error.code)) for topic in body.topics])

    def answer(codes: Iterable[ErrorCode]) -> None:
        each = iter(codes)
        pending.complete(TxnOffsetCommitResponse(topics=joined([*(outcome(topic, each) for topic in topics), *results])))

    def commit(code: ErrorCode) -> None:
        try:
            if code:
                raise ApiError(code, "the transaction coordinator did not admit this group's partition")
            command = command_of(request, body, topics)
            run_commit(broker, body.group_id, lambda shard, reply, now_ms: commit_in_transaction(shard, command, reply, now_ms), answer)
        except ApiError as error:
            answer(repeat(error.code))

    _admit(broker, request, body, commit)
    return pending


def command_of(
    request: RequestContext, body: TxnOffsetCommitRequest, topics: list[TxnOffsetCommitRequestTopic]
) -> CommitOffsetsInTransaction:
    return CommitOffsetsInTransaction(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        offsets_of(topics),
        body.producer_id,
        body.producer_epoch,
        request.connection.owner,
    )


def _admit(broker: Broker, request: RequestContext, body: TxnOffsetCommitRequest, commit: Any) -> None:
    """Asks the transaction coordinator, unless this transaction has already written to the group's partition for the same principal. A
    marker may end the transaction before the answer arrives; then the answer is invalid, and the client must try again.
    """
    count = _partition_count(broker)
    key = TopicPartition(GROUP_METADATA_TOPIC, java_partition(body.group_id, count))
    partition = broker.partitions.get(*key)
    leader = partition.leader if partition is not None else None
    principal = request.connection.principal
    if leader is not None and leader.may_continue(body.producer_id, body.producer_epoch, principal):
        commit(ErrorCode.NONE)
        return
    guard = leader.begin_verification(body.producer_id, body.producer_epoch, NO_SEQUENCE) if leader is not None else None

    def admitted(codes: dict[TopicPartition, ErrorCode]) -> None:
        code = offset_error(codes.get(key, ErrorCode.NONE), request.version)
        if not code and leader is not None and guard is not None:
            is_void = not leader.verifications.stands(body.producer_id, body.producer_epoch, guard)
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_void else code
        commit(code)
        if not code and leader is not None:
            leader.claim_producer(body.producer_id, principal, broker.clock.wall_ms())

    is_v2 = request.version >= TRANSACTIONS_V2_SINCE
    broker.transactions.admit(body.transactional_id, body.producer_id, body.producer_epoch, [key], is_v2, admitted)


def offset_error(code: ErrorCode, version: int) -> ErrorCode:
    """Converts the error of a refused admission, because coordinators answer with errors of Produce that this API's clients do not know."""
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _partition_count(broker: Broker) -> int:
    topic = broker.metadata.topic(GROUP_METADATA_TOPIC)
    return 1 if topic is None else max(1, len(topic.partitions))


def outcome(topic: TxnOffsetCommitRequestTopic, codes: Iterator[ErrorCode]) -> TxnOffsetCommitResponseTopic:
    """Builds a topic of the response. Takes one code from `codes` for each partition."""
    results = [
        TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=next(codes))
        for partition in topic.partitions
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results)
