"""DescribeLogDirs: the state, size and partitions of each log directory.

Behaviour: the answer has the state of each log directory, its total and usable bytes, and the size and lag of its partitions. Null topics
select all partitions. A partition without a replica on this broker is omitted. The lag of a follower is the number of offsets below the
leader's high watermark that it had not fetched at the leader's last answer. (Kafka answers 0, because it compares with the follower's own
high watermark.) The copy of a replica that is being moved is listed in its new directory with `is_future_key`; its lag is the number of
offsets that are not copied yet (KIP-113).

Version notes: 2 is flexible. 3 has a top-level error (KIP-784). 4 has the total and usable bytes of the file system (KIP-827). 5 has a flag
for cordoned directories (KIP-1066).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from ottla.base.errors import ErrorCode, StorageError
from ottla.base.loop.turns import pieces_of
from ottla.handlers.context import Broker, LogDirectory, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.replication.partition import Partition
from ottla.security.acl import AclOperation
from ottla.storage.log import Log
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

Topics = dict[str, DescribeLogDirsTopic]


def handle(
    broker: Broker, request: RequestContext, body: DescribeLogDirsRequest
) -> Generator[None, None, DescribeLogDirsResponse]:
    if not is_allowed_on_cluster(broker, request, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    by_directory: dict[str, Topics] = {}
    futures = {future.source.topic_partition: future for future in broker.directory_moves.under_way()}
    wanted = broker.partitions.all() if body.topics is None else (yield from _named(broker, body.topics))
    for piece in pieces_of(wanted):
        for partition in piece:
            log, future = partition.log, futures.get(partition.topic_partition)
            _add(by_directory, log, partition.lag, is_future=False)
            if future is not None:
                _add(by_directory, future.copy, future.lag, is_future=True)
        yield
    results = [_described(directory, by_directory.get(directory.path, {})) for directory in broker.partitions.log_directories()]
    return DescribeLogDirsResponse(results=results)


def _add(by_directory: dict[str, Topics], log: Log, lag: int, *, is_future: bool) -> None:
    topics = by_directory.setdefault(log.directory.rpartition("/")[0], {})
    name, index = log.topic_partition
    topic = topics.get(name)
    if topic is None:
        topic = topics[name] = DescribeLogDirsTopic(name=name)
    topic.partitions.append(
        DescribeLogDirsPartition(partition_index=index, partition_size=log.size_bytes, offset_lag=lag, is_future_key=is_future)
    )


def _named(broker: Broker, topics: Iterable[DescribableLogDirTopic]) -> Generator[None, None, Iterable[Partition]]:
    """Returns the requested partitions that are on this broker, each once."""
    found = {}
    for topic in topics:
        for piece in pieces_of(topic.partitions):
            for index in piece:
                partition = broker.partitions.get(topic.topic, index)
                if partition is not None:
                    found[partition.topic_partition] = partition
            yield
    return found.values()


def _described(directory: LogDirectory, topics: Topics) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=directory.path, is_cordoned=directory.is_cordoned)
    try:
        if not directory.is_online:
            raise StorageError(directory.path)
        result.total_bytes, result.usable_bytes = directory.free_bytes()
    except StorageError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.topics = list(topics.values())
    return result
