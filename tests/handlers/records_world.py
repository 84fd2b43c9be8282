"""A broker with only what Produce and Fetch need: real partitions on a disk in memory, real waiters, and a clock that tests move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.base.broker_ports import Ages
from ottla.base.cluster_metadata import ClusterMetadata
from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.log_config import LogConfig
from ottla.base.types import TopicPartition
from ottla.handlers.context import ConnectionInfo, RequestContext
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.follower_sessions import FollowerSessions
from ottla.replication.partition import Partition
from ottla.replication.refused_batches import RefusedBatches
from ottla.replication.stage_space import StageSpace
from ottla.security.authorizer import AllowClients
from ottla.server.inspections import Inspections
from ottla.storage.log import Log
from ottla.wire.records import Record, encode_batch
from tests.fakes import ManualClock, SeededRandom
from tests.fakes.log_settings import log_settings
from tests.fakes.world import World

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000


class PartitionsOfOneTopic:
    """Implements `requests.context.Partitions` with a list."""

    def __init__(self, partitions: list[Partition]) -> None:
        self._partitions = partitions
        self.elsewhere: set[int] = set()
        """Partitions of the topic that are on other brokers."""

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions[index] if topic == "t" and 0 <= index < len(self._partitions) else None

    def by_index(self, topic: str) -> dict[int, Partition]:
        return dict(enumerate(self._partitions)) if topic == "t" else {}

    def get_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        return self.get("t" if topic_id == TOPIC_ID else "", index)

    def absence(self, topic: str, index: int) -> ErrorCode:
        is_elsewhere = topic == "t" and index in self.elsewhere
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def topic_name(self, topic_id: bytes) -> str | None:
        return "t" if topic_id == TOPIC_ID else None


class RecordsWorld(World):
    """One broker with one topic `t`."""

    def __init__(self, *, partitions: int = 2, is_flush_on_ack: bool = False, config: LogConfig | None = None) -> None:
        self.clock = ManualClock(wall_ms=NOW_MS)
        self.flushes: list[Partition] = []
        self.partitions = [self._lead(index, is_flush_on_ack, config or log_settings()) for index in range(partitions)]
        self.broker: Any = SimpleNamespace(
            broker_id=0,
            config=BrokerConfig(),
            clock=self.clock,
            timers=self.timers,
            metadata=ClusterMetadata(),
            partitions=PartitionsOfOneTopic(self.partitions),
            waiters=self.waiters,
            inspections=Inspections(self.threads, self.timers),
            fetch_sessions=FetchSessions(SeededRandom(1), 10),
            follower_sessions=FollowerSessions(),
            authorizer=AllowClients(),
            quotas=None,
            stages=self.stage_space(BrokerConfig()),
            refused_batches=RefusedBatches(),
            lease=None,
        )

    def stage_space(self, config: BrokerConfig) -> StageSpace:
        return StageSpace(config=config, disk=self.disk, ages=Ages(self.clock, self.timers), remove_later=lambda _paths: None)

    def _lead(self, index: int, is_flush_on_ack: bool, config: LogConfig) -> Partition:
        key = TopicPartition("t", index)
        log = Log.open(self.disk, f"/data/{key}", key, config, now_ms=NOW_MS, was_clean=True, topic_id=TOPIC_ID)
        partition = Partition(log, broker_id=0, is_flush_on_ack=is_flush_on_ack, request_flush=self.flushes.append)
        partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(0,), isr=(0,), now_ms=0)
        return partition

    def flush(self) -> None:
        """Runs the group commit."""
        asked, self.flushes[:] = list(self.flushes), []
        for partition in asked:
            partition.on_flushed(partition.log.log_end_offset)
        self.waiters.run()


def request(version: int) -> RequestContext:
    return RequestContext(version, "test", ConnectionInfo(identity="test:1", host="test", listener="PLAINTEXT"))


def batch(*values: bytes, **options: Any) -> memoryview:
    return memoryview(encode_batch([Record(0, NOW_MS, None, value) for value in values], **options))
