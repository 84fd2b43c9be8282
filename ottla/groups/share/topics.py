"""Asks share coordinators to initialize and to delete the states of a share group's partitions.

Before a partition is assigned, its share coordinator must initialize its state (`Persister.initialize`). The intention is logged first
(initializing), the result afterwards (initialized). Failures are retried after `group.share.initialize.retry.interval.ms`. Deletion works
likewise: a topic is logged as deleting until the share coordinators of all its partitions have deleted their states. A new coordinator
therefore continues: `resume_share_states` asks again for everything that is logged as unfinished.

The states of a deleted topic are deleted too, as far as its partitions are known.

Invariants: a partition becomes initialized only after its share coordinator confirmed it, and a topic is not initialized while it is being
deleted. Each request is sent only after a record is committed, so a replaced coordinator sends no new request. The exception is the
initialization that follows the deletion of a left-over state (`_begin`). Each initialization has a state epoch higher than all earlier
requests, and none is sent while another one, or an alteration, is in flight (I54). Answers are processed as separate decisions
(`GroupShard.run`), never within the decision that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import UNINITIALIZED_START_OFFSET, SharePartitionKey
from ottla.base.uuids import Uuid
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup, StateTopics, TopicShare, add_partitions, remove_partitions, topic_bytes
from ottla.groups.share.records import ShareChange
from ottla.machine.contract import NOTHING, Decision, LogRecord
from ottla.machine.draft import Draft

CodesByPartition = dict[SharePartitionKey, ErrorCode]
AskOne = Callable[[SharePartitionKey, Callable[[ErrorCode], None]], None]


KEYS_AT_ONCE = 20
"""Up to this many requests are sent at once, more requests in steps. Each request makes a share coordinator, possibly on this broker, log a
record."""
TOPICS_AT_ONCE = 500
"""With more topics than this, the answers of share coordinators are logged in a separate iteration of the event loop. The record takes some
5 us per topic.
"""


def ask_all(shard: GroupShard, keys: Sequence[SharePartitionKey], ask: AskOne, finish: Callable[[CodesByPartition], None]) -> None:
    """Asks for each key; calls `finish` once when all are answered. Many requests are spread over iterations of the event loop. Even the
    first of many is sent in a later iteration, because it may create `__share_group_state`. If the coordinator loses its partition
    before all are sent, the others are not sent, and `finish` is not called.
    """
    codes: CodesByPartition = {}
    if not keys:
        finish(codes)
        return

    def answered(key: SharePartitionKey, code: ErrorCode) -> None:
        codes[key] = code
        if len(codes) == len(keys):
            finish(codes)

    def steps() -> Iterator[None]:
        for key in keys:
            if shard.is_over:
                return
            ask(key, lambda code, key=key: answered(key, code))  # type: ignore[misc]
            yield

    if len(keys) > KEYS_AT_ONCE:
        shard.later(steps())
    else:
        for _ in steps():
            pass


def is_going(shard: GroupShard, group: ShareGroup, topic_id: Uuid) -> bool:
    """Whether the topic's states are still being deleted. A state initialized meanwhile could be deleted too."""
    return topic_id in group.state_topics.deleting or (group.group_id, topic_id) in shard.forgetting


# Beginning


def want_states(shard: GroupShard, change: ShareChange, *, must_fit: bool = False) -> bool:
    """Logs the partitions of subscribed topics without a state as initializing. Returns whether it has logged any; then the caller calls
    `initialize`. If memory is short, logs none, or raises `ApiError` with `must_fit`.
    """
    topics = change.group.state_topics
    initializing = dict(topics.initializing)
    size = 0
    for name in change.group.subscribed_topics():
        topic_id = shard.topics.topic_id(name)
        if topic_id is None or is_going(shard, change.group, topic_id):
            continue
        shares = [share for share in (topics.initializing.get(topic_id), topics.initialized.get(topic_id)) if share is not None]
        count = shard.topics.partition_count(name)
        if sum([len(share.partitions) for share in shares]) >= count:
            continue
        known = {partition for share in shares for partition in share.partitions}
        new = tuple(partition for partition in range(count) if partition not in known)
        if new:
            add_partitions(initializing, topic_id, name, new)
            size += topic_bytes(name, len(new))
    is_new = size > 0 and _has_room(shard, size, change.group.owner, must_fit)
    if is_new:
        change.put_state_topics(topics._replace(initializing=initializing))
    return is_new


def _has_room(shard: GroupShard, size: int, owner: str, must_fit: bool) -> bool:
    try:
        shard.memory.admit(size, owner)
    except ApiError:
        if must_fit:
            raise
        return False
    return True


def initialize(shard: GroupShard, group: ShareGroup, draft: Draft) -> None:
    """Asks share coordinators to initialize all states that are logged as initializing, with the group's current epoch as state epoch.
    States with a request in flight, from here or from an alteration, are skipped. A second request could reset a state after members have
    begun to read.
    """
    group_id, epoch, keys = group.group_id, group.epoch, group.initializing_keys()

    def ask() -> None:
        known = shard.groups.get(group_id)
        if type(known) is not ShareGroup:
            return
        wanted = set(known.initializing_keys()).difference(shard.beginning)
        asked = [key for key in keys if key in wanted]
        if not asked:
            return  # every wanted state has a request in flight, and its answer will be processed
        shard.beginning.update(dict.fromkeys(asked, epoch))
        ask_all(
            shard,
            asked,
            lambda key, done: _begin(shard, key, epoch, done),
            lambda codes: run_soon(shard, group_id, lambda now_ms: _initialized(shard, group_id, epoch, codes, now_ms)),
        )

    draft.call(ask)


def run_soon(shard: GroupShard, group_id: str, decide: Callable[[int], Decision]) -> None:
    """Runs a decision about answers. Its record contains all topics of the group. If the group has many topics, the decision runs in a
    separate iteration of the event loop, because the answers may have arrived in the same iteration as the heartbeat.
    """

    def steps() -> Iterator[None]:
        yield shard.run(decide)

    group = shard.groups.get(group_id)
    if type(group) is ShareGroup and len(group.state_topics.initializing) + len(group.state_topics.initialized) > TOPICS_AT_ONCE:
        shard.later(steps())
    else:
        shard.run(decide)


def end_beginning(shard: GroupShard, keys: Iterable[SharePartitionKey], epoch: int) -> None:
    """Forgets requests of this epoch that the share coordinators have answered."""
    for key in keys:
        if shard.beginning.get(key) == epoch:
            del shard.beginning[key]


def _begin(shard: GroupShard, key: SharePartitionKey, epoch: int, done: Callable[[ErrorCode], None]) -> None:
    """Initializes the state of one partition. A state with a higher epoch was left by an earlier group of the same name and is deleted
    first. The state is not deleted if another request was sent meanwhile, because an alteration may have initialized it.
    """
    persister = shard.persister

    def initialized(code: ErrorCode) -> None:
        if code is ErrorCode.FENCED_STATE_EPOCH:
            shard.run(lambda _now_ms: delete_left_over(code))
        else:
            done(code)

    def delete_left_over(code: ErrorCode) -> Decision:
        group, draft = shard.groups.get(key.group_id), Draft()
        if type(group) is ShareGroup and shard.beginning.get(key) == epoch and key in group.initializing_keys():
            draft.records.extend(_wish_again(group))
            draft.call(lambda: persister.delete(key, deleted))
            draft.on_refusal(lambda repair, refusal: repair.call(lambda: done(refusal)))
        else:
            draft.call(lambda: done(code))
        return draft.decision()

    def deleted(code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            persister.initialize(key, epoch, UNINITIALIZED_START_OFFSET, done)
        else:
            done(code)

    persister.initialize(key, epoch, UNINITIALIZED_START_OFFSET, initialized)


def _wish_again(group: ShareGroup) -> list[LogRecord]:
    """Returns the group's record of states again, unchanged. A request that waits for the commit of this record is not sent by a replaced
    coordinator: it could delete a state that the successor has initialized.
    """
    change = ShareChange(group)
    change.put_state_topics(change.group.state_topics)
    return change.records


def _initialized(shard: GroupShard, group_id: str, epoch: int, codes: CodesByPartition, now_ms: int) -> Decision:
    end_beginning(shard, codes, epoch)
    group = shard.groups.get(group_id)
    if type(group) is not ShareGroup:
        return NOTHING
    draft, change = Draft(), ShareChange(group)
    log_initialized(change, [key for key, code in codes.items() if code is ErrorCode.NONE])
    draft.records.extend(change.records)
    if any(code is not ErrorCode.NONE for code in codes.values()):
        retry_initialization(shard, group_id, draft)
    draft.on_refusal(lambda repair, _code: retry_initialization(shard, group_id, repair))
    for waiting in shard.take_joiners(group_id):
        waiting(draft)
    return draft.decision()


def log_initialized(change: ShareChange, keys: Iterable[SharePartitionKey]) -> None:
    """Logs the confirmed partitions as initialized. If the group has members, its epoch rises, so that the partitions are assigned."""
    topics = change.group.state_topics
    initializing, initialized = dict(topics.initializing), dict(topics.initialized)
    is_new = False
    ready: dict[Uuid, set[int]] = {}
    for key in keys:
        ready.setdefault(key.topic_id, set()).add(key.partition)
    for topic_id, partitions in ready.items():
        share = initializing.get(topic_id)
        if share is not None:
            partitions.intersection_update(share.partitions)
            if partitions:
                remove_partitions(initializing, topic_id, partitions)
                add_partitions(initialized, topic_id, share.name, partitions)
                is_new = True
    if is_new:
        change.put_state_topics(topics._replace(initializing=initializing, initialized=initialized))
        if change.group.facts:
            change.raise_epoch()


def retry_initialization(shard: GroupShard, group_id: str, draft: Draft) -> None:
    def again(_now_ms: int) -> Decision:
        group, later = shard.groups.get(group_id), Draft()
        if type(group) is ShareGroup:
            initialize_again(shard, group, later)
        return later.decision()

    draft.schedule(f"share-initialize/{group_id}", shard.settings.share_initialize_retry_interval_ms, again)


def initialize_again(shard: GroupShard, group: ShareGroup, draft: Draft) -> None:
    """Initializes the states without a request in flight, with a new state epoch. Earlier requests that arrive late then cannot reset a
    state.
    """
    if shard.beginning.keys() >= set(group.initializing_keys()):
        return
    change = ShareChange(group)
    change.raise_epoch()
    draft.records.extend(change.records)
    initialize(shard, change.group, draft)
    draft.on_refusal(lambda repair, _code: retry_initialization(shard, group.group_id, repair))


# Ending


def mark_deleting(change: ShareChange, topic_ids: Iterable[Uuid]) -> None:
    """Logs the topics as deleting. `forget_states` must follow."""
    topics = change.group.state_topics
    initializing, initialized, deleting = dict(topics.initializing), dict(topics.initialized), dict(topics.deleting)
    for topic_id in topic_ids:
        for shares in (initializing, initialized):
            share = shares.pop(topic_id, None)
            if share is not None:
                deleting[topic_id] = share.name
    if deleting != topics.deleting:
        change.put_state_topics(StateTopics(initializing, initialized, deleting))


def keys_to_delete(shard: GroupShard, group: ShareGroup, topic_ids: Iterable[Uuid]) -> list[SharePartitionKey]:
    """Returns all partitions of these topics that may have a state."""
    topics, keys = group.state_topics, []
    for topic_id in topic_ids:
        name = shard.topics.topic_name(topic_id)
        partitions = set(range(shard.topics.partition_count(name) if name is not None else 0))
        for share in (topics.initializing.get(topic_id), topics.initialized.get(topic_id)):
            partitions.update(share.partitions if share is not None else ())
        keys += [SharePartitionKey(group.group_id, topic_id, partition) for partition in sorted(partitions)]
    return keys


def forget_states(
    shard: GroupShard,
    group_id: str,
    keys: Sequence[SharePartitionKey],
    draft: Draft,
    finish: Callable[[CodesByPartition, ShareChange | None, Draft], None],
) -> None:
    """Asks share coordinators to delete these states, and then logs which topics are completely deleted.

    `finish` may add to the later decision. It gets None instead of a change if the group was deleted meanwhile.
    """

    places = [(group_id, topic_id) for topic_id in dict.fromkeys(key.topic_id for key in keys)]

    def ask() -> None:
        for place in places:
            shard.forgetting[place] = shard.forgetting.get(place, 0) + 1
        ask_all(shard, keys, shard.persister.delete, lambda codes: shard.run(lambda _now_ms: forgotten(codes)))

    def forgotten(codes: CodesByPartition) -> Decision:
        for place in places:
            shard.forgetting[place] -= 1
            if not shard.forgetting[place]:
                del shard.forgetting[place]
        group, later = shard.groups.get(group_id), Draft()
        change = ShareChange(group) if type(group) is ShareGroup else None
        if change is not None:
            _log_forgotten(change, codes)
            if change.group.state_topics.deleting:
                _retry_deletion(shard, group_id, later)
            if change.group.facts and want_states(shard, change):  # a member joined meanwhile
                change.raise_epoch()
                initialize(shard, change.group, later)
        finish(codes, change, later)
        if change is not None:
            later.records.extend(change.records)
            later.on_refusal(lambda repair, _code: _retry_deletion(shard, group_id, repair))
        return later.decision()

    draft.call(ask)


def _log_forgotten(change: ShareChange, codes: CodesByPartition) -> None:
    topics = change.group.state_topics
    failed = {key.topic_id for key, code in codes.items() if code is not ErrorCode.NONE}
    done = {key.topic_id for key in codes} - failed
    left = {topic_id: name for topic_id, name in topics.deleting.items() if topic_id not in done}
    if len(left) < len(topics.deleting):
        change.put_state_topics(topics._replace(deleting=left))


def _retry_deletion(shard: GroupShard, group_id: str, draft: Draft) -> None:
    """Schedules another attempt to delete, after `group.share.initialize.retry.interval.ms`."""

    def again(_now_ms: int) -> Decision:
        group, later = shard.groups.get(group_id), Draft()
        if type(group) is ShareGroup and group.state_topics.deleting:
            finish_deletions(shard, group, later)
        return later.decision()

    draft.schedule(f"share-delete/{group_id}", shard.settings.share_initialize_retry_interval_ms, again)


def finish_deletions(shard: GroupShard, group: ShareGroup, draft: Draft) -> None:
    """Continues the logged deletions. A topic that no longer exists is only removed from the record, because its partitions are unknown.

    The record is also written if it does not change (see `_wish_again`).
    """
    left = {topic_id: name for topic_id, name in group.state_topics.deleting.items() if shard.topics.topic_name(topic_id) is not None}
    change = ShareChange(group)
    change.put_state_topics(group.state_topics._replace(deleting=left))
    draft.records.extend(change.records)
    draft.on_refusal(lambda repair, _code: _retry_deletion(shard, group.group_id, repair))
    keys = keys_to_delete(shard, group, left)
    if keys:
        forget_states(shard, group.group_id, keys, draft, lambda _codes, _change, _draft: None)


def forget_deleted_topics(shard: GroupShard, group: ShareGroup, names: frozenset[str] | None, draft: Draft) -> None:
    """Removes the states of deleted topics with these names (None: of all deleted topics). Failed deletions are not repeated."""
    topics = group.state_topics
    shares: dict[Uuid, TopicShare] = {**topics.initializing, **topics.initialized}
    gone = {
        topic_id: None
        for topic_id, share in shares.items()
        if (names is None or share.name in names) and shard.topics.topic_id(share.name) != topic_id
    }
    if not gone:
        return
    keys, change = keys_to_delete(shard, group, gone), ShareChange(group)
    initializing = {topic_id: share for topic_id, share in topics.initializing.items() if topic_id not in gone}
    initialized = {topic_id: share for topic_id, share in topics.initialized.items() if topic_id not in gone}
    change.put_state_topics(StateTopics(initializing, initialized, topics.deleting))
    draft.records.extend(change.records)
    draft.call(lambda: ask_all(shard, keys, shard.persister.delete, lambda _codes: None))


def resume_share_states(shard: GroupShard, group: ShareGroup, draft: Draft) -> None:
    """Asks again for everything that is logged as unfinished, when a coordinator takes over."""
    if group.state_topics.initializing:
        initialize_again(shard, group, draft)
    if group.state_topics.deleting:
        finish_deletions(shard, group, draft)
