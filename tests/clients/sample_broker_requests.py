"""Sample requests between brokers and controllers, and about the registration of brokers; see `sample_requests.py`."""

from __future__ import annotations

from typing import Any

from ottla.wire.messages import (
    alter_partition,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from tests.clients.sample_world import World, plain
from tests.clients.wire_client import In


def _leader_and_isr(world: World, make: In, cls: Any) -> Any:
    fields = {
        "partition_index": 0,
        "controller_epoch": 9,
        "leader": 1,
        "leader_epoch": 9,
        "isr": [1],
        "replicas": [1],
        "partition_epoch": 9,
    }
    state = make(leader_and_isr.LeaderAndIsrPartitionState, topic_name=world.topic, **fields)
    topic = make(leader_and_isr.LeaderAndIsrTopicState, topic_name=world.topic, topic_id=world.topic_id, partition_states=[state])
    leader = make(leader_and_isr.LeaderAndIsrLiveLeader, broker_id=1, host_name="h", port=1)
    return make(cls, controller_id=1, controller_epoch=9, ungrouped_partition_states=[state], topic_states=[topic], live_leaders=[leader])


def _stop_replica(world: World, make: In, cls: Any) -> Any:
    first = make(stop_replica.StopReplicaPartitionV0, topic_name=world.topic, partition_index=0)
    second = make(stop_replica.StopReplicaTopicV1, name=world.topic, partition_indexes=[0])
    state = make(stop_replica.StopReplicaPartitionState, partition_index=0, leader_epoch=9, delete_partition=True)
    third = make(stop_replica.StopReplicaTopicState, topic_name=world.topic, partition_states=[state])
    return make(
        cls,
        controller_id=1,
        controller_epoch=9,
        delete_partitions=True,
        ungrouped_partitions=[first],
        topics=[second],
        topic_states=[third],
    )


def _update_metadata(world: World, make: In, cls: Any) -> Any:
    fields = {"partition_index": 0, "controller_epoch": 9, "leader": 1, "leader_epoch": 9, "isr": [1], "zk_version": 9, "replicas": [1]}
    state = make(update_metadata.UpdateMetadataPartitionState, topic_name=world.topic, **fields)
    topic = make(update_metadata.UpdateMetadataTopicState, topic_name=world.topic, topic_id=world.topic_id, partition_states=[state])
    endpoint = make(update_metadata.UpdateMetadataEndpoint, port=1, host="h", listener="L", security_protocol=0)
    broker = make(update_metadata.UpdateMetadataBroker, id=1, v0_host="h", v0_port=1, endpoints=[endpoint], rack=None)
    return make(cls, controller_id=1, controller_epoch=9, ungrouped_partition_states=[state], topic_states=[topic], live_brokers=[broker])


def _alter_partition(world: World, make: In, cls: Any) -> Any:
    state = make(alter_partition.BrokerState, broker_id=1, broker_epoch=1)
    partition = make(alter_partition.PartitionData, partition_index=0, leader_epoch=0, new_isr=[1], new_isr_with_epochs=[state])
    return make(cls, broker_id=1, broker_epoch=1, topics=[make(alter_partition.TopicData, topic_id=world.topic_id, partitions=[partition])])


def _envelope(_world: World, make: In, cls: Any) -> Any:
    """Returns an Envelope with a request that is not for the controller."""
    principal = bytes.fromhex("0000 05 55736572 02 61 00 00")
    return make(cls, request_data=bytes(20), request_principal=principal, client_host_address=bytes(4))


BROKER_REQUESTS = {
    4: _leader_and_isr,
    5: _stop_replica,
    6: _update_metadata,
    7: plain(broker_id=1),
    56: _alter_partition,
    58: _envelope,
    64: plain(broker_id=77),
    80: plain(cluster_id=None, voter_id=1, voter_directory_id=bytes(range(16))),
    81: plain(cluster_id=None, voter_id=1, voter_directory_id=bytes(range(16))),
}
