"""What may operators do with the offsets of a share group, and how is the group deleted?

Where a share group stands is remembered by share coordinators, one for each partition, so each of these asks them and answers when all
have: which partitions something is remembered of (DescribeShareGroupOffsets goes on from there), begin anew at an offset
(AlterShareGroupOffsets), forget a topic (DeleteShareGroupOffsets), forget all and the group with it (DeleteGroups). Who changes something
must find the group without members.

Invariants: what is under way is in the log before a share coordinator hears of it (`topics.py`); each partition or topic of a
request has its own result; whoever asked is answered once, also when this coordinator loses its partition meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import SharePartitionKey
from ottla.base.uuids import ZERO_UUID, Uuid
from ottla.groups.draft import Draft, Refusal, answered
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup, with_partitions
from ottla.groups.share.records import ShareChange
from ottla.groups.share.topics import (
    Codes,
    ask_all,
    forget_states,
    is_going,
    keys_to_delete,
    log_initialized,
    mark_deleting,
    retry_initialization,
)
from ottla.machine.contract import Answer, Decision, Effect, Reply
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

Message = str | None
# Kafka's own words: its tools print what the broker says.
NO_SUCH_PARTITION = "This server does not host this topic-partition."
NOTHING_REMEMBERED = "There is no offset information to delete."


def _defer(shard: GroupShard, what: str, reply: Reply, refusal: Refusal, draft: Draft) -> Callable[[Draft, object], None]:
    """The answer will come with a later decision: the result puts it there. Until then losing the partition answers `refusal`."""
    deferred, key = shard.deferred, f"{what}/{shard.random.token_bytes(8).hex()}"

    def refused(code: ErrorCode) -> Effect:
        deferred.pop(key, None)
        return Answer(reply, refusal(code))

    def undo(repair: Draft, code: ErrorCode) -> None:
        if deferred.pop(key, None) is not None:
            repair.answer(reply, refusal(code), refusal)

    def settle(later: Draft, response: object) -> None:
        if deferred.pop(key, None) is not None:
            later.answer(reply, response, refusal)

    deferred[key] = refused
    draft.on_refusal(undo)
    return settle


# Which partitions are there


class KnownTopic(NamedTuple):
    """A topic that the group has a position in."""

    topic_id: Uuid
    name: str
    partitions: tuple[int, ...]


def known_share_topics(shard: GroupShard, group_id: str, reply: Reply) -> Decision:
    """Answers a list of `KnownTopic`, the initialized partitions; an error code if the coordinator fails. An unknown group has none."""
    group = shard.groups.get(group_id)
    known = []
    if type(group) is ShareGroup:
        for topic_id, share in group.state_topics.initialized.items():
            if shard.topics.topic_id(share.name) == topic_id:
                known.append(KnownTopic(topic_id, share.name, share.partitions))
    return answered(reply, known, lambda code: code)


# Altering


def alter_refusal(code: ErrorCode, message: Message = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=message or None)


def alter_share_offsets(shard: GroupShard, request: AlterShareGroupOffsetsRequest, reply: Reply) -> Decision:
    """Answers an AlterShareGroupOffsetsResponse. A group that does not exist is made, so that it begins where its members want it."""
    try:
        change = ShareChange(_find_empty(shard, request.group_id, may_create=True))
    except ApiError as error:
        return answered(reply, alter_refusal(error.code, error.message), alter_refusal)
    response, starts = _plan_alteration(shard, change, request)
    if not starts:
        return answered(reply, response, alter_refusal)
    if shard.groups.get(request.group_id) is None:
        change.put_epoch(change.group.epoch, change.group.metadata_hash)
    draft, group_id, epoch, persister = Draft(), request.group_id, change.group.epoch, shard.persister
    draft.records.extend(change.records)
    settle = _defer(shard, f"share-alter/{group_id}", reply, alter_refusal, draft)

    def ask() -> None:
        ask_all(
            list(starts),
            lambda key, done: persister.initialize(key, epoch, starts[key][0], done),
            lambda codes: shard.run(lambda _now_ms: altered(codes)),
        )

    def altered(codes: Codes) -> Decision:
        group, later = shard.groups.get(group_id), Draft()
        if type(group) is ShareGroup:
            after = ShareChange(group)
            log_initialized(after, [key for key, code in codes.items() if code is ErrorCode.NONE])
            later.records.extend(after.records)
            later.on_refusal(lambda repair, _code: retry_initialization(shard, group_id, repair))
            if after.group.state_topics.initializing:
                retry_initialization(shard, group_id, later)
        for key, code in codes.items():
            starts[key][1].error_code = code
        settle(later, response)
        return later.decision()

    draft.call(ask)
    return draft.decision()


Starts = dict[SharePartitionKey, tuple[int, AlterShareGroupOffsetsResponsePartition]]


def _plan_alteration(
    shard: GroupShard, change: ShareChange, request: AlterShareGroupOffsetsRequest
) -> tuple[AlterShareGroupOffsetsResponse, Starts]:
    """The response, with what can be said already, and for each partition to be altered its offset and its place in the response."""
    starts, rows = Starts(), dict[str, AlterShareGroupOffsetsResponseTopic]()
    topics = change.group.state_topics
    new: dict[Uuid, tuple[str, list[int]]] = {}
    for topic in request.topics:
        topic_id = shard.topics.topic_id(topic.topic_name)
        count = shard.topics.partition_count(topic.topic_name)
        row, share = rows.get(topic.topic_name), None if topic_id is None else topics.initialized.get(topic_id)
        known = frozenset(share.partitions if share is not None else ())
        if row is None:
            row = rows[topic.topic_name] = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id or ZERO_UUID)
        for partition in topic.partitions:
            index = partition.partition_index
            result = AlterShareGroupOffsetsResponsePartition(partition_index=index)
            row.partitions.append(result)
            if topic_id is None or not 0 <= index < count:
                result.error_code, result.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_PARTITION
            elif is_going(shard, change.group, topic_id):
                result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # soon it is forgotten, and can begin anew
            else:
                starts[SharePartitionKey(request.group_id, topic_id, index)] = (partition.start_offset, result)
                if index not in known:
                    new.setdefault(topic_id, (topic.topic_name, []))[1].append(index)
    initializing = topics.initializing
    for topic_id, (name, partitions) in new.items():
        initializing = with_partitions(initializing, topic_id, name, partitions)
    if initializing is not topics.initializing:
        change.put_state_topics(topics._replace(initializing=initializing))
    return AlterShareGroupOffsetsResponse(responses=list(rows.values())), starts


def _find_empty(shard: GroupShard, group_id: str, *, may_create: bool) -> ShareGroup:
    group = shard.groups.get(group_id)
    if group is None and may_create:
        return ShareGroup(group_id)
    if type(group) is not ShareGroup:
        what = "not found" if group is None else "is not a share group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    if group.facts:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"the group has {len(group.facts)} members")
    return group


# Deleting


def delete_refusal(code: ErrorCode, message: Message = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message or None)


def delete_share_offsets(shard: GroupShard, request: DeleteShareGroupOffsetsRequest, reply: Reply) -> Decision:
    """Answers a DeleteShareGroupOffsetsResponse."""
    try:
        group = _find_empty(shard, request.group_id, may_create=False)
    except ApiError as error:
        return answered(reply, delete_refusal(error.code, error.message), delete_refusal)
    response, places = DeleteShareGroupOffsetsResponse(), dict[Uuid, DeleteShareGroupOffsetsResponseTopic]()
    topics = group.state_topics
    for topic in request.topics:
        result = DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        response.responses.append(result)
        topic_id = shard.topics.topic_id(topic.topic_name)
        if topic_id is None:
            result.error_code, result.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_PARTITION
        elif topic_id not in topics.initialized and topic_id not in topics.initializing and topic_id not in topics.deleting:
            result.error_code, result.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_REMEMBERED
        else:
            result.topic_id = topic_id
            places[topic_id] = result
    if not places:
        return answered(reply, response, delete_refusal)
    draft, change = Draft(), ShareChange(group)
    keys = keys_to_delete(shard, group, places)
    mark_deleting(change, places)
    draft.records.extend(change.records)
    settle = _defer(shard, f"share-forget/{group.group_id}", reply, delete_refusal, draft)

    def finish(codes: Codes, _change: ShareChange | None, later: Draft) -> None:
        for key, code in codes.items():
            if code is not ErrorCode.NONE:
                places[key.topic_id].error_code = code
        settle(later, response)

    forget_states(shard, group.group_id, keys, draft, finish)
    return draft.decision()


def delete_share_group(shard: GroupShard, group: ShareGroup, reply: Reply) -> Decision:
    """Answers a `DeletableGroupResult`: first all that is remembered goes, then the group, if nobody has come meanwhile."""
    group_id = group.group_id

    def refusal(code: ErrorCode) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=group_id, error_code=code)

    if group.facts:
        return answered(reply, refusal(ErrorCode.NON_EMPTY_GROUP), refusal)
    draft, change, topics = Draft(), ShareChange(group), group.state_topics
    topic_ids = [*topics.initialized, *topics.initializing, *topics.deleting]
    keys = keys_to_delete(shard, group, dict.fromkeys(topic_ids))
    mark_deleting(change, topic_ids)
    if not keys:
        change.remove_group()
        draft.records.extend(change.records)
        draft.answer(reply, DeletableGroupResult(group_id=group_id), refusal)
        return draft.decision()
    draft.records.extend(change.records)
    settle = _defer(shard, f"share-delete/{group_id}", reply, refusal, draft)

    def finish(codes: Codes, after: ShareChange | None, later: Draft) -> None:
        failed = next((code for code in codes.values() if code is not ErrorCode.NONE), ErrorCode.NONE)
        if after is not None and after.group.facts:
            failed = failed or ErrorCode.NON_EMPTY_GROUP
        elif after is not None and not failed:
            after.remove_group()
        settle(later, refusal(failed))

    forget_states(shard, group_id, keys, draft, finish)
    return draft.decision()
