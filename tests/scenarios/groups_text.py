"""How the group transcripts are read and written: words of commands, partitions, records and members' assignments as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.groups.modern.reconciling import MemberState
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition
from ottla.wire.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.wire.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)


class FixedTopics:
    """`TopicsView` over a dict of partition counts; an id is the name, padded."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def topic_names(self) -> Iterable[str]:
        return list(self.counts)

    def topic_id(self, name: str) -> bytes | None:
        return name.encode().ljust(16, b"\0") if name in self.counts else None

    def topic_name(self, topic_id: bytes) -> str | None:
        name = topic_id.rstrip(b"\0").decode()
        return name if name in self.counts else None

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)


def name_of(code: int) -> str:
    return ErrorCode(code).name


def split_partition(text: str) -> tuple[str, int]:
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)


def by_topic(texts: Iterable[str]) -> dict[str, list[tuple[int, str]]]:
    """`t-0=5 t-1=6` as {"t": [(0, "5"), (1, "6")]}."""
    topics: dict[str, list[tuple[int, str]]] = {}
    for text in texts:
        where, _, value = text.partition("=")
        topic, partition = split_partition(where)
        topics.setdefault(topic, []).append((partition, value))
    return topics


class Arguments:
    """The words of a command: positional ones, and options by name."""

    def __init__(self, words: list[str]) -> None:
        self.words = [word for word in words if "=" not in word or word.partition("=")[0].rpartition("-")[2].isdigit()]
        self.options = dict(word.split("=", 1) for word in words if word not in self.words)

    def text(self, name: str, default: str) -> str:
        return self.options.get(name, default)

    def maybe(self, name: str) -> str | None:
        return self.options.get(name)

    def number(self, name: str, default: int) -> int:
        return int(self.options.get(name, default))


def show_topics(topics: Iterable[Any]) -> str:
    return show_partitions({bytes(topic.topic_id): topic.partitions for topic in topics})


def show_partitions(assigned: Mapping[bytes, Iterable[int]]) -> str:
    parts = (f"{topic_id.rstrip(bytes(1)).decode()}-{','.join(map(str, partitions))}" for topic_id, partitions in sorted(assigned.items()))
    return "/".join(parts) or "nothing"


def show_record(key: Any, value: Any) -> str:
    if isinstance(key, OffsetCommitKey):
        where = f"offset {key.group} {key.topic}-{key.partition}"
        return f"{where} {value.offset}" if isinstance(value, OffsetCommitValue) else f"{where} tombstone"
    if isinstance(key, GroupMetadataKey):
        if not isinstance(value, GroupMetadataValue):
            return f"group {key.group} tombstone"
        members = ",".join(f"{member.member_id}:{show_share(bytes(member.assignment))}" for member in value.members) or "-"
        return f"group {key.group} generation={value.generation} protocol={value.protocol} leader={value.leader} members={members}"
    kind = type(key).__name__.removeprefix("ConsumerGroup").replace("ShareGroup", "Share").removesuffix("Key")
    who = getattr(key, "member_id", "") or getattr(key, "regular_expression", "")
    fields = "tombstone" if value is None else show_fields(value)
    return " ".join(part for part in (kind, key.group_id, who, fields) if part)


def show_streams(value: Any) -> str:
    """The fields of a streams group's record."""
    if isinstance(value, StreamsGroupMetadataValue):
        return f"epoch={value.epoch} validated={value.validated_topology_epoch}"
    if isinstance(value, StreamsGroupTargetAssignmentMetadataValue):
        return f"epoch={value.assignment_epoch}"
    if isinstance(value, StreamsGroupMemberMetadataValue):
        return f"process={value.process_id} topology={value.topology_epoch}"
    if isinstance(value, StreamsGroupTopologyValue):
        return f"epoch={value.epoch} subtopologies={','.join(part.subtopology_id for part in value.subtopologies)}"
    kinds = {"active": value.active_tasks, "standby": value.standby_tasks, "warmup": value.warmup_tasks}
    has = [f"{kind} {show_tasks(tasks)}" for kind, tasks in kinds.items() if tasks]
    if isinstance(value, StreamsGroupTargetAssignmentMemberValue):
        return " ".join(has) or "nothing"
    assert isinstance(value, StreamsGroupCurrentMemberAssignmentValue)
    revoking = [*value.active_tasks_pending_revocation, *value.standby_tasks_pending_revocation, *value.warmup_tasks_pending_revocation]
    state = {1: "stable", 2: "unrevoked", 3: "unreleased"}[value.state]
    given_up = [f"revoking {show_tasks(revoking)}"] if revoking else []
    return " ".join([f"epoch={value.member_epoch} state={state} has", *(has or ["nothing"]), *given_up])


def show_tasks(tasks: Iterable[Any]) -> str:
    return ",".join(f"{task.subtopology_id}_{partition}" for task in tasks for partition in task.partitions)


def show_fields(value: Any) -> str:
    """The fields that say something about the group."""
    if isinstance(value, ConsumerGroupMetadataValue | ShareGroupMetadataValue):
        return f"epoch={value.epoch}"
    if isinstance(value, ConsumerGroupTargetAssignmentMetadataValue | ShareGroupTargetAssignmentMetadataValue):
        return f"epoch={value.assignment_epoch}"
    if isinstance(value, ShareGroupMemberMetadataValue):
        return f"topics={','.join(value.subscribed_topic_names)} rack={value.rack_id}"
    if isinstance(value, ShareGroupTargetAssignmentMemberValue):
        return show_topics(value.topic_partitions)
    if isinstance(value, ShareGroupCurrentMemberAssignmentValue):
        return f"epoch={value.member_epoch} has {show_topics(value.assigned_partitions)}"
    if isinstance(value, ShareGroupStatePartitionMetadataValue):
        lists = (("initializing", value.initializing_topics), ("initialized", value.initialized_topics))
        shown = [f"{name} {show_topics(topics)}" for name, topics in lists if topics]
        return " ".join([*shown, *(f"deleting {topic.topic_name}" for topic in value.deleting_topics)]) or "nothing"
    if isinstance(value, ConsumerGroupMemberMetadataValue):
        kind = " classic" if value.classic_member_metadata else ""
        return f"topics={','.join(value.subscribed_topic_names)} regex={value.subscribed_topic_regex}{kind}"
    if isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
        return show_topics(value.topic_partitions)
    if isinstance(value, ConsumerGroupRegularExpressionValue):
        return f"matches {','.join(value.topics)}"
    if type(value).__name__.startswith("StreamsGroup"):
        return show_streams(value)
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    has = show_topics(value.assigned_partitions)
    revoking = f" revoking {show_topics(value.partitions_pending_revocation)}" if value.partitions_pending_revocation else ""
    return f"epoch={value.member_epoch} state={MemberState(value.state).name.split('_')[0].lower()} has {has}{revoking}"


def write_share(text: str) -> bytes:
    """`@t-0+1` is a real assignment of a consumer, anything else stands for itself."""
    if not text.startswith("@"):
        return text.encode()
    topic, _, partitions = text[1:].partition("-")
    share = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=[int(number) for number in partitions.split("+")])
    return b"\0\0" + encoder(ConsumerProtocolAssignment, 0)(ConsumerProtocolAssignment(assigned_partitions=[share]))


def show_share(assignment: bytes) -> str:
    """A classic member's assignment: the transcripts' own text, or a real one."""
    if not assignment.startswith(b"\0"):
        return assignment.decode()
    share, _ = decoder(ConsumerProtocolAssignment, 0)(assignment, 2)
    return "/".join(f"{topic.topic}-{','.join(map(str, topic.partitions))}" for topic in share.assigned_partitions) or "nothing"
