"""Sample requests about classic and consumer groups and their offsets; see `sample_requests.py`."""

from __future__ import annotations

from typing import Any

from ottla.wire.framing import load
from ottla.wire.messages import (
    join_group,
    leave_group,
    offset_delete,
    offset_fetch,
)
from tests.clients.sample_world import NEVER_EXPIRES_MS, World, plain
from tests.clients.wire_client import In


def _offset_commit(world: World, make: In, _cls: Any) -> Any:
    return world.offset_commit(make)


def _offset_fetch(world: World, make: In, cls: Any) -> Any:
    old = make(offset_fetch.OffsetFetchRequestTopic, name=world.topic, partition_indexes=[0, 1])
    new = make(offset_fetch.OffsetFetchRequestTopics, name=world.topic, topic_id=world.topic_id, partition_indexes=[0, 1])
    group = make(offset_fetch.OffsetFetchRequestGroup, group_id="offsets", topics=[new])
    return make(cls, group_id="offsets", topics=[old], groups=[group], require_stable=True)


def _find_coordinator(_world: World, make: In, cls: Any) -> Any:
    return make(cls, key="group", coordinator_keys=["group", "other"])


def _join_group(world: World, make: In, cls: Any) -> Any:
    protocol = make(join_group.JoinGroupRequestProtocol, name="range", metadata=b"\0\0" + bytes(8))
    return make(
        cls, group_id=world.fresh("group"), session_timeout_ms=NEVER_EXPIRES_MS, rebalance_timeout_ms=NEVER_EXPIRES_MS,
        protocol_type="consumer", protocols=[protocol], group_instance_id="instance",
    )  # fmt: skip


def _heartbeat(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("group")
    member, generation = world.join(group)
    return make(cls, group_id=group, generation_id=generation, member_id=member)


def _leave_group(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("group")
    member, _ = world.join(group)
    return make(cls, group_id=group, member_id=member, members=[make(leave_group.MemberIdentity, member_id=member, reason="bye")])


def _sync_group(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("group")
    member, generation = world.join(group)
    return make(cls, group_id=group, generation_id=generation, member_id=member, protocol_type="consumer", protocol_name="range")


def _describe_groups(_world: World, make: In, cls: Any) -> Any:
    return make(cls, groups=["group"], include_authorized_operations=True)


def _delete_groups(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("group")
    member, _ = world.join(group)
    world.client.ask(load(13)[0](group_id=group, member_id=member), 1)
    return make(cls, groups_names=[group])


def _offset_delete(world: World, make: In, cls: Any) -> Any:
    partition = make(offset_delete.OffsetDeleteRequestPartition, partition_index=1)
    topic = make(offset_delete.OffsetDeleteRequestTopic, name=world.topic, partitions=[partition])
    return make(cls, group_id="offsets", topics=[topic])


def _consumer_group_heartbeat(world: World, make: In, cls: Any) -> Any:
    return make(cls, **world.first_heartbeat(world.fresh("consumer-group")))


def _consumer_group_describe(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("consumer-group")
    world.client.ask(load(68)[0](**world.first_heartbeat(group)), 1)
    return make(cls, group_ids=[group], include_authorized_operations=True)


GROUP_REQUESTS = {
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    12: _heartbeat,
    13: _leave_group,
    14: _sync_group,
    15: _describe_groups,
    16: plain(),
    42: _delete_groups,
    47: _offset_delete,
    68: _consumer_group_heartbeat,
    69: _consumer_group_describe,
}
