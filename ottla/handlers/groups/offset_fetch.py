"""OffsetFetch: the offsets that a group has committed.

Behaviour: a partition without a committed offset has offset -1 and no error. A named topic that the principal may not describe gets
TOPIC_AUTHORIZATION_FAILED. If the request is for all topics, such topics are omitted. With `require_stable`, an offset with a pending
transactional commit gets UNSTABLE_OFFSET_COMMIT.

Version notes: from 2 on, null topics select all topics, and the answer has an error for the group. 5 has leader epochs (KIP-320), 7 require
stable (KIP-447), 8 several groups (KIP-709), 9 member id and epoch of the new protocol, with STALE_MEMBER_EPOCH (KIP-848), 10 topic ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.answers import FetchedOffset, FetchedOffsets
from ottla.groups.commands import FetchOffsets, TopicPartitions
from ottla.groups.offsets.fetch import fetch_offsets
from ottla.groups.offsets.store import CommittedOffset
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import Gathering, require_lease, run
from ottla.handlers.rights import describable_topics, is_allowed, require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.schema import maker

GROUP_ERRORS_SINCE = 2
GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10

make_response = maker(OffsetFetchResponse)
make_group = maker(OffsetFetchResponseGroup)
make_topic = maker(OffsetFetchResponseTopics)
make_partition = maker(OffsetFetchResponsePartitions)


def handle(broker: Broker, request: RequestContext, body: OffsetFetchRequest) -> Any:
    pending = Pending()
    groups = body.groups if request.version >= GROUPS_SINCE else [_only_group(body)]
    if not groups:
        return OffsetFetchResponse()
    found: list[Any] = [None] * len(groups)

    def complete() -> None:
        is_list = request.version >= GROUPS_SINCE
        pending.complete(make_response(groups=found) if is_list else _single(request.version, groups[0], found[0]))

    gathering = Gathering(len(groups), complete)

    def add(index: int, response: OffsetFetchResponseGroup) -> None:
        found[index] = response
        gathering.part_done()

    for index, group in enumerate(groups):
        _fetch(broker, request, group, body.require_stable, partial(add, index))
    return pending


def _only_group(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = body.topics
    wanted = None if topics is None else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics]
    return OffsetFetchRequestGroup(group_id=body.group_id, topics=wanted)


def _fetch(
    broker: Broker,
    request: RequestContext,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    add: Callable[[OffsetFetchResponseGroup], None],
) -> None:
    refused: list[OffsetFetchResponseTopics] = []

    def answer(fetched: FetchedOffsets) -> None:
        topics = list(map(_topic, fetched.topics, fetched.offsets))
        if group.topics is None and (may_describe := describable_topics(broker, request)) is not None:
            topics = [topic for topic in topics if may_describe(topic.name)]
        add(make_group(group_id=group.group_id, error_code=fetched.error, topics=topics + refused))

    try:
        require(broker, request, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        require_lease(broker)
        topics = None if group.topics is None else _check_topics(broker, request, group.topics, refused)
        command = FetchOffsets(group.group_id, topics, group.member_id, group.member_epoch, require_stable)
        run(broker, group.group_id, lambda shard, reply, _now: fetch_offsets(shard, command, reply), answer)
    except ApiError as error:
        refused.clear()
        answer(FetchedOffsets(error=error.code))


def _topic(topic: TopicPartitions, offsets: Sequence[FetchedOffset]) -> OffsetFetchResponseTopics:
    partitions = [
        make_partition(
            partition_index=partition,
            committed_offset=found.offset,
            committed_leader_epoch=found.leader_epoch,
            metadata=found.metadata,
        )
        if isinstance(found, CommittedOffset)
        else missing_offset(partition, found or ErrorCode.NONE)
        for partition, found in zip(topic.partitions, offsets, strict=True)
    ]
    return make_topic(name=topic.topic, topic_id=topic.topic_id, partitions=partitions)


def missing_offset(partition: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    """Returns the result of a partition without a committed offset, with an optional error."""
    return make_partition(partition_index=partition, committed_offset=-1, metadata="", error_code=code)


def _check_topics(
    broker: Broker, request: RequestContext, topics: list[OffsetFetchRequestTopics], refused: list[OffsetFetchResponseTopics]
) -> list[TopicPartitions]:
    """Separates the topics that the principal may describe, and finds the names of ids. Refuses unknown ids. Does not check that a named
    topic exists."""
    kept = []
    for topic in topics:
        if request.version >= TOPIC_IDS_SINCE:
            known = broker.metadata.topic_by_id(topic.topic_id)
            if known is None:
                refused.append(_refuse(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            topic.name = known.name
        if is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            kept.append(TopicPartitions(topic.name, topic.partition_indexes, topic.topic_id))
        else:
            refused.append(_refuse(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return kept


def _refuse(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    missing = [missing_offset(partition, code) for partition in topic.partition_indexes]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=missing)


def _single(version: int, group: OffsetFetchRequestGroup, found: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Builds the answer of versions with one group. Version 1 has no error for the group, so each partition gets it."""
    topics = found.topics
    if found.error_code and version < GROUP_ERRORS_SINCE:
        topics = [_refuse(topic, ErrorCode(found.error_code)) for topic in group.topics or ()]
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
