"""DescribeShareGroupOffsets: the start offsets and lags of share groups (KIP-932, KIP-1226).

Behaviour: the start offset is the offset below which all records are finished, or -1 if the group has not read the partition. Null topics
select all partitions that the group has read and the principal may describe. For a group or topic that does not exist the offset is -1,
without an error. The lag is the number of unfinished offsets from the start offset to the high watermark (the last stable offset if the
group has share.isolation.level=read_committed). The partition's leader knows this end. The lag is -1 if it is unknown. While the feature
`share.version` is at level 0, each group gets UNSUPPORTED_VERSION.

Version notes: 1 has the lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ottla.base.cluster_metadata import CONFIG_GROUP, NO_LEADER
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
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

LATEST = -1
UNKNOWN = -1
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
    read: list[_Read] = []
    whole = Gathering(len(wanted) + 1, lambda: _set_lags(broker, group.group_id, read, gathering))
    for key, name, place in wanted:
        _ask(broker, key, name, place, read, whole)
    whole.part_done()


class _Read(NamedTuple):
    """A partition that the group has read: `done_end` is the start offset and the number of finished offsets after it."""

    topic: str
    done_end: int
    place: DescribeShareGroupOffsetsResponsePartition


def _ask(
    broker: Broker, key: SharePartitionKey, topic: str, place: DescribeShareGroupOffsetsResponsePartition, read: list[_Read],
    whole: Gathering,
) -> None:  # fmt: skip
    def found(code: ErrorCode, state: ShareState | None) -> None:
        if state is not None:
            place.start_offset, place.leader_epoch = state.start_offset, max(state.leader_epoch, 0)
            if state.start_offset >= 0 and state.delivery_complete_count >= 0:
                read.append(_Read(topic, state.start_offset + state.delivery_complete_count, place))
        elif code is not ErrorCode.NONE:
            place.error_code = code
        whole.part_done()

    broker.share_persister.summary(key, NOT_LED, found)


def _set_lags(broker: Broker, group_id: str, read: Sequence[_Read], gathering: Gathering) -> None:
    """Asks the leaders of the partitions where they end, and sets the lags."""
    overrides = broker.metadata.configs(CONFIG_GROUP, group_id)
    isolation = int(broker.config.group_value("share.isolation.level", overrides) == "read_committed")
    elsewhere: dict[int, dict[tuple[str, int], _Read]] = {}
    for one in read:
        topic, index = one.topic, one.place.partition_index
        partition, known = broker.partitions.get(topic, index), broker.metadata.topic(topic)
        if partition is not None and partition.leader is not None:
            with suppress(ApiError):  # a new leader may not know the end yet
                one.place.lag = partition.list_offset(LATEST, isolation, UNKNOWN)[1] - one.done_end
        elif known is not None and known.partitions[index].leader not in (NO_LEADER, broker.broker_id):
            elsewhere.setdefault(known.partitions[index].leader, {})[topic, index] = one
    whole = Gathering(len(elsewhere) + 1, gathering.part_done)
    for leader_id, places in elsewhere.items():
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
        asked = [ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
        question = ListOffsetsRequest(replica_id=UNKNOWN, isolation_level=isolation, topics=asked)
        broker.peers.send(leader_id, question, partial(_take_ends, places, whole))
    whole.part_done()


def _take_ends(places: Mapping[tuple[str, int], _Read], whole: Gathering, response: ListOffsetsResponse | None, _code: int) -> None:
    """Sets the lags of partitions that another broker leads. The lag of a partition with an error stays unknown."""
    for topic in response.topics if response is not None else ():
        for found in topic.partitions:
            one = places.get((topic.name, found.partition_index))
            if one is not None and not found.error_code:
                one.place.lag = found.offset - one.done_end
    whole.part_done()
