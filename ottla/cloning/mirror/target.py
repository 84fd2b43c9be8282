"""The target of a mirror, as the mirror sees it, and the topics that it mirrors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ottla.base.types import TopicPartition
from ottla.client.core.fetching import Fetched
from ottla.client.errors import KafkaError
from ottla.cloning.plan import CloneError

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
    """The end of a partition after an append, None if it has to be asked for. `error` may pass; `failure` ends the mirroring of the topic.
    """

    end: int | None = None
    error: KafkaError | None = None
    failure: CloneError | None = None
    is_graduated: bool = False


class Target(Protocol):
    """A target cluster."""

    isolation: str
    """The isolation level for reads of the source."""

    def prepare(self, topic: MirroredTopic, settings: Mapping[str, str], leader_epoch: int) -> None:
        """Creates the topic, or checks that it may continue. `leader_epoch` is the largest of the source's partitions. Raises `CloneError`
        if the target has another topic of this name, and `ClientError`."""

    def positions(
        self, topics: Mapping[str, MirroredTopic], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position | KafkaError]:
        """Returns where each partition ends. Raises `ClientError`."""

    def append(self, topics: Mapping[str, MirroredTopic], fetched: Sequence[Fetched]) -> dict[TopicPartition, Outcome]:
        """Appends what was read of each partition from its end on. Raises `ClientError`."""

    def restart(self, topic: MirroredTopic, partition: TopicPartition, end: int, start: int) -> Outcome:
        """Continues at `start`, behind the partition's end, because the source has deleted the records up to there."""

    def is_graduated(self, topic: MirroredTopic) -> bool:
        """Whether somebody has made the topic writable for everyone. Raises `ClientError`."""

    def graduate(self, topic: MirroredTopic) -> None:
        """Makes the topic writable for everyone. Raises `ClientError`."""
