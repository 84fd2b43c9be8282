"""Which topics does a consumer group read, has that changed, and what should each member have then?

Topics are looked up again when the broker says that some have changed (`GroupShard.topics_version`), and from time to time besides. A hash
of the topics' ids and partition counts stands in the group's record: when it no longer fits, the group's epoch rises, and a rising epoch
makes a new target assignment, at most one in `group.consumer.assignment.interval.ms`; until it is due the last one holds. Regular
expressions are resolved into names that are logged, so every coordinator sees the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from struct import Struct as Packer

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.name_pattern import NamePattern, PatternError
from ottla.base.uuids import Uuid
from ottla.groups.consumer.assignors import ASSIGNORS, MemberSpec
from ottla.groups.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.groups.consumer.records import Change
from ottla.groups.shard import GroupShard, Refresh
from ottla.groups.share.group import ShareGroup

LOOK_AGAIN_MS = 5_000

_INT64 = Packer(">q")
_INT32 = Packer(">i")


def check_regex(pattern: str) -> None:
    try:
        NamePattern(pattern)
    except PatternError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no regular expression: {error}") from None


MayDescribe = Callable[[str], bool] | None
"""Which topics the member that asks may see; None if all."""


def resolve_regexes(shard: GroupShard, change: Change, regexes: Iterable[str], may_describe: MayDescribe, now_ms: int) -> None:
    """Looks up which topics these match now, of those that the member may see; logs what is new."""
    for pattern in regexes:
        try:
            regex = NamePattern(pattern)
        except PatternError:
            continue  # a record of another broker; it matches nothing here
        names = sorted(name for name in shard.topics.topic_names() if regex.matches(name))
        topics = tuple(names if may_describe is None else filter(may_describe, names))
        known = change.group.regexes.get(pattern)
        if known is None or known.topics != topics:
            change.put_regex(pattern, ResolvedRegex(topics, shard.topics_version, now_ms))


def forget_regexes(change: Change) -> None:
    """Drops what nobody subscribes to any more."""
    for pattern in list(change.group.regexes):
        if not change.group.uses_regex(pattern):
            change.remove_regex(pattern)


def must_look_up(shard: GroupShard, group: ConsumerGroup, change: Change, may_describe: MayDescribe, now_ms: int) -> bool:
    """Whether topics may have changed since the group last looked; resolves its regular expressions again if so."""
    refresh = shard.refreshes.get(group.group_id)
    if refresh is None:
        refresh = shard.refreshes[group.group_id] = Refresh()
    is_new_version = refresh.topics_version != shard.topics_version
    if not is_new_version and now_ms - refresh.looked_at_ms < LOOK_AGAIN_MS:
        return False
    refresh.looked_at_ms = now_ms
    if is_new_version or now_ms - refresh.regexes_at_ms >= shard.settings.regex_refresh_interval_ms:
        refresh.regexes_at_ms = now_ms
        refresh.topics_version = shard.topics_version
        resolve_regexes(shard, change, list(change.group.regexes), may_describe, now_ms)
    return True


def metadata_hash(shard: GroupShard, group: ConsumerGroup | ShareGroup) -> int:
    """Differs when a topic that the group reads was made anew or got more partitions; 0 when it reads none that exists."""
    digest = blake2b(digest_size=8)
    is_empty = True
    for name in group.subscribed_topics():
        topic_id = shard.topics.topic_id(name)
        if topic_id is not None:
            is_empty = False
            digest.update(topic_id + _INT32.pack(shard.topics.partition_count(name)))
    if is_empty:
        return 0
    value: int = _INT64.unpack(digest.digest())[0]
    return value


def may_assign(shard: GroupShard, group: ConsumerGroup, now_ms: int) -> bool:
    """Whether a new target is due: the group has moved on, and its last target is old enough that many changes become one."""
    if group.epoch <= group.target_epoch:
        return False
    return not group.target or now_ms - group.target_timestamp_ms >= shard.assignment_interval_ms(group.group_id)


def update_target(shard: GroupShard, change: Change, now_ms: int) -> None:
    """Makes the target assignment of the group's present epoch; logs what differs from the last."""
    group = change.group
    counts: dict[Uuid, int] = {}
    for name in group.subscribed_topics():
        topic_id = shard.topics.topic_id(name)
        if topic_id is not None:
            counts[topic_id] = shard.topics.partition_count(name)
    sets: dict[tuple[str, ...], frozenset[Uuid]] = {}
    members: list[MemberSpec] = []
    for member_id, facts in group.facts.items():
        names = group.topics_of(facts)
        topics = sets.get(names)
        if topics is None:
            ids = (shard.topics.topic_id(name) for name in names)
            topics = sets[names] = frozenset(topic_id for topic_id in ids if topic_id is not None)
        members.append(MemberSpec(member_id, facts.instance_id, topics, group.target.get(member_id, {})))
    assign = ASSIGNORS[group.preferred_assignor(shard.settings.consumer_assignors)]
    for member_id, target in assign(members, counts).items():
        if change.group.target.get(member_id) != target:
            change.put_target(member_id, target)
    change.put_target_epoch(change.group.epoch, now_ms)
