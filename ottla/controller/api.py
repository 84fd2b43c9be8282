"""The interface of the controller, with the values of requests and results.

Every method takes a `done` callback that is called once on the loop, when the answer is committed in the metadata store (with the
embedded store that is before the method returns). A result carries Kafka's error code for its own item; one bad item does not affect the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Protocol

from ottla.base.cluster_metadata import QuotaEntity
from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable

NO_TOPIC_ID = bytes(16)


@immutable(kw_only=True)
class NewTopic:
    """-1 for partitions or replicas: the broker's default. `assignments` (partition -> replicas) excludes both numbers."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


@immutable(kw_only=True)
class TopicResult:
    """The result for one topic."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = NO_TOPIC_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@immutable(kw_only=True)
class NewPartitions:
    """A topic shall have `count` partitions in all; `assignments` are the replicas of the new ones, in order."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


class ConfigOperation(IntEnum):
    """Kafka's operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@immutable(kw_only=True)
class ConfigEntry:
    name: str
    operation: ConfigOperation
    value: str | None = None


CONFIG_ENTRIES_MAX = 1_000
"""The most settings of a resource that one request may change: several times as many as any resource has."""
TOO_MANY_CONFIG_ENTRIES = f"More than {CONFIG_ENTRIES_MAX} configurations of one resource"


@immutable(kw_only=True)
class ConfigRequest:
    """Changes of one resource's configuration; `is_replacing`: whatever is not named here is removed (AlterConfigs of old)."""

    resource_type: int
    name: str
    entries: Sequence[ConfigEntry]
    is_replacing: bool = False


@immutable(kw_only=True)
class ConfigResult:
    resource_type: int
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@immutable(kw_only=True)
class IsrChangeRequest:
    """A leader's request by AlterPartition: this ISR, seen from this leader epoch and partition epoch. Each member has its broker epoch."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]


@immutable(kw_only=True)
class PartitionResult:
    """The result for one partition; on success its new state. While there are `eligible` replicas the leader's watermark does not move."""

    topic: str
    topic_id: bytes = NO_TOPIC_ID
    partition: int = 0
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    leader: int = -1
    leader_epoch: int = -1
    isr: Sequence[int] = ()
    partition_epoch: int = -1
    eligible: Sequence[int] = ()


class ElectionType(IntEnum):
    """Kafka's kinds of election on request."""

    PREFERRED = 0
    UNCLEAN = 1


@immutable(kw_only=True)
class Reassignment:
    """The replicas that a partition shall have; None cancels what is under way."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


@immutable(kw_only=True)
class QuotaRequest:
    """New quotas of one entity: a value of None removes that quota."""

    entity: QuotaEntity
    values: Mapping[str, float | None]


@immutable(kw_only=True)
class QuotaResult:
    entity: QuotaEntity
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@immutable(kw_only=True)
class ScramRequest:
    """A user's new credential for one mechanism, as it is stored; None removes the one there is."""

    user: str
    mechanism: str
    credential: str | None = field(repr=False)


@immutable(kw_only=True)
class ScramResult:
    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


AlterPartitionDone = Callable[[ErrorCode, list[PartitionResult]], None]
"""The error of the whole request, and the results for its partitions."""


ElectionsDone = Callable[[list[PartitionResult]], None]
TopicsDone = Callable[[list[TopicResult]], None]
"""Called with the result of each topic."""


class Controller(Protocol):
    """The one broker that changes the cluster's metadata; on another broker every answer is NOT_CONTROLLER."""

    @property
    def is_active(self) -> bool:
        """Whether this broker is that one."""

    def create_topics(self, topics: Sequence[NewTopic], validate_only: bool, done: TopicsDone, *, timeout_ms: int | None = None) -> None:
        """The answer waits until the brokers know the topics, at most `timeout_ms` for brokers that do not answer; so the next two."""

    def delete_topics(self, names: Sequence[str], done: TopicsDone, *, timeout_ms: int | None = None) -> None: ...

    def create_partitions(
        self, topics: Sequence[NewPartitions], validate_only: bool, done: TopicsDone, *, timeout_ms: int | None = None
    ) -> None: ...

    def alter_configs(self, requests: Sequence[ConfigRequest], validate_only: bool, done: Callable[[list[ConfigResult]], None]) -> None: ...

    def alter_quotas(self, requests: Sequence[QuotaRequest], validate_only: bool, done: Callable[[list[QuotaResult]], None]) -> None: ...

    def alter_scram(self, requests: Sequence[ScramRequest], done: Callable[[list[ScramResult]], None]) -> None: ...

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], done: AlterPartitionDone) -> None: ...

    def elect_leaders(
        self, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None, done: ElectionsDone, *, timeout_ms: int | None = None
    ) -> None:
        """The answer waits until the brokers know the new leaders, as for `create_topics`."""

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, done: Callable[[ErrorCode, list[tuple[str, int]]], None]) -> None:
        """Hands over what a stopping broker leads; the answer names the partitions that no other live replica can lead yet."""

    def alter_reassignments(self, requests: Sequence[Reassignment], done: Callable[[list[PartitionResult]], None]) -> None: ...
