"""DescribeQuorum: the leader and the voters of the metadata quorum, and their offsets.

Behaviour: the controller is the only voter of its quorum and its leader. A store has the metadata, not a log, so no offset exists. The
controller's epoch is shown as the leader's epoch, as the end of the voter's log and as the high watermark: a small number that grows with
each controller. While no controller is known, the partition gets NOT_LEADER_OR_FOLLOWER.
Every partition except 0 of `__cluster_metadata` gets UNKNOWN_TOPIC_OR_PARTITION.

Version notes: 1 has the fetch times of the voters (KIP-836). 2 has error messages, directories and the addresses of the voters (KIP-853).
There is no separate listener for controllers, so the address is the controller's address on the client's listener.

Not done: observers.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.types import CLUSTER_METADATA_TOPIC
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

ADDRESSES_SINCE = 2


def handle(broker: Broker, request: RequestContext, body: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not is_allowed_on_cluster(broker, request, AclOperation.DESCRIBE):
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    topics = [
        DescribeQuorumResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[_described(broker, topic.topic_name, partition.partition_index) for partition in topic.partitions],
        )
        for topic in body.topics
    ]
    return DescribeQuorumResponse(
        error_message=None, topics=topics, nodes=_voters(broker, request) if request.version >= ADDRESSES_SINCE else []
    )


def _voters(broker: Broker, request: RequestContext) -> list[Node]:
    leader = broker.metadata.brokers.get(broker.metadata.controller_id)
    if leader is None:
        return []
    listener = request.connection.listener
    address = leader.endpoints.get(listener)
    listeners = [] if address is None else [Listener(name=listener, host=address[0], port=address[1])]
    return [Node(node_id=leader.broker_id, listeners=listeners)]


def _described(broker: Broker, topic: str, index: int) -> DescribeQuorumResponsePartitionData:
    if topic != CLUSTER_METADATA_TOPIC or index != 0:
        return DescribeQuorumResponsePartitionData(
            partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=None
        )
    leader_id, end = broker.metadata.controller_id, broker.metadata.controller_epoch
    if leader_id < 0:
        return DescribeQuorumResponsePartitionData(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message=None, leader_id=-1, leader_epoch=end, high_watermark=-1
        )
    now_ms = broker.clock.wall_ms()
    voter = ReplicaState(replica_id=leader_id, log_end_offset=end, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
    return DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_message="",
        leader_id=leader_id,
        leader_epoch=end,
        high_watermark=end,
        current_voters=[voter],
    )
