"""DescribeLogDirs: the sizes of real logs, the free space of the file system, and offline directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, StorageError
from ottla.base.types import TopicPartition
from ottla.handlers.records.produce import handle
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.handlers.admin_world import AdminWorld, DenyAll
from tests.handlers.records_world import RecordsWorld, batch, request


@dataclass
class Directory:
    """A log directory. If `room` is None, its file system does not answer."""

    path: str
    is_online: bool = True
    is_cordoned: bool = False
    room: tuple[int, int] | None = (100, 40)

    def free_bytes(self) -> tuple[int, int]:
        if self.room is None:
            raise StorageError("gone")
        return self.room


class Partitions:
    """Two partitions of topic `t` under /data."""

    def __init__(self, world: RecordsWorld, directories: list[Directory]) -> None:
        self._world = world
        self._directories = directories

    def all(self) -> list[Any]:
        return self._world.partitions

    def get(self, topic: str, index: int) -> Any:
        return self._world.partitions[index] if topic == "t" and 0 <= index < 2 else None

    def absence(self, topic: str, index: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def log_directories(self) -> list[Directory]:
        return self._directories


class Moves:
    """Records the requested moves."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, str]] = []

    def move(self, partition: Any, path: str) -> ErrorCode:
        self.asked.append((*partition.topic_partition, path))
        return ErrorCode.NONE

    def prefer(self, key: TopicPartition, path: str) -> ErrorCode:
        self.asked.append((*key, path))
        return ErrorCode.REPLICA_NOT_AVAILABLE

    def refusal(self, path: str) -> ErrorCode:
        return ErrorCode.LOG_DIR_NOT_FOUND if path == "/none" else ErrorCode.NONE

    def under_way(self) -> list[Any]:
        return []


def admin(*directories: Directory, authorizer: Any = None) -> AdminWorld:
    records = RecordsWorld()
    data = [PartitionProduceData(index=0, records=batch(b"x"))]
    handle(records.broker, request(9), ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)]))
    world = AdminWorld(authorizer=authorizer)
    world.broker.partitions = Partitions(records, list(directories))
    world.broker.directory_moves = Moves()
    return world


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version(version: int) -> None:
    answer = admin(Directory("/data"), Directory("/empty", is_cordoned=True)).ask(DescribeLogDirsRequest(topics=None), version)
    full, empty = answer.results
    (topic,) = full.topics
    assert (full.log_dir, empty.log_dir, empty.topics, topic.name) == ("/data", "/empty", [], "t")
    sizes = {part.partition_index: (part.partition_size, part.offset_lag, part.is_future_key) for part in topic.partitions}
    assert sizes[0][0] > 61
    assert sizes == {0: (sizes[0][0], 0, False), 1: (0, 0, False)}
    if version >= 4:
        assert (full.total_bytes, full.usable_bytes) == (100, 40)
    assert (full.is_cordoned, empty.is_cordoned) == (False, version >= 5)


def test_a_follower_lags_behind_its_leaders_watermark() -> None:
    world = admin(Directory("/data"))
    follower = world.broker.partitions.all()[1]
    follower.become_follower(leader_id=2, leader_epoch=9, partition_epoch=9, replicas=[1, 2], isr=[2])
    follower.follower_log.append(memoryview(b""), high_watermark=7, leader_log_start=0)
    (topic,) = world.ask(DescribeLogDirsRequest(topics=None)).results[0].topics
    assert {part.partition_index: part.offset_lag for part in topic.partitions} == {0: 0, 1: 7}


def test_named_partitions_once_each_and_only_those_that_live_here() -> None:
    asked = [DescribableLogDirTopic(topic="t", partitions=[1, 1, 7]), DescribableLogDirTopic(topic="no", partitions=[0])]
    (result,) = admin(Directory("/data")).ask(DescribeLogDirsRequest(topics=asked)).results
    assert [(topic.name, [part.partition_index for part in topic.partitions]) for topic in result.topics] == [("t", [1])]


@pytest.mark.parametrize("directory", [Directory("/data", is_online=False), Directory("/data", room=None)])
def test_a_directory_that_fails(directory: Directory) -> None:
    (result,) = admin(directory).ask(DescribeLogDirsRequest(topics=None)).results
    assert (result.error_code, result.log_dir, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, "/data", [])


def test_rights() -> None:
    answer = admin(Directory("/data"), authorizer=DenyAll()).ask(DescribeLogDirsRequest(topics=None))
    assert (answer.error_code, answer.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
