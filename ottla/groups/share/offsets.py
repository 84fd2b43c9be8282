"""Describes, alters and deletes the offsets of a share group, and deletes the group.

Share coordinators store a share group's offsets, one coordinator for each partition. For DescribeShareGroupOffsets this module only returns
the partitions with a state; the handler then asks the share coordinators. The other commands ask the share coordinators here, and are
answered when all of these have answered. AlterShareGroupOffsets initializes states at an offset, DeleteShareGroupOffsets deletes the states
of a topic, and DeleteGroups deletes all states and then the group. These three are refused while the group has members.

Invariants: a command's records are in the log before a share coordinator is asked (`topics.py`); each partition or topic of a request has
its own result. Every command is answered once, even if this coordinator loses its partition meanwhile. Each alteration has its own state
epoch, so that earlier requests cannot undo it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import SharePartitionKey
from ottla.base.uuids import ZERO_UUID, Uuid
from ottla.groups.answers import ShareOffsetOutcome, ShareOffsetOutcomes, refuse_share_offsets
from ottla.groups.commands import AlterShareOffsets, DeleteShareOffsets
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup, add_partitions, topic_bytes
from ottla.groups.share.records import ShareChange
from ottla.groups.share.topics import (
    CodesByPartition,
    ask_all,
    end_beginning,
    forget_states,
    is_going,
    keys_to_delete,
    log_initialized,
    mark_deleting,
    retry_initialization,
)
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import Draft, answered, same_code

# Kafka's own words: its tools print what the broker says.
NO_SUCH_PARTITION = "This server does not host this topic-partition."
NOTHING_REMEMBERED = "There is no offset information to delete."


# Describing


class KnownTopic(NamedTuple):
    """A topic with initialized partitions of the group."""

    topic_id: Uuid
    name: str
    partitions: tuple[int, ...]


def known_share_topics(shard: GroupShard, group_id: str, reply: Reply) -> Decision:
    """Answers with a list of `KnownTopic`, the initialized partitions of topics that still exist, or an error code. An unknown group
    has none."""
    group = shard.groups.get(group_id)
    known = []
    if type(group) is ShareGroup:
        for topic_id, share in group.state_topics.initialized.items():
            if shard.topics.topic_id(share.name) == topic_id:
                known.append(KnownTopic(topic_id, share.name, share.partitions))
    return answered(reply, known, lambda code: code)


# Altering


def alter_share_offsets(shard: GroupShard, command: AlterShareOffsets, reply: Reply) -> Decision:
    """Answers with `ShareOffsetOutcomes`, one for each partition. If a partition can be altered, the group's epoch is
    raised and becomes the state epoch, and a group that does not exist is created. Its first members begin at these offsets.
    """
    try:
        change = ShareChange(_find_empty(shard, command.group_id, may_create=True))
    except ApiError as error:
        return answered(reply, refuse_share_offsets(error.code, error.message), refuse_share_offsets)
    outcomes, starts = _plan_alteration(shard, change, command)
    answer = ShareOffsetOutcomes(outcomes=outcomes)
    if not starts:
        return answered(reply, answer, refuse_share_offsets)
    change.raise_epoch()  # fences late copies of earlier initializations (KIP-932)
    draft, group_id, epoch, persister = Draft(), command.group_id, change.group.epoch, shard.persister
    draft.records.extend(change.records)
    deferred = shard.deferred.defer("share-alter", reply, refuse_share_offsets, draft)

    def ask() -> None:
        shard.beginning.update(dict.fromkeys(starts, epoch))
        ask_all(
            shard,
            list(starts),
            lambda key, done: persister.initialize(key, epoch, starts[key][0], done),
            lambda codes: shard.run(lambda _now_ms: altered(codes)),
        )

    def altered(codes: CodesByPartition) -> Decision:
        end_beginning(shard, codes, epoch)
        group, later = shard.groups.get(group_id), Draft()
        if type(group) is ShareGroup:
            after = ShareChange(group)
            log_initialized(after, [key for key, code in codes.items() if code is ErrorCode.NONE])
            later.records.extend(after.records)
            later.on_refusal(lambda repair, _code: retry_initialization(shard, group_id, repair))
            if after.group.state_topics.initializing:
                retry_initialization(shard, group_id, later)
        for key, code in codes.items():
            starts[key][1].error = code
        deferred.give(later, answer)
        return later.decision()

    draft.call(ask)
    return draft.decision()


Starts = dict[SharePartitionKey, tuple[int, ShareOffsetOutcome]]


def _plan_alteration(shard: GroupShard, change: ShareChange, command: AlterShareOffsets) -> tuple[list[ShareOffsetOutcome], Starts]:
    """Returns the outcomes of all partitions; and for each partition that can be altered, its new offset and its outcome."""
    outcomes, starts, topics = list[ShareOffsetOutcome](), Starts(), change.group.state_topics
    new: dict[Uuid, tuple[str, list[int]]] = {}
    for name, partition, offset in command.starts:
        topic_id = shard.topics.topic_id(name)
        outcome = ShareOffsetOutcome(topic=name, topic_id=topic_id or ZERO_UUID, partition=partition)
        outcomes.append(outcome)
        if topic_id is None or not 0 <= partition < shard.topics.partition_count(name):
            outcome.error, outcome.message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_PARTITION
        elif is_going(shard, change.group, topic_id):
            outcome.error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # being deleted; can be initialized again afterwards
        else:
            share = topics.initialized.get(topic_id)
            if share is None or partition not in share.partitions:
                new.setdefault(topic_id, (name, []))[1].append(partition)
            starts[SharePartitionKey(command.group_id, topic_id, partition)] = (offset, outcome)
    try:
        shard.memory.admit(sum([topic_bytes(name, len(partitions)) for name, partitions in new.values()]), change.group.owner)
    except ApiError as error:
        return _refuse_new(outcomes, starts, new, error)
    if new:
        initializing = dict(topics.initializing)
        for topic_id, (name, partitions) in new.items():
            add_partitions(initializing, topic_id, name, partitions)
        change.put_state_topics(topics._replace(initializing=initializing))
    return outcomes, starts


def _refuse_new(
    outcomes: list[ShareOffsetOutcome], starts: Starts, new: Mapping[Uuid, tuple[str, list[int]]], error: ApiError
) -> tuple[list[ShareOffsetOutcome], Starts]:
    """Refuses the partitions without a state, because memory is full. Returns the other partitions, which can still be altered."""
    known = Starts()
    for key, (offset, outcome) in starts.items():
        if key.partition in new.get(key.topic_id, ("", []))[1]:
            outcome.error, outcome.message = error.code, error.message
        else:
            known[key] = (offset, outcome)
    return outcomes, known


def _find_empty(shard: GroupShard, group_id: str, *, may_create: bool) -> ShareGroup:
    group = shard.groups.get(group_id)
    if group is None and may_create:
        return ShareGroup(group_id)
    if type(group) is not ShareGroup:
        what = "not found" if group is None else "is not a share group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    if group.facts:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"the group has {counted(len(group.facts), 'member')}")
    return group


# Deleting


def delete_share_offsets(shard: GroupShard, command: DeleteShareOffsets, reply: Reply) -> Decision:
    """Answers with `ShareOffsetOutcomes`, one for each topic."""
    try:
        group = _find_empty(shard, command.group_id, may_create=False)
    except ApiError as error:
        return answered(reply, refuse_share_offsets(error.code, error.message), refuse_share_offsets)
    outcomes, places, topics = list[ShareOffsetOutcome](), dict[Uuid, ShareOffsetOutcome](), group.state_topics
    for name in command.topics:
        outcome, topic_id = ShareOffsetOutcome(topic=name), shard.topics.topic_id(name)
        outcomes.append(outcome)
        if topic_id is None:
            outcome.error, outcome.message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_PARTITION
        elif topic_id not in topics.initialized and topic_id not in topics.initializing and topic_id not in topics.deleting:
            outcome.error, outcome.message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_REMEMBERED
        else:
            outcome.topic_id = topic_id
            places[topic_id] = outcome
    answer = ShareOffsetOutcomes(outcomes=outcomes)
    if not places:
        return answered(reply, answer, refuse_share_offsets)
    draft, change = Draft(), ShareChange(group)
    keys = keys_to_delete(shard, group, places)
    mark_deleting(change, places)
    draft.records.extend(change.records)
    deferred = shard.deferred.defer("share-forget", reply, refuse_share_offsets, draft)

    def finish(codes: CodesByPartition, _change: ShareChange | None, later: Draft) -> None:
        for key, code in codes.items():
            if code is not ErrorCode.NONE:
                places[key.topic_id].error = code
        deferred.give(later, answer)

    forget_states(shard, group.group_id, keys, draft, finish)
    return draft.decision()


def delete_share_group(shard: GroupShard, group: ShareGroup, reply: Reply) -> Decision:
    """Answers with an `ErrorCode`. Deletes all states, then the group. The group remains if a state was not deleted or a member has joined.
    """
    group_id = group.group_id
    if group.facts:
        return answered(reply, ErrorCode.NON_EMPTY_GROUP, same_code)
    draft, change, topics = Draft(), ShareChange(group), group.state_topics
    topic_ids = [*topics.initialized, *topics.initializing, *topics.deleting]
    keys = keys_to_delete(shard, group, dict.fromkeys(topic_ids))
    mark_deleting(change, topic_ids)
    if not keys:
        change.remove_group()
        draft.records.extend(change.records)
        draft.answer(reply, ErrorCode.NONE, same_code)
        return draft.decision()
    draft.records.extend(change.records)
    deferred = shard.deferred.defer("share-delete", reply, same_code, draft)

    def finish(codes: CodesByPartition, after: ShareChange | None, later: Draft) -> None:
        failed = next((code for code in codes.values() if code is not ErrorCode.NONE), ErrorCode.NONE)
        if after is not None and after.group.facts:
            failed = failed or ErrorCode.NON_EMPTY_GROUP
        elif after is not None and not failed:
            after.remove_group()
        deferred.give(later, failed)

    forget_states(shard, group_id, keys, draft, finish)
    return draft.decision()
