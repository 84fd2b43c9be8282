"""Sample requests about share groups, and to share coordinators; see `sample_requests.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.wire.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    write_share_group_state,
)
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.clients.broker_process import eventually

if TYPE_CHECKING:
    from tests.clients.sample_world import World
    from tests.clients.wire_client import In

JOINING, LEAVING = 0, -1
MAX_BYTES = 1 << 20


def member_id(world: World) -> str:
    return uuid_to_text(fresh_uuid(next(world.numbers).to_bytes(16, "big")))


def join(world: World, group: str) -> str:
    """Makes a member join a share group; returns the member id."""
    member = member_id(world)
    beat = ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=JOINING, subscribed_topic_names=[world.topic])
    eventually(lambda: world.client.ask(beat, 1).error_code == 0)
    return member


def left_group(world: World) -> str:
    """Makes a share group without members."""
    group = world.fresh("share-group")
    leaving = ShareGroupHeartbeatRequest(group_id=group, member_id=join(world, group), member_epoch=LEAVING)
    assert world.client.ask(leaving, 1).error_code == 0
    return group


def fetch(world: World, make: In, group: str, member: str) -> Any:
    partition = make(share_fetch.FetchPartition, partition_index=0)
    topic = make(share_fetch.FetchTopic, topic_id=world.topic_id, partitions=[partition])
    return make(
        share_fetch.ShareFetchRequest, group_id=group, member_id=member, share_session_epoch=0, max_wait_ms=100, min_bytes=1,
        max_bytes=MAX_BYTES, max_records=10, batch_size=10, topics=[topic],
    )  # fmt: skip


def heartbeat(world: World, make: In, cls: Any) -> Any:
    return make(
        cls, group_id=world.fresh("share-group"), member_id=member_id(world), member_epoch=JOINING, subscribed_topic_names=[world.topic]
    )


def describe(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("share-group")
    join(world, group)
    return make(cls, group_ids=[group], include_authorized_operations=True)


def fetch_anew(world: World, make: In, _cls: Any) -> Any:
    group = world.fresh("share-group")
    return fetch(world, make, group, join(world, group))


def acknowledge(world: World, make: In, cls: Any) -> Any:
    """Returns the second request of a session, without acknowledgements because no record was acquired."""
    group = world.fresh("share-group")
    member = join(world, group)
    assert world.client.ask(fetch(world, make, group, member), make.version).error_code == 0
    partition = make(share_acknowledge.AcknowledgePartition, partition_index=0)
    topic = make(share_acknowledge.AcknowledgeTopic, topic_id=world.topic_id, partitions=[partition])
    return make(cls, group_id=group, member_id=member, share_session_epoch=1, topics=[topic])


def describe_offsets(world: World, make: In, cls: Any) -> Any:
    topic = make(describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic, topic_name=world.topic, partitions=[0, 1])
    group = make(describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup, group_id=left_group(world), topics=[topic])
    return make(cls, groups=[group])


def alter_offsets(world: World, make: In, cls: Any) -> Any:
    partition = make(alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition, partition_index=0, start_offset=1)
    topic = make(alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic, topic_name=world.topic, partitions=[partition])
    return make(cls, group_id=left_group(world), topics=[topic])


def delete_offsets(world: World, make: In, cls: Any) -> Any:
    group = left_group(world)
    altering = make(alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition, partition_index=0, start_offset=1)
    altered = make(alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic, topic_name=world.topic, partitions=[altering])
    begun = alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id=group, topics=[altered])
    assert world.client.ask(begun, 0).error_code == 0
    return make(cls, group_id=group, topics=[make(delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic, topic_name=world.topic)])


def to_coordinator(partition: Any, topic: type[Any], **fields: Any) -> Any:
    """Returns a request that only brokers send, about one partition of one topic."""

    def maker(world: World, make: In, cls: Any) -> Any:
        one = make(partition, partition=0, **fields)
        return make(cls, group_id="share-group", topics=[make(topic, topic_id=world.topic_id, partitions=[one])])

    return maker


SHARE_REQUESTS = {
    76: heartbeat,
    77: describe,
    78: fetch_anew,
    79: acknowledge,
    83: to_coordinator(
        initialize_share_group_state.PartitionData, initialize_share_group_state.InitializeStateData, state_epoch=1, start_offset=0
    ),
    84: to_coordinator(read_share_group_state.PartitionData, read_share_group_state.ReadStateData, leader_epoch=0),
    85: to_coordinator(write_share_group_state.PartitionData, write_share_group_state.WriteStateData, state_epoch=1, start_offset=0),
    86: to_coordinator(delete_share_group_state.PartitionData, delete_share_group_state.DeleteStateData),
    87: to_coordinator(
        read_share_group_state_summary.PartitionData, read_share_group_state_summary.ReadStateSummaryData, leader_epoch=0
    ),
    90: describe_offsets,
    91: alter_offsets,
    92: delete_offsets,
}
