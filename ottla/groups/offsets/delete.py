"""Deletes committed offsets for OffsetDelete and after the deletion of topics. Also writes offsets to the log again that compaction would
otherwise lose."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.groups import records
from ottla.groups.answers import DeletedOffsets
from ottla.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from ottla.groups.commands import DeleteOffsets
from ottla.groups.offsets.store import OffsetKey
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import Draft, answered

FORGET_RETRY_MS = REWRITE_RETRY_MS = 1_000
NOT_DELETED = -2
"""Marks a topic that is not in `deleted_topics`."""


def refuse_delete(code: ErrorCode) -> DeletedOffsets:
    return DeletedOffsets(error=code)


def delete_offsets(shard: GroupShard, command: DeleteOffsets, reply: Reply) -> Decision:
    """Answers with `DeletedOffsets`."""
    group_id, group = command.group_id, shard.groups.get(command.group_id)
    if group is None or isinstance(group, ShareGroup):
        return answered(reply, refuse_delete(ErrorCode.GROUP_ID_NOT_FOUND), refuse_delete)
    if type(group) is ClassicGroup and group.is_active and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return answered(reply, refuse_delete(ErrorCode.NON_EMPTY_GROUP), refuse_delete)
    draft, codes = Draft(), list[ErrorCode]()
    subscribed = group.subscribed_among(name for name, _, _ in command.topics)
    for name, partitions, _ in command.topics:
        if name in subscribed:
            codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        codes.append(ErrorCode.NONE)
        for partition in partitions:
            if shard.offsets.get(group_id, name, partition) or shard.offsets.is_pending(group_id, name, partition):
                draft.separate([records.offset_tombstone(group_id, name, partition)])
    draft.answer(reply, DeletedOffsets(topics=codes), refuse_delete)
    return draft.decision()


def forget_topics(shard: GroupShard, draft: Draft) -> None:
    """Deletes the offsets in deleted topics, because they would be wrong for new topics of the same names.

    The machine repeats this until the log accepts the tombstones. Offsets committed meanwhile for a new topic of the same name are kept.
    """
    deleted, found = shard.deleted_topics, list[tuple[str, OffsetKey, int]]()
    for group_id in shard.offsets.group_ids():
        for key in shard.offsets.keys_of(group_id):
            if key[0] in deleted:
                found.append((group_id, key, shard.offsets.newest_record(group_id, key)))
    ends = dict.fromkeys(deleted, -1)
    for _, (topic, _), record in found:
        ends[topic] = max(ends[topic], record)
    for topic, known in deleted.items():
        deleted[topic] = ends[topic] = ends[topic] if known is None else known
    draft.separate(records.offset_tombstone(group_id, *key) for group_id, key, record in found if record <= ends[key[0]])

    def done() -> None:
        for topic, end in ends.items():
            if deleted.get(topic, NOT_DELETED) == end:
                del deleted[topic]

    draft.call(done)


def rewrite_overtaken(shard: GroupShard, draft: Draft) -> None:
    """Writes offsets to the log again that compaction would otherwise lose (see `store.py`)."""
    logged = []
    for group_id, (topic, partition) in shard.offsets.rewrites:
        if _is_forgotten(shard, group_id, (topic, partition)):
            continue
        committed = shard.offsets.get(group_id, topic, partition)
        assert committed is not None, f"offset of {topic}-{partition} in group {group_id} is to be rewritten but is gone"
        logged.append(records.offset_commit(group_id, topic, partition, committed))
    if logged:
        draft.separate(logged)
        draft.on_refusal(lambda repair, _code: repair.schedule("rewrite", REWRITE_RETRY_MS, lambda _now_ms: _rewrite_again(shard)))


def _is_forgotten(shard: GroupShard, group_id: str, key: OffsetKey) -> bool:
    """Whether a tombstone for this offset is due because its topic was deleted. If the offset were logged again, it would look newer than
    the deletion and be kept.
    """
    end = shard.deleted_topics.get(key[0], NOT_DELETED)
    return end is None or shard.offsets.newest_record(group_id, key) <= end


def _rewrite_again(shard: GroupShard) -> Decision:
    draft = Draft()
    rewrite_overtaken(shard, draft)
    return draft.decision()
