"""Settings of share groups (KIP-932): their dead-letter topics (KIP-1191), the limits of records in flight (number of deliveries, duration
of locks, number of records), and the share sessions of a broker. The broker's values are the defaults of groups. A group's own values must
be within the broker's minimum and maximum.
"""

from __future__ import annotations

import re

from ottla.base.settings.setting import Between, UpdateMode, at_least, boolean, integer, string

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{1,9}))?S)?)?", re.IGNORECASE)
BY_DURATION = "by_duration:"


class ShareSettings:
    """Records in flight of share groups."""

    group_share_delivery_count_limit = integer(
        "group.share.delivery.count.limit", 5, "Maximum number of deliveries of a record to a share group.", valid=Between(2, 10)
    )
    group_share_min_delivery_count_limit = integer(
        "group.share.min.delivery.count.limit", 2, "Smallest share.delivery.count.limit that a group may set.", valid=Between(2, 5)
    )
    group_share_max_delivery_count_limit = integer(
        "group.share.max.delivery.count.limit", 10, "Largest share.delivery.count.limit that a group may set.", valid=Between(5, 25)
    )
    group_share_record_lock_duration_ms = integer(
        "group.share.record.lock.duration.ms",
        30000,
        "Time that a member of a share group has for a record before the record is delivered again.",
        valid=Between(1000, 3600000),
    )
    group_share_min_record_lock_duration_ms = integer(
        "group.share.min.record.lock.duration.ms",
        15000,
        "Smallest share.record.lock.duration.ms that a group may set.",
        valid=Between(1000, 30000),
    )
    group_share_max_record_lock_duration_ms = integer(
        "group.share.max.record.lock.duration.ms",
        60000,
        "Largest share.record.lock.duration.ms that a group may set.",
        valid=Between(30000, 3600000),
    )
    group_share_partition_max_record_locks = integer(
        "group.share.partition.max.record.locks",
        2000,
        "Maximum number of records of a partition in flight in a share group.",
        valid=Between(100, 10000),
    )
    group_share_min_partition_max_record_locks = integer(
        "group.share.min.partition.max.record.locks",
        100,
        "Smallest share.partition.max.record.locks that a group may set.",
        valid=Between(100, 2000),
    )
    group_share_max_partition_max_record_locks = integer(
        "group.share.max.partition.max.record.locks",
        4000,
        "Largest share.partition.max.record.locks that a group may set.",
        valid=Between(2000, 10000),
    )
    group_share_max_share_sessions = integer(
        "group.share.max.share.sessions", 2000, "Maximum number of share sessions on this broker.", valid=at_least(1)
    )
    errors_deadletterqueue_auto_create_topics_enable = boolean(
        "errors.deadletterqueue.auto.create.topics.enable",
        False,
        "Whether the broker creates the missing dead-letter topic of a share group. Otherwise the topic must exist before records are "
        "given up.",
        update=UpdateMode.CLUSTER_WIDE,
    )
    errors_deadletterqueue_topic_name_prefix = string(
        "errors.deadletterqueue.topic.name.prefix",
        "dlq.",
        "Share groups use only dead-letter topics whose name begins so. If it is empty, each name is permitted.",
        update=UpdateMode.CLUSTER_WIDE,
    )


def duration_ms(text: str) -> int | None:
    """Returns the milliseconds of an ISO 8601 duration in days and smaller units; None for other texts."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds, fraction = found.groups(default="0")
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int(fraction.ljust(9, "0")) // 1_000_000


class DeadLetterTopicName:
    """A name that does not begin with two underscores, which internal topics have; empty for none."""

    description = "no name that begins with __"

    def __call__(self, value: object) -> str:
        return "must not begin with __, because internal topics have such names" if str(value).startswith("__") else ""


class OffsetReset:
    """`latest`, `earliest`, or `by_duration:` with a duration."""

    description = "[latest, earliest, by_duration:PnDTnHnMn.nS]"

    def __call__(self, value: object) -> str:
        text = str(value)
        if text in ("latest", "earliest"):
            return ""
        if text.startswith(BY_DURATION) and duration_ms(text.removeprefix(BY_DURATION)) is not None:
            return ""
        return "must be latest, earliest or by_duration:<duration>, the duration as ISO 8601 writes it (PnDTnHnMn.nS) and not negative"
