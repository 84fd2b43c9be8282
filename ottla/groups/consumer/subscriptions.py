"""Checks the regular expressions of a consumer group, and decides when they and the group's topics are looked up again.

`update.py` resolves expressions to topic names and logs these, so that every coordinator has the same names.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.name_pattern import NamePattern, PatternError
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.records import ConsumerChange
from ottla.groups.modern import topics as epoch_topics
from ottla.groups.modern.topics import refresh_of
from ottla.groups.shard import GroupShard


def check_regex(pattern: str) -> None:
    try:
        NamePattern(pattern)
    except PatternError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no regular expression: {error}") from None


def forget_regexes(change: ConsumerChange) -> None:
    if change.group.regexes:
        used = change.group.used_regexes()
        for pattern in [pattern for pattern in change.group.regexes if pattern not in used]:
            change.remove_regex(pattern)


def must_look_up(shard: GroupShard, group: ConsumerGroup, now_ms: int) -> tuple[bool, list[str]]:
    """Returns whether topics may have changed since the group's last look-up, and the expressions to be matched again. Records the times of
    both look-ups, so the caller must do them.
    """
    refresh = refresh_of(shard, group.group_id)
    is_due = epoch_topics.must_look_up(shard, refresh, now_ms)
    is_old = refresh.topics_version != shard.topics_version or now_ms - refresh.regexes_at_ms >= shard.settings.regex_refresh_interval_ms
    if not (is_due and is_old):
        return is_due, []
    refresh.regexes_at_ms = now_ms
    refresh.topics_version = shard.topics_version
    return True, list(group.regexes)
