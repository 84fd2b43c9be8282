"""The subscriptions and assignments that members of a classic group exchange, each after an int16 with its version."""

from __future__ import annotations

from ottla.wire.schema import Data, Struct, array, i32, octets, string


class TopicPartition(Struct):
    topic: str = string(since=1)
    partitions: list[int] = array(i32, since=1)


class ConsumerProtocolSubscription(Data, versions=(0, 3)):
    topics: list[str] = array(string)
    user_data: bytes | None = octets(nullable=True, default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, since=1, ignorable=True)
    generation_id: int = i32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable=True, default=None, ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(i32)


class ConsumerProtocolAssignment(Data, versions=(0, 3)):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(ConsumerProtocolAssignmentTopicPartition)
    user_data: bytes | None = octets(nullable=True, default=None)
