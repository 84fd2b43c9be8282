"""DescribeLogDirs: how much each log directory holds.

Behaviour: for each log directory, whether it is online, how much room there is, and the size and lag of the partitions in it: all of them
(null), or those of the topics named. A partition that does not live here is left out. The copy of one that moves to another directory
stands there as future, with what it lacks as its lag (KIP-113).

Version notes: 2 is flexible. 3 has a top-level error (KIP-784). 4 the room of the file system (KIP-827). 5 may say that a directory is
cordoned (KIP-1066).

Not done: cordoned directories; none is.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.errors import ErrorCode, StorageError
from ottla.replication.partition import Partition
from ottla.requests.context import Broker, LogDirectory, RequestContext
from ottla.requests.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.storage.log import Log
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

Placed = tuple[Log, int, bool]
"""A log in a directory, its lag, and whether it is a future one."""


def handle(broker: Broker, request: RequestContext, body: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not is_allowed_on_cluster(broker, request, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    by_directory: dict[str, list[Placed]] = {}
    futures = {future.source.topic_partition: future for future in broker.directory_moves.under_way()}
    for partition in _wanted(broker, body):
        log, future = partition.log, futures.get(partition.topic_partition)
        # A leader is never behind; a follower lacks what it knows to be committed and has not fetched.
        lag = max(0, partition.high_watermark - log.log_end_offset)
        by_directory.setdefault(log.directory.rpartition("/")[0], []).append((log, lag, False))
        if future is not None:
            by_directory.setdefault(future.copy.directory.rpartition("/")[0], []).append((future.copy, future.lag, True))
    results = [_described(directory, by_directory.get(directory.path, [])) for directory in broker.partitions.log_directories()]
    return DescribeLogDirsResponse(results=results)


def _wanted(broker: Broker, body: DescribeLogDirsRequest) -> Iterable[Partition]:
    if body.topics is None:
        return broker.partitions.all()
    found = {}
    for topic in body.topics:
        for index in topic.partitions:
            partition = broker.partitions.get(topic.topic, index)
            if partition is not None:
                found[partition.topic_partition] = partition
    return found.values()


def _described(directory: LogDirectory, placed: list[Placed]) -> DescribeLogDirsResult:
    if not directory.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    try:
        total_bytes, usable_bytes = directory.free_bytes()
    except StorageError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log, lag, is_future in placed:
        name, index = log.topic_partition
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
        size = log.size_bytes
        topic.partitions.append(
            DescribeLogDirsPartition(partition_index=index, partition_size=size, offset_lag=lag, is_future_key=is_future)
        )
    return DescribeLogDirsResult(log_dir=directory.path, topics=list(topics.values()), total_bytes=total_bytes, usable_bytes=usable_bytes)
