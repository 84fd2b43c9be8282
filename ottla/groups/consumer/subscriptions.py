"""Resolves the regular expressions of a consumer group, and makes its target assignment.

A group's epoch that rises makes a new target assignment, at most one in `group.consumer.assignment.interval.ms`; until it is due the last
one holds. Regular expressions are resolved into names that are logged, so that every coordinator has the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.name_pattern import NamePattern, PatternError
from ottla.base.uuids import Uuid
from ottla.groups import epoch_topics
from ottla.groups.consumer.assignors import ASSIGNORS, MemberSpec
from ottla.groups.consumer.group import REFERENCE_BYTES, ConsumerGroup, ResolvedRegex
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.epoch_topics import TopicIds, refresh_of
from ottla.groups.shard import GroupShard

MATCHES_PER_HEARTBEAT = 5_000
"""So many names are matched when topics have changed, but at least all names with one expression."""


def check_regex(pattern: str) -> None:
    try:
        NamePattern(pattern)
    except PatternError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no regular expression: {error}") from None


MayDescribe = Callable[[str], bool] | None
"""Which topics the member that asks may see; None if all."""


def resolve_regexes(
    shard: GroupShard, change: ConsumerChange, regexes: Iterable[str], may_describe: MayDescribe, now_ms: int
) -> None:
    """Looks up which topics these match now, of those that the member may see; logs what is new."""
    for pattern in regexes:
        try:
            regex = NamePattern(pattern)
        except PatternError:
            continue  # a record of another broker; it matches nothing here
        names = sorted(name for name in shard.topics.topic_names() if regex.matches(name))
        topics = tuple(names if may_describe is None else filter(may_describe, names))
        known = change.group.regexes.get(pattern)
        if known is None:
            shard.memory.admit(len(topics) * REFERENCE_BYTES)
        if known is None or known.topics != topics:
            change.put_regex(pattern, ResolvedRegex(topics, shard.topics_version, now_ms))


def forget_regexes(change: ConsumerChange) -> None:
    """Drops the expressions that no member subscribes to any more."""
    for pattern in list(change.group.regexes):
        if not change.group.uses_regex(pattern):
            change.remove_regex(pattern)


def must_look_up(shard: GroupShard, group: ConsumerGroup, change: ConsumerChange, may_describe: MayDescribe, now_ms: int) -> bool:
    """Whether topics may have changed since the group last looked; resolves its regular expressions again if so, where they are many some
    with this heartbeat and others with the next ones."""
    refresh = refresh_of(shard, group.group_id)
    is_due = epoch_topics.must_look_up(shard, refresh, now_ms)
    is_old = refresh.topics_version != shard.topics_version or now_ms - refresh.regexes_at_ms >= shard.settings.regex_refresh_interval_ms
    if is_due and is_old:
        refresh.regexes_at_ms = now_ms
        refresh.topics_version = shard.topics_version
        refresh.stale_regexes = list(change.group.regexes)
    elif not refresh.stale_regexes:
        return is_due
    count = max(MATCHES_PER_HEARTBEAT // max(sum(1 for _ in shard.topics.topic_names()), 1), 1)
    stale, refresh.stale_regexes = refresh.stale_regexes[:count], refresh.stale_regexes[count:]
    resolve_regexes(shard, change, [pattern for pattern in stale if pattern in change.group.regexes], may_describe, now_ms)
    return True


def may_assign(shard: GroupShard, group: ConsumerGroup, now_ms: int) -> bool:
    """Whether a new target is due: the group has moved on, and its last target is old enough that many changes become one."""
    if group.epoch <= group.target_epoch:
        return False
    return not group.target or group.has_rested(shard.assignment_interval_ms(group.group_id), now_ms)


def update_target(shard: GroupShard, change: ConsumerChange, now_ms: int) -> None:
    """Makes the target assignment of the group's present epoch; logs what differs from the last."""
    group = change.group
    counts: dict[Uuid, int] = {}
    for name in group.subscribed_topics():
        topic_id = shard.topics.topic_id(name)
        if topic_id is not None:
            counts[topic_id] = shard.topics.partition_count(name)
    ids = TopicIds(shard)
    members = [
        MemberSpec(member_id, facts.instance_id, ids.of(group.topics_of(facts)), group.target.get(member_id, {}))
        for member_id, facts in group.facts.items()
    ]
    assign = ASSIGNORS[group.preferred_assignor(shard.settings.consumer_assignors)]
    for member_id, target in assign(members, counts).items():
        if change.group.target.get(member_id) != target:
            change.put_target(member_id, target)
    change.put_target_epoch(change.group.epoch, now_ms)
