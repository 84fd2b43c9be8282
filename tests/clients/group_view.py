"""Asks the broker about a classic or consumer group: its type, its state, and the partitions of each member."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.wire.codec import decoder
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from tests.clients.wire_client import WireClient

Spot = tuple[str, int]
"""A topic and a partition."""


class GroupView(NamedTuple):
    type: str
    state: str
    epoch: int
    members: dict[str, frozenset[Spot]]  # by member id
    instances: dict[str, str]  # instance id -> member id

    @property
    def is_shared_by(self) -> int:
        """Returns how many members have partitions; 0 while a partition has two members."""
        held = [spot for spots in self.members.values() for spot in spots]
        return sum(map(bool, self.members.values())) if len(held) == len(set(held)) else 0


def look(port: int, group: str) -> GroupView:
    with WireClient(port) as client:
        listed = {one.group_id: one for one in client.ask(ListGroupsRequest(), 5).groups}
        if group not in listed:
            return GroupView("", "Dead", 0, {}, {})
        return _look_at_consumer(client, group) if listed[group].group_type == "consumer" else _look_at_classic(client, group)


def _look_at_consumer(client: WireClient, group: str) -> GroupView:
    described = client.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0]
    return GroupView(
        "consumer",
        described.group_state,
        described.group_epoch,
        {member.member_id: _spots(member.assignment.topic_partitions, "topic_name") for member in described.members},
        {member.instance_id: member.member_id for member in described.members if member.instance_id},
    )


def _look_at_classic(client: WireClient, group: str) -> GroupView:
    described = client.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0]
    members: dict[str, frozenset[Spot]] = {}
    for member in described.members:
        data = bytes(member.member_assignment)
        share = decoder(ConsumerProtocolAssignment, int.from_bytes(data[:2], "big"))(data, 2)[0].assigned_partitions if data else []
        members[member.member_id] = _spots(share, "topic")
    instances = {member.group_instance_id: member.member_id for member in described.members if member.group_instance_id}
    return GroupView("classic", described.group_state, 0, members, instances)


def _spots(topics: Iterable[Any], name: str) -> frozenset[Spot]:
    return frozenset((getattr(topic, name), partition) for topic in topics for partition in topic.partitions)
