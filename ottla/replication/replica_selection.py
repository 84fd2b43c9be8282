"""Chooses the replica that a consumer should read from (KIP-392): one in the consumer's rack, if there is one.

The leader returns the id of that replica instead of records, and the consumer then fetches from it. A follower serves consumers up to the
high watermark that it knows. Only in-sync replicas that have the offset are chosen; of several, the one with the highest log end.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.replication.partition import Partition

LEADER = -1
RACK_AWARE = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "RackAwareReplicaSelector")
"""With these values of `replica.selector.class`, consumers may read from a follower in their rack."""


def nearest_replica(partition: Partition, rack: str, offset: int, brokers: Mapping[int, BrokerMetadata]) -> int:
    """Returns the id of the broker to read from. `LEADER` means this broker: it is in the rack, or no other replica is suitable."""
    leader, own = partition.leader, brokers.get(partition.broker_id)
    if leader is None or (own is not None and own.rack == rack):
        return LEADER
    near = [
        follower
        for replica_id, follower in leader.followers.items()
        if (broker := brokers.get(replica_id)) is not None
        and broker.rack == rack
        and replica_id in partition.isr
        and 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
    ]
    if not near:
        return LEADER
    return max(near, key=lambda follower: (follower.log_end_offset, follower.last_caught_up_ms, -follower.broker_id)).broker_id
