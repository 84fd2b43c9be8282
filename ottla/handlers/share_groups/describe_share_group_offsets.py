"""DescribeShareGroupOffsets: the start offsets and lags of share groups (KIP-932, KIP-1226).

Behaviour: the start offset is the offset below which all records are finished, or -1 if the group has not read the partition. Null topics
select all partitions that the group has read and the principal may describe. For a group or topic that does not exist the offset is -1,
without an error. The lag is the number of unfinished offsets from the start offset to the high watermark (the last stable offset if the
group has share.isolation.level=read_committed), or -1 if it is unknown. While the feature `share.version` is at level 0, each group gets
UNSUPPORTED_VERSION.

Version notes: 1 has the lag.

Not done: the lag of partitions that another broker leads. It is -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.cluster_metadata import CONFIG_GROUP
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState
from ottla.base.uuids import ZERO_UUID
from ottla.groups.share.offsets import KnownTopic, known_share_topics
from ottla.handlers.advertised_levels import require_share_groups
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.groups.coordination import Gathering, run
from ottla.handlers.rights import is_allowed, require
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

LATEST = -1
UNKNOWN = -1
READ_COMMITTED = 1
NOT_LED = -1  # the requester leads no partition


def handle(broker: Broker, request: RequestContext, body: DescribeShareGroupOffsetsRequest) -> Any:
    if not body.groups:
        return DescribeShareGroupOffsetsResponse()
    described = DescribeShareGroupOffsetsResponse(
        groups=[DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id) for asked in body.groups]
    )
    pending = Pending()
    gathering = Gathering(len(body.groups), lambda: pending.complete(described))
    for asked, group in zip(body.groups, described.groups, strict=True):
        _describe(broker, request, asked, group, gathering)
    return pending


def _describe(
    broker: Broker,
    request: RequestContext,
    asked: DescribeShareGroupOffsetsRequestGroup,
    group: DescribeShareGroupOffsetsResponseGroup,
    gathering: Gathering,
) -> None:
    def answer(known: Sequence[KnownTopic] | ErrorCode) -> None:
        if isinstance(known, ErrorCode):
            group.error_code = known
            gathering.part_done()
        else:
            _look_up(broker, request, asked.topics, known, group, gathering)

    try:
        require_share_groups(broker.config.ottla_advertise_level)
        require(broker, request, AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id)
        if not asked.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        run(broker, asked.group_id, lambda shard, reply, _now: known_share_topics(shard, asked.group_id, reply), answer)
    except ApiError as error:
        group.error_code, group.error_message = error.code, error.message or None
        gathering.part_done()


def _look_up(
    broker: Broker,
    request: RequestContext,
    asked: list[DescribeShareGroupOffsetsRequestTopic] | None,
    known: Sequence[KnownTopic],
    group: DescribeShareGroupOffsetsResponseGroup,
    gathering: Gathering,
) -> None:
    """Adds each partition to the response, and asks the share coordinators about the partitions that the group has read."""
    if asked is None:
        asked = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=list(topic.partitions))
            for topic in known
            if is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    kept = {topic.name: topic for topic in known}
    wanted: list[tuple[SharePartitionKey, str, DescribeShareGroupOffsetsResponsePartition]] = []
    for topic in asked:
        found, name = broker.metadata.topic(topic.topic_name), topic.topic_name
        result = DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=ZERO_UUID if found is None else found.topic_id)
        group.topics.append(result)
        may_describe = is_allowed(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        if not may_describe:
            result.topic_id = ZERO_UUID
        for index in topic.partitions:
            place = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNKNOWN)
            result.partitions.append(place)
            if not may_describe:
                place.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif name in kept and index in kept[name].partitions:
                wanted.append((SharePartitionKey(group.group_id, kept[name].topic_id, index), name, place))
    whole = Gathering(len(wanted) + 1, gathering.part_done)
    for key, name, place in wanted:
        _ask(broker, key, name, place, whole)
    whole.part_done()


def _ask(broker: Broker, key: SharePartitionKey, topic: str, place: DescribeShareGroupOffsetsResponsePartition, whole: Gathering) -> None:
    def found(code: ErrorCode, state: ShareState | None) -> None:
        if state is not None:
            place.start_offset, place.leader_epoch = state.start_offset, max(state.leader_epoch, 0)
            place.lag = _lag(broker, key, topic, state)
        elif code is not ErrorCode.NONE:
            place.error_code = code
        whole.part_done()

    broker.share_persister.summary(key, NOT_LED, found)


def _lag(broker: Broker, key: SharePartitionKey, topic: str, state: ShareState) -> int:
    if state.start_offset < 0 or state.delivery_complete_count < 0:
        return UNKNOWN
    partition = broker.partitions.get(topic, key.partition)
    if partition is None:
        return UNKNOWN
    overrides = broker.metadata.configs(CONFIG_GROUP, key.group_id)
    is_committed = broker.config.group_value("share.isolation.level", overrides) == "read_committed"
    try:
        _, end, _ = partition.list_offset(LATEST, READ_COMMITTED if is_committed else 0, UNKNOWN)
    except ApiError:
        return UNKNOWN
    return end - state.start_offset - state.delivery_complete_count
