"""The interface of a mirror's target, and the topics of a mirror. `exact_target.py` and `produced_target.py` implement it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.fetching import Fetched
from ottla.client.core.operations import TopicInfo
from ottla.client.errors import KafkaError, UnknownTopicError
from ottla.cloning.plan import CloneError

CREATION_SECONDS_MAX = 10.0
"""Time until a broker knows a topic that another mirror has created."""
POLL_SECONDS = 0.05
MIRRORING, GRADUATED, FAILED = "mirroring", "graduated", "failed"


@dataclass(slots=True)
class MirroredTopic:
    """A topic of the mirror. `source` identifies it at the source: cluster id and topic id. `error` is why it has failed."""

    name: str
    source: str
    partition_count: int
    state: str = MIRRORING
    error: str | None = None
    unknown_since_s: float | None = field(default=None, repr=False)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in range(self.partition_count)]


class Position(NamedTuple):
    """The end of a partition's log at the target. `is_stable`: no transaction of the source is open there."""

    end: int
    is_stable: bool = True


class Outcome(NamedTuple):
    """The end of a partition after an append, None if it has to be asked for. `error` may pass; `damage` of the source's log ends at a
    batch that cannot be copied; `failure` ends the mirroring of the topic."""

    end: int | None = None
    error: KafkaError | None = None
    failure: CloneError | None = None
    damage: str | None = None
    is_graduated: bool = False


def found_or_created(client: Client, topic: MirroredTopic, settings: Mapping[str, str], replication_factor: int) -> TopicInfo | None:
    """Returns the target's topic of this name, or None after creating it. Another mirror may create it at the same time. Raises
    `CloneError` if the target's topic has more partitions than the source's, and `ClientError`."""
    deadline = time.monotonic() + CREATION_SECONDS_MAX
    while True:
        try:
            found = client.describe_topic(topic.name)
            break
        except UnknownTopicError:
            pass
        try:
            client.create_topic(topic.name, partitions=topic.partition_count, replication_factor=replication_factor, configs=settings)
            return None
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or time.monotonic() >= deadline:
                raise
            time.sleep(POLL_SECONDS)
    if len(found.partitions) > topic.partition_count:
        raise CloneError(f"{topic.name!r} has more partitions at the target ({len(found.partitions)}) than at the source")
    return found


class Target(Protocol):
    """A target cluster."""

    isolation: str
    """The isolation level for reads of the source."""
    is_exact: bool
    """Whether the target appends the source's batches as they are, and checks their checksums."""
    omitted_settings: frozenset[str]
    """Settings of the source that the target's topics do not get."""

    def prepare(self, topic: MirroredTopic, settings: Mapping[str, str], leader_epoch: int) -> None:
        """Creates the topic, or checks that an existing one may be continued. Sets the state of a topic that an earlier run has made
        writable (graduated). `leader_epoch` is the largest one of the source's partitions. Raises `CloneError` if the target has another
        topic of this name, and `ClientError`.
        """

    def positions(
        self, topics: Mapping[str, MirroredTopic], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position | KafkaError]:
        """Returns where each partition ends. Raises `ClientError`."""

    def append(self, topics: Mapping[str, MirroredTopic], fetched: Sequence[Fetched]) -> dict[TopicPartition, Outcome]:
        """Appends the batches that were read, which begin at the end of each partition. Raises `ClientError`."""

    def restart(self, topic: MirroredTopic, partition: TopicPartition, end: int, start: int) -> Outcome:
        """Continues at `start`, behind the partition's end, because the source has deleted the records up to there."""

    def raise_epoch(self, topic: MirroredTopic, leader_epoch: int) -> None:
        """Makes the topic's leader epochs larger than this leader epoch of the source, if the target supports that. Raises `ClientError`.
        """

    def is_graduated(self, topic: MirroredTopic) -> bool:
        """Whether the topic was made writable for all clients. Raises `ClientError`."""

    def graduate(self, topic: MirroredTopic) -> None:
        """Makes the topic writable for all clients. Raises `ClientError`."""
