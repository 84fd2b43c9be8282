"""The interface of the controller, with the values of requests and results.

Every method takes a callback `done`, which is called once on the event loop: when the changes are committed in the metadata store, or
refused. Some methods then also wait for answers of the brokers. With the embedded store `done` is usually called before the method returns.
A result has Kafka's error code of its own item; an invalid item does not affect the others.
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
    """A topic to create. -1 partitions or replicas means the broker's default. With `assignments` (partition -> replicas) both numbers must
    be -1."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


@immutable(kw_only=True)
class TopicResult:
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = NO_TOPIC_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@immutable(kw_only=True)
class NewPartitions:
    """A topic to grow to `count` partitions in total. `assignments` has the replicas of the new partitions, in order."""

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
"""Maximum number of settings that one request may change in one resource. No resource has as many."""
TOO_MANY_CONFIG_ENTRIES = f"More than {CONFIG_ENTRIES_MAX} configurations of one resource"


@immutable(kw_only=True)
class ConfigRequest:
    """Changes of one resource's configuration. `is_replacing`: settings that are not in `entries` are removed (AlterConfigs)."""

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
    """A leader's proposal in AlterPartition: the new ISR as (broker id, broker epoch), and the leader epoch and partition epoch that the
    leader proposes it from."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]


@immutable(kw_only=True)
class PartitionResult:
    """The result for one partition, with its state after the request. While `eligible` is not empty, the leader's high watermark does not
    rise."""

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
    """The wanted replicas of a partition. None cancels its present reassignment."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


@immutable(kw_only=True)
class QuotaRequest:
    """New quotas of one entity. The value None removes a quota."""

    entity: QuotaEntity
    values: Mapping[str, float | None]


@immutable(kw_only=True)
class QuotaResult:
    entity: QuotaEntity
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@immutable(kw_only=True)
class ScramRequest:
    """A user's new credential for one mechanism, in its stored form. None removes the present credential."""

    user: str
    mechanism: str
    credential: str | None = field(repr=False)


@immutable(kw_only=True)
class ScramResult:
    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


AlterPartitionDone = Callable[[ErrorCode, list[PartitionResult]], None]
"""Called with the error of the whole request and the results of its partitions."""


ElectionsDone = Callable[[list[PartitionResult], ErrorCode], None]
"""Called with the results of the partitions, and with the error of a request for all partitions."""


def failed_elections(partitions: Sequence[tuple[str, int]] | None, code: ErrorCode) -> tuple[list[PartitionResult], ErrorCode]:
    """Returns the arguments for `ElectionsDone` when the controller did not execute the request. `partitions` is None for all partitions.
    """
    if partitions is None:
        return [], code
    return [PartitionResult(topic=topic, partition=index, error=code) for topic, index in partitions], ErrorCode.NONE


TopicsDone = Callable[[list[TopicResult]], None]
"""Called with the result of each topic."""


class Controller(Protocol):
    """The controller's operations. `LocalController` implements them on the elected broker; `cluster.controller_link.ControllerLink` also
    sends some of them to an elected broker elsewhere. Operations that reach no controller fail with NOT_CONTROLLER."""

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""

    def create_topics(self, topics: Sequence[NewTopic], validate_only: bool, done: TopicsDone, *, timeout_ms: int | None = None) -> None:
        """Calls `done` when the brokers have answered the messages about the new topics. Waits at most `timeout_ms` for brokers other than
        the controller's own. `delete_topics` and `create_partitions` wait in the same way."""

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
        """Calls `done` when the brokers have answered the messages about the new leaders; waits as `create_topics` does."""

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, done: Callable[[ErrorCode, list[tuple[str, int]]], None]) -> None:
        """Elects other leaders for the partitions of a stopping broker. The answer lists partitions that it still leads although another
        replica lives, because no such replica is in sync."""

    def alter_reassignments(self, requests: Sequence[Reassignment], done: Callable[[list[PartitionResult]], None]) -> None: ...
