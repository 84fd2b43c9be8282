"""The topology of a streams group, and the topics that it needs.

The members send the topology when they join. A subtopology has one task for each partition of the widest topic that it reads. `configure`
decides the partition counts of the internal topics. A repartition topic has as many partitions as the topics that it is joined with,
otherwise as the topology demands, or as the widest source of the subtopologies that write to it. A changelog topic has one partition for
each task. A missing source topic, or topics with unequal partition counts, keep the group from working; its members get a status until an
operator has corrected the topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode

MISSING_SOURCE_TOPICS = 1
INCORRECTLY_PARTITIONED_TOPICS = 2
MISSING_INTERNAL_TOPICS = 3
SHOWN_TOPICS_MAX = 100
"""Limit of the topic names in the text of a status."""
TOPIC_BYTES = 300
"""Memory of one topic of a topology in addition to its name and settings, in bytes."""


class InternalTopic(NamedTuple):
    """A changelog or repartition topic. 0 partitions: the broker decides; 0 replicas: the broker's default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics of a subtopology that must have equal partition counts, as indices of its source and repartition topics."""

    sources: tuple[int, ...] = ()
    regexes: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    subtopology_id: str
    sources: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def read_topics(self) -> tuple[str, ...]:
        """Returns the topics whose partitions are the input of the tasks."""
        return (*self.sources, *(topic.name for topic in self.repartition_sources))

    def internal_topics(self) -> tuple[InternalTopic, ...]:
        return (*self.repartition_sources, *self.changelogs)


class Topology(NamedTuple):
    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    def topics(self) -> tuple[str, ...]:
        """Returns every topic that the tasks need, sorted and without duplicates."""
        names = {name for part in self.subtopologies for name in part.read_topics()}
        names.update(topic.name for part in self.subtopologies for topic in part.changelogs)
        return tuple(sorted(names))

    def all_topics(self) -> tuple[str, ...]:
        """Returns every topic that the topology names, also the topics that it only writes to."""
        return tuple(sorted({*self.topics(), *(name for part in self.subtopologies for name in part.repartition_sinks)}))

    def reader_of(self, topic: str) -> str | None:
        """Returns the id of the subtopology that reads a topic."""
        return next((part.subtopology_id for part in self.subtopologies if topic in part.read_topics()), None)

    def stateful(self) -> frozenset[str]:
        return frozenset(part.subtopology_id for part in self.subtopologies if part.changelogs)

    def held_bytes(self) -> int:
        internal = [topic for part in self.subtopologies for topic in part.internal_topics()]
        texts = sum([len(key) + len(value) for topic in internal for key, value in topic.configs])
        return sum([TOPIC_BYTES + len(name) for name in self.all_topics()]) + texts


def check_topology(topology: Topology, bytes_max: int) -> None:
    """Checks a topology without regard to the cluster's topics and their names. Raises `ApiError`."""
    if topology.epoch < 0:
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, f"topology epoch {topology.epoch} is negative")
    if topology.held_bytes() > bytes_max:
        raise _invalid(f"the topology takes more than {bytes_max} bytes")
    ids = [part.subtopology_id for part in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise _invalid("two subtopologies have the same id")
    for part in topology.subtopologies:
        _check_subtopology(part)


def _check_subtopology(part: Subtopology) -> None:
    if part.regexes:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")
    if not part.read_topics():
        raise _invalid(f"subtopology {part.subtopology_id} reads no topic")
    for topic in part.changelogs:
        if topic.partitions:
            message = f"Changelog topic {topic.name} must have an undefined partition count, but it is set to {topic.partitions}."
            raise _invalid(message)
    for group in part.copartition_groups:
        wrong = [index for index in group.sources if not 0 <= index < len(part.sources)]
        wrong += [index for index in group.repartition_sources if not 0 <= index < len(part.repartition_sources)]
        if wrong or group.regexes:
            raise _invalid(f"a copartition group of subtopology {part.subtopology_id} refers to a topic that does not exist")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


class Configured(NamedTuple):
    """A topology with the partition counts of the cluster's topics."""

    topology: Topology
    tasks: Mapping[str, int] = {}
    """The number of tasks by subtopology."""
    repartition_counts: Mapping[str, int] = {}
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics to create, with their partition counts."""
    status: int | None = None
    detail: str = ""

    @property
    def is_ready(self) -> bool:
        return self.status is None


class _WrongTopics(Exception):
    """The topics do not fit the topology."""


def configure(topology: Topology, partition_count: Callable[[str], int]) -> Configured:
    """Returns the tasks and the missing internal topics, or a status. `partition_count` returns 0 for a missing topic. Raises
    STREAMS_INVALID_TOPOLOGY if the partitions of a repartition topic cannot be decided.
    """
    absent = sorted({name for part in topology.subtopologies for name in part.sources if not partition_count(name)})
    if absent:
        return Configured(topology, status=MISSING_SOURCE_TOPICS, detail=f"Source topics {_shown(absent)} are missing.")
    counts = _repartition_counts(topology, partition_count)

    def count_of(name: str) -> int:
        return partition_count(name) or counts.get(name, 0)

    try:
        for part in topology.subtopologies:
            for group in part.copartition_groups:
                _enforce_copartitioning(topology, part, group, counts, count_of)
        tasks = {part.subtopology_id: max(map(count_of, part.read_topics())) for part in topology.subtopologies}
        missing = _missing(topology, tasks, counts, partition_count)
    except _WrongTopics as wrong:
        return Configured(topology, status=INCORRECTLY_PARTITIONED_TOPICS, detail=str(wrong))
    if missing:
        names = sorted(topic.name for topic in missing)
        return Configured(topology, tasks, counts, missing, MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_shown(names)}")
    return Configured(topology, tasks, counts)


def _shown(names: list[str]) -> str:
    text = ", ".join(names[:SHOWN_TOPICS_MAX])
    return text if len(names) <= SHOWN_TOPICS_MAX else f"{text} and {len(names) - SHOWN_TOPICS_MAX} more"


def _repartition_counts(topology: Topology, partition_count: Callable[[str], int]) -> dict[str, int]:
    """Returns the partitions of each repartition topic: the number that the topology demands, or the largest number of partitions among
    the sources of its writers. A source may be another repartition topic, so the search repeats until nothing is open.
    """
    sources = {topic.name: topic for part in topology.subtopologies for topic in part.repartition_sources}
    counts = {name: topic.partitions for name, topic in sources.items() if topic.partitions}
    writers: dict[str, list[Subtopology]] = {}
    for part in topology.subtopologies:
        for name in part.repartition_sinks:
            writers.setdefault(name, []).append(part)
    open_names = [name for name in sources if name not in counts]
    if any(name not in writers for name in open_names):
        reason = "because a repartition source topic is never used as a sink topic."
        raise _invalid(f"Failed to compute number of partitions for all repartition topics, {reason}")
    while open_names:
        found: dict[str, int] = {}
        for name in open_names:
            read = [topic for writer in writers[name] for topic in writer.read_topics()]
            if all(topic in counts or topic not in sources for topic in read):
                found[name] = max([counts[topic] if topic in sources else partition_count(topic) for topic in read])
        if not found:
            reason = "There may be loops in the topology that cannot be resolved."
            raise _invalid(f"Failed to compute number of partitions for all repartition topics. {reason}")
        counts.update(found)
        open_names = [name for name in open_names if name not in found]
    return counts


def _enforce_copartitioning(
    topology: Topology, part: Subtopology, group: CopartitionGroup, counts: dict[str, int], count_of: Callable[[str], int]
) -> None:
    """Gives the repartition topics of a copartition group the count of its other topics. Raises `_WrongTopics` if counts differ that the
    broker may not change.
    """
    repartition = [part.repartition_sources[index] for index in group.repartition_sources]
    given = {part.sources[index]: count_of(part.sources[index]) for index in group.sources}
    fixed = {topic.name: topic.partitions for topic in repartition if topic.partitions}
    same = given or fixed
    if len(set(same.values())) > 1:
        text = _shown([f"{name}={same[name]}" for name in sorted(same)])
        raise _WrongTopics(f"Following topics do not have the same number of partitions: [{{{text}}}]")
    if not repartition:
        return
    wanted = next(iter(same.values())) if same else max(counts[topic.name] for topic in repartition)
    for topic in repartition:
        if topic.partitions and topic.partitions != wanted:
            reason = f"doesn't match number of partitions [{wanted}] of the source topic."
            raise _WrongTopics(f"Number of partitions [{topic.partitions}] of repartition topic [{topic.name}] {reason}")
        counts[topic.name] = wanted


def _missing(
    topology: Topology, tasks: Mapping[str, int], counts: Mapping[str, int], partition_count: Callable[[str], int]
) -> tuple[InternalTopic, ...]:
    """Returns the internal topics that do not exist. Raises `_WrongTopics` if an existing topic has another number of partitions."""
    missing: dict[str, InternalTopic] = {}
    for part in topology.subtopologies:
        for topics, wanted_of in ((part.repartition_sources, counts), (part.changelogs, None)):
            for topic in topics:
                wanted = wanted_of[topic.name] if wanted_of is not None else tasks[part.subtopology_id]
                found = partition_count(topic.name)
                if not found:
                    missing[topic.name] = topic._replace(partitions=wanted)
                elif found != wanted:
                    reason = f"expected {wanted}, found {found}"
                    raise _WrongTopics(f"Existing topic {topic.name} has different number of partitions: {reason}")
    return tuple(missing[name] for name in sorted(missing))
