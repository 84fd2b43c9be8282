"""DescribeCluster: the cluster's id, controller and brokers.

The fields `ottla_*` are Ottla's tagged fields, for clients that have asked for extensions: the controller's epoch, and how many times
in-sync sets of partitions led by this broker have been expanded and shrunk since its start.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i8, i16, i32, i64, string

CONTROLLER_EPOCH_TAG, ISR_EXPANSIONS_TAG, ISR_SHRINKS_TAG = 20000, 20001, 20002
UNKNOWN = -1


class DescribeClusterRequest(Request):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = i8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Struct):
    broker_id: int = i32()
    host: str = string()
    port: int = i32()
    rack: str | None = string(nullable=True, default=None)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    endpoint_type: int = i8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = i32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = i32(default=-0x80000000)
    ottla_controller_epoch: int = i32(tag=CONTROLLER_EPOCH_TAG, default=UNKNOWN, ignorable=True)
    ottla_isr_expansions: int = i64(tag=ISR_EXPANSIONS_TAG, default=UNKNOWN, ignorable=True)
    ottla_isr_shrinks: int = i64(tag=ISR_SHRINKS_TAG, default=UNKNOWN, ignorable=True)
