"""What do the offset requests do: commit, commit inside a transaction, fetch, delete?

A commit names the member and generation it speaks for, and is refused when that is not the present one (I33); a lone consumer or an
operator may commit without (generation -1) while the group has no members. Offsets committed inside a client's transaction are logged at
once but count only after its marker (I32); until then a fetch that asks for stable offsets is told UNSTABLE_OFFSET_COMMIT.

Invariants: an offset changes only by a logged record (P9, I35); each partition of a request has its own result. Which topics exist and who
may do this is settled by the handler, which passes on only what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups import records
from ottla.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.draft import Caller, answered
from ottla.groups.offsets.store import CommittedOffset
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.groups.states import COMPLETING_REBALANCE, EMPTY
from ottla.machine.contract import Answer, Decision, LogRecord, Reply, Transactional, independent
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9
FIRST_VERSION_WITH_MEMBER_EPOCH = 9
NO_TIMESTAMP = -1
INT64_MAX = (1 << 63) - 1

# Commit


def commit_offsets(shard: GroupShard, request: OffsetCommitRequest, caller: Caller, reply: Reply, now_ms: int) -> Decision:
    topics = request.topics

    def refusal(code: ErrorCode) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=_commit_results(topics, lambda _: _commit_error(code)))

    try:
        _check_commit(shard, request, caller, now_ms)
    except ApiError as failure:
        return answered(reply, refusal(failure.code), refusal)
    group_id, settings = request.group_id, shard.settings
    expire_ms = min(now_ms + request.retention_time_ms, INT64_MAX) if request.retention_time_ms >= 0 else NO_TIMESTAMP
    room = settings.offsets_per_group_max - len(shard.offsets.of_group(group_id))
    logged: list[LogRecord] = []

    def commit(topic: Any, partition: Any) -> ErrorCode:
        metadata = partition.committed_metadata or ""
        if len(metadata) > settings.offset_metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if len(logged) >= room and shard.offsets.get(group_id, topic.name, partition.partition_index) is None:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        logged.append(_commit_record(group_id, topic, partition, metadata, now_ms, expire_ms))
        return ErrorCode.NONE

    results = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=commit(topic, partition))
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
    response = OffsetCommitResponse(topics=results)
    return Decision(records=logged, effects=(Answer(reply, response),), refused=lambda code: (Answer(reply, refusal(code)),))


def _commit_record(group_id: str, topic: Any, partition: Any, metadata: str, now_ms: int, expire_ms: int) -> LogRecord:
    return records.offset_commit(
        group_id,
        topic.name,
        partition.partition_index,
        CommittedOffset(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=now_ms,
            expire_timestamp_ms=expire_ms,
            topic_id=topic.topic_id,
        ),
    )


def _commit_error(code: ErrorCode) -> ErrorCode:
    """The only append that fails by itself is one that is too large, which clients know by another name."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code is ErrorCode.UNKNOWN_SERVER_ERROR else code


def _commit_results(topics: Iterable[OffsetCommitRequestTopic], code_of: Callable[[Any], ErrorCode]) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code_of(partition))
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def _check_commit(shard: GroupShard, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> None:
    generation = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation < 0:
            return  # a lone consumer: the record makes the group
        if caller.version >= FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    if type(group) is ClassicGroup:
        check_classic_commit(group, request.member_id, request.group_instance_id, generation, is_transactional=False)
        member = group.members.get(request.member_id)
        if member is not None and member.timer_ms is not None:
            member.deadline_ms = now_ms + member.session_timeout_ms  # whoever commits is alive
    elif type(group) is ConsumerGroup:
        _check_consumer_commit(group, request.member_id, generation, caller.version, is_transactional=False)
    else:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)  # a share group has no offsets of this kind


def check_classic_commit(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool) -> None:
    """Whether whoever says these things of itself may commit for the group now."""
    if generation < 0 and group.state is EMPTY:
        return
    if generation >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation != group.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    elif not is_transactional:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)  # somebody who is not in the group, while it has members
    if not is_transactional and group.state is COMPLETING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)  # the member is right, but its partitions are about to be spread anew


def _check_consumer_commit(group: ConsumerGroup, member_id: str, epoch: int, version: int, *, is_transactional: bool) -> None:
    if epoch < 0 and (not group.facts or is_transactional):
        return
    facts = group.facts.get(member_id)
    if facts is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if facts.classic is None and not is_transactional and version < FIRST_VERSION_WITH_MEMBER_EPOCH:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch != group.position(member_id).epoch:
        # Producers know nothing of epochs of members.
        is_of_new_protocol = facts.classic is None and not is_transactional
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH if is_of_new_protocol else ErrorCode.ILLEGAL_GENERATION)


def commit_in_transaction(shard: GroupShard, request: TxnOffsetCommitRequest, reply: Reply, now_ms: int) -> Decision:
    topics = request.topics

    def refusal(code: ErrorCode) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(topics=_transaction_results(topics, lambda _: _commit_error(code)))

    try:
        _check_transaction_commit(shard, request)
    except ApiError as failure:
        return answered(reply, refusal(failure.code), refusal)
    logged: list[LogRecord] = []

    def commit(topic: Any, partition: Any) -> ErrorCode:
        metadata = partition.committed_metadata or ""
        if len(metadata) > shard.settings.offset_metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        logged.append(_commit_record(request.group_id, topic, partition, metadata, now_ms, NO_TIMESTAMP))
        return ErrorCode.NONE

    results = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=commit(topic, partition))
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
    return Decision(
        records=logged,
        effects=(Answer(reply, TxnOffsetCommitResponse(topics=results)),),
        transactional=Transactional(request.producer_id, request.producer_epoch),
        refused=lambda code: (Answer(reply, refusal(code)),),
    )


def _transaction_results(
    topics: Iterable[TxnOffsetCommitRequestTopic], code_of: Callable[[Any], ErrorCode]
) -> list[TxnOffsetCommitResponseTopic]:
    return [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code_of(partition))
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def _check_transaction_commit(shard: GroupShard, request: TxnOffsetCommitRequest) -> None:
    """KIP-447: a producer that says which member it works for is fenced when that member is no longer in the generation it names."""
    generation = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation >= 0:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return
    if type(group) is ClassicGroup:
        check_classic_commit(group, request.member_id, request.group_instance_id, generation, is_transactional=True)
    elif type(group) is ConsumerGroup:
        _check_consumer_commit(group, request.member_id, generation, FIRST_VERSION_WITH_MEMBER_EPOCH, is_transactional=True)
    else:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)


# Fetch


def fetch_offsets(shard: GroupShard, request: OffsetFetchRequestGroup, require_stable: bool, reply: Reply) -> Decision:
    """Answers an `OffsetFetchResponseGroup`; `request.topics` None means all that the group has."""
    group_id = request.group_id

    def refusal(code: ErrorCode) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=code)

    try:
        _check_fetch(shard, request)
    except ApiError as failure:
        return answered(reply, refusal(failure.code), refusal)
    topics: list[OffsetFetchResponseTopics] = []
    if request.topics is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in shard.offsets.keys_of(group_id) if require_stable else shard.offsets.of_group(group_id):
            by_topic.setdefault(topic, []).append(partition)
        for topic, partitions in by_topic.items():
            topic_id = shard.topics.topic_id(topic)
            found = [_fetched(shard, group_id, topic, partition, require_stable) for partition in partitions]
            topics.append(OffsetFetchResponseTopics(name=topic, topic_id=topic_id or bytes(16), partitions=found))
    else:
        for asked in request.topics:
            found = [_fetched(shard, group_id, asked.name, partition, require_stable) for partition in asked.partition_indexes]
            topics.append(OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=found))
    return answered(reply, OffsetFetchResponseGroup(group_id=group_id, topics=topics), refusal)


def _check_fetch(shard: GroupShard, request: OffsetFetchRequestGroup) -> None:
    """A member of the new protocol says who it is, so that it does not go on from where another has taken over."""
    group = shard.groups.get(request.group_id)
    if type(group) is not ConsumerGroup or (request.member_id is None and request.member_epoch < 0):
        return
    if request.member_id not in group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if request.member_epoch != group.position(request.member_id).epoch:
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH)


def _fetched(shard: GroupShard, group_id: str, topic: str, partition: int, require_stable: bool) -> OffsetFetchResponsePartitions:
    if require_stable and shard.offsets.is_pending(group_id, topic, partition):
        return missing_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = shard.offsets.get(group_id, topic, partition)
    if committed is None:
        return missing_offset(partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def missing_offset(partition: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    """What a client reads as "nothing is committed", with a reason if there is one."""
    return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=-1, metadata="", error_code=code)


# Delete


def delete_offsets(shard: GroupShard, request: OffsetDeleteRequest, reply: Reply) -> Decision:
    group_id = request.group_id

    def refusal(code: ErrorCode) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=code)

    group = shard.groups.get(group_id)
    if group is None or isinstance(group, ShareGroup):
        return answered(reply, refusal(ErrorCode.GROUP_ID_NOT_FOUND), refusal)
    if type(group) is ClassicGroup and group.is_active and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return answered(reply, refusal(ErrorCode.NON_EMPTY_GROUP), refusal)
    logged: list[LogRecord] = []
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        is_used = group.is_subscribed_to(topic.name)
        results = OffsetDeleteResponseTopic(name=topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_used else ErrorCode.NONE
            results.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            if not is_used and (shard.offsets.get(group_id, topic.name, index) or shard.offsets.is_pending(group_id, topic.name, index)):
                logged.append(records.offset_tombstone(group_id, topic.name, index))
        topics.append(results)
    response = OffsetDeleteResponse(topics=topics)
    done = (Answer(reply, response),)
    return Decision(parts=independent(logged), effects=done, refused=lambda code: (Answer(reply, refusal(code)),))


def forget_topics(shard: GroupShard, names: frozenset[str]) -> Decision:
    """Topics were deleted: offsets in them mean nothing, and would be wrong for a topic of the same name."""
    tombstones = (
        records.offset_tombstone(group_id, topic, partition)
        for group_id in shard.offsets.group_ids()
        for topic, partition in shard.offsets.keys_of(group_id)
        if topic in names
    )
    return Decision(parts=independent(tombstones))


def rewrite_overtaken(shard: GroupShard) -> Decision:
    """Logs once more what compaction would get wrong (`store.py` says why)."""
    logged = []
    for group_id, (topic, partition) in shard.offsets.rewrites:
        committed = shard.offsets.get(group_id, topic, partition)
        assert committed is not None, f"offset of {topic}-{partition} in group {group_id} is to be rewritten but is gone"
        logged.append(records.offset_commit(group_id, topic, partition, committed))
    return Decision(parts=independent(logged))
