"""Asks the source of a clone for everything except records: topics, settings, bounds of partitions, committed offsets.

Committed offsets are read before the ends of the partitions. Therefore no committed offset is beyond the end of a cloned partition, unless
the options set an earlier end (`--until`, `--offsets A:B`). A principal needs READ for the topics, and DESCRIBE for groups; without
DESCRIBE_CONFIGS the settings are the broker's defaults, and a note says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.settings.topics import LEADER_EPOCH_MIN, MIRROR_SOURCE, TOPIC_SETTINGS
from ottla.base.types import INTERNAL_TOPICS, TopicPartition
from ottla.base.uuids import ZERO_UUID, fresh_uuid
from ottla.client.blocking.client import Client
from ottla.client.core import admin
from ottla.client.core.group_admin import Committed, committed_offsets
from ottla.client.core.operations import TopicInfo
from ottla.client.errors import AuthorizationError, KafkaError
from ottla.cloning.bounds import Range, find_bounds
from ottla.cloning.plan import CloneError, ClonePlan, OffsetPlan, PartitionPlan, TopicPlan

TOPIC_CONFIG_SOURCE = 1
"""DYNAMIC_TOPIC_CONFIG of DescribeConfigs: the topic's own settings."""
OF_PLACES = frozenset(
    (
        "leader.replication.throttled.replicas", "follower.replication.throttled.replicas", "remote.storage.enable",
        MIRROR_SOURCE, LEADER_EPOCH_MIN,
    )
)  # fmt: skip
"""Settings that name the source's brokers, its tiered storage or its own source, and mean nothing elsewhere."""
KINDS_OF_OFFSETS = ("classic", "consumer", "streams", "")
"""Types of groups that commit offsets; an old broker sends an empty one. A share group has other state."""


def plan_clone(
    client: Client, topics: Sequence[str], groups: Sequence[str] | None, wanted: Range, settings: dict[str, str], request: str, seed: bytes
) -> ClonePlan:
    """Makes the plan of a clone. With `groups` None the plan has all groups that commit offsets for the topics. `settings` replace the
    source's. `seed` has 16 random bytes for each topic, which become the id of a topic that has none. Raises `CloneError` and
    `ClientError`.
    """
    plan = ClonePlan(request, client.cluster_id or "", wanted.has_fixed_end)
    infos = [described(client, name) for name in topics]
    for number, topic in enumerate(infos):
        topic_id = topic.topic_id if topic.topic_id != ZERO_UUID else fresh_uuid(seed[16 * number : 16 * number + 16])
        own = {**own_settings(client, topic.name, plan.notes), **settings}
        plan.topics.append(TopicPlan(topic.name, bytes(topic_id).hex(), own, []))
    names = [TopicPartition(topic.name, one.partition) for topic in infos for one in topic.partitions]
    plan.offsets = committed(client, groups, names, plan.notes)
    bounds = find_bounds(client, names, wanted)
    for topic, made in zip(infos, plan.topics, strict=True):
        for one in topic.partitions:
            start, end = bounds[TopicPartition(topic.name, one.partition)]
            made.partitions.append(PartitionPlan(start, end, max(one.leader_epoch, 0)))
    return plan


def renew_plan(client: Client, plan: ClonePlan, groups: Sequence[str] | None, settings: dict[str, str]) -> None:
    """Requests settings and committed offsets again, and replaces them and the notes in the plan, for a clone that ends later than planned.
    """
    plan.notes = []
    for topic in plan.topics:
        topic.settings = {**own_settings(client, topic.name, plan.notes), **settings}
    plan.offsets = committed(client, groups, [key for _, key, _ in plan.partitions()], plan.notes)


def replaced_topic(client: Client, plan: ClonePlan) -> str | None:
    """Returns a topic that was deleted and created again since the plan was made, None if there is none. Raises `UnknownTopicError`."""
    for topic in plan.topics:
        found = client.describe_topic(topic.name)
        if found.topic_id != ZERO_UUID and bytes(found.topic_id).hex() != topic.topic_id:
            return topic.name
    return None


def described(client: Client, name: str) -> TopicInfo:
    """Returns a topic of the source. Raises `CloneError` for an internal topic, and `ClientError`."""
    if name in INTERNAL_TOPICS:
        raise CloneError(f"{name} is an internal topic; committed offsets are cloned with the topics that they are for")
    return client.describe_topic(name)


def own_settings(client: Client, topic: str, notes: list[str]) -> dict[str, str]:
    """Returns the topic's own settings that are meaningful in another cluster. Notes the omitted ones. Raises `ClientError`."""
    found: list[Any] | KafkaError = admin.describe_configs(client.cluster, admin.TOPIC_RESOURCE, [topic])[topic]
    if isinstance(found, AuthorizationError):
        notes.append(f"settings of {topic!r} are the defaults: the source allows no DESCRIBE_CONFIGS")
        return {}
    if isinstance(found, KafkaError):
        raise found
    own = {one.name: one.value for one in found if one.config_source == TOPIC_CONFIG_SOURCE and one.value is not None}
    unknown = sorted(name for name in own if name not in TOPIC_SETTINGS)
    if unknown:
        notes.append(f"settings of {topic!r} that this broker does not have are not cloned: {', '.join(unknown)}")
    return {name: own[name] for name in sorted(own) if name in TOPIC_SETTINGS and name not in OF_PLACES}


def committed(client: Client, groups: Sequence[str] | None, partitions: Sequence[TopicPartition], notes: list[str]) -> list[OffsetPlan]:
    """Returns the committed offsets for these partitions. Notes a group that may not be described, and raises `AuthorizationError` for it
    if the caller has named the group."""
    found: list[OffsetPlan] = []
    named = groups if groups is not None else _groups(client, notes)
    for group in named:
        try:
            offsets = committed_offsets(client.cluster, group, partitions)
        except AuthorizationError:
            if groups is not None:
                raise
            notes.append(f"offsets of group {group!r} are not cloned: the source allows no DESCRIBE")
            continue
        found += [_offset(group, partition, one) for partition, one in offsets.items()]
    return found


def _groups(client: Client, notes: list[str]) -> list[str]:
    try:
        return [one.group_id for one in client.groups() if one.type.lower() in KINDS_OF_OFFSETS]
    except AuthorizationError:
        notes.append("no offsets of groups: the source does not allow to list groups; name them by --groups")
        return []


def _offset(group: str, partition: TopicPartition, committed: Committed) -> OffsetPlan:
    return OffsetPlan(group, partition.topic, partition.partition, committed.offset, committed.leader_epoch, committed.metadata)


def notes_of_groups(plan: ClonePlan) -> list[str]:
    """Returns a note for each committed offset before the start of the clone or after its end."""
    notes = []
    all_bounds = {(key.topic, key.partition): bounds for _, key, bounds in plan.partitions()}
    for one in plan.offsets:
        bounds = all_bounds[one.topic, one.partition]
        if not bounds.start <= one.offset <= bounds.end:
            place = f"before the clone's start {bounds.start}" if one.offset < bounds.start else f"after the clone's end {bounds.end}"
            where = f"{one.topic}-{one.partition} is at offset {one.offset}, {place}"
            notes.append(f"group {one.group!r} in {where}: its auto.offset.reset decides where it continues")
    return notes
