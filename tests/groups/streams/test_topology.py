"""The topics of a topology: partition counts of internal topics, and topics that are missing or do not fit."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.groups.streams.topology import (
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    Configured,
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
    check_topology,
    configure,
)

COUNT = Topology(
    0,
    (
        Subtopology("0", sources=("lines",), repartition_sinks=("words",)),
        Subtopology("1", repartition_sources=(InternalTopic("words"),), changelogs=(InternalTopic("totals"),)),
    ),
)


def configured(topology: Topology, **counts: int) -> Configured:
    return configure(topology, lambda name: counts.get(name, 0))


def join(*repartition: InternalTopic, sources: tuple[str, ...] = (), changelogs: tuple[InternalTopic, ...] = ()) -> Topology:
    """Returns a topology with one copartition group: the topics `sources`, and repartition topics that are written from "wide"."""
    group = CopartitionGroup(tuple(range(len(sources))), (), tuple(range(len(repartition))))
    joined = Subtopology("1", sources, (), changelogs, (), repartition, (group,))
    return Topology(0, (Subtopology("0", ("wide",), repartition_sinks=tuple(topic.name for topic in repartition)), joined))


def broken(sources: tuple[int, ...], repartition: tuple[int, ...]) -> Subtopology:
    return Subtopology("0", ("s",), copartition_groups=(CopartitionGroup(sources, (), repartition),))


def test_a_word_count() -> None:
    found = configured(COUNT, lines=4)
    assert (found.status, found.detail) == (MISSING_INTERNAL_TOPICS, "Internal topics are missing: totals, words")
    assert found.missing == (InternalTopic("totals", 4), InternalTopic("words", 4)) and not found.is_ready
    ready = configured(COUNT, lines=4, words=4, totals=4)
    assert ready.is_ready and ready.tasks == {"0": 4, "1": 4} and ready.topology.stateful() == {"1"}


def test_missing_source_topics() -> None:
    found = configured(COUNT, words=4)
    assert (found.status, found.detail, found.missing) == (MISSING_SOURCE_TOPICS, "Source topics lines are missing.", ())


def test_a_topic_that_exists_with_another_count() -> None:
    found = configured(COUNT, lines=4, words=3)
    detail = "Existing topic words has different number of partitions: expected 4, found 3"
    assert (found.status, found.detail) == (INCORRECTLY_PARTITIONED_TOPICS, detail)
    assert configured(COUNT, lines=4, words=4, totals=5).status == INCORRECTLY_PARTITIONED_TOPICS


def test_a_join_gives_its_repartition_topics_the_partitions_of_its_source() -> None:
    found = configured(join(InternalTopic("r"), sources=("s",), changelogs=(InternalTopic("c"),)), wide=9, s=3)
    assert found.missing == (InternalTopic("c", 3), InternalTopic("r", 3)) and found.tasks == {"0": 9, "1": 3}


def test_a_status_names_at_most_a_hundred_topics() -> None:
    names = [f"s{number:03d}" for number in range(150)]
    found = configured(join(sources=tuple(names)), wide=1, **{name: 2 + (name == "s000") for name in names})
    assert found.detail.endswith("s099=2 and 50 more}]") and "s100" not in found.detail


def test_joined_sources_must_have_equal_counts() -> None:
    found = configured(join(sources=("s", "t")), wide=1, s=3, t=2)
    detail = "Following topics do not have the same number of partitions: [{s=3, t=2}]"
    assert (found.status, found.detail) == (INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_fixed_counts_of_repartition_topics() -> None:
    assert configured(join(InternalTopic("q", 5), InternalTopic("r")), wide=9).missing == (InternalTopic("q", 5), InternalTopic("r", 5))
    assert configured(join(InternalTopic("q", 5), InternalTopic("r", 4)), wide=9).status == INCORRECTLY_PARTITIONED_TOPICS
    found = configured(join(InternalTopic("r", 5), sources=("s",)), wide=9, s=4)
    detail = "Number of partitions [5] of repartition topic [r] doesn't match number of partitions [4] of the source topic."
    assert (found.status, found.detail) == (INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_joined_repartition_topics_get_the_largest_count() -> None:
    group = CopartitionGroup((), (), (0, 1))
    topology = Topology(
        0,
        (
            Subtopology("0", ("a",), repartition_sinks=("q",)),
            Subtopology("1", ("b",), repartition_sinks=("r",)),
            Subtopology("2", repartition_sources=(InternalTopic("q"), InternalTopic("r")), copartition_groups=(group,)),
        ),
    )
    assert configured(topology, a=2, b=7).missing == (InternalTopic("q", 7), InternalTopic("r", 7))


def test_a_chain_of_repartition_topics() -> None:
    topology = Topology(
        0,
        (
            Subtopology("0", repartition_sources=(InternalTopic("second"),)),
            Subtopology("1", repartition_sources=(InternalTopic("first"),), repartition_sinks=("second",)),
            Subtopology("2", sources=("s",), repartition_sinks=("first",)),
        ),
    )
    assert configured(topology, s=6).missing == (InternalTopic("first", 6), InternalTopic("second", 6))


@pytest.mark.parametrize("sinks", [(), ("r",)])
def test_counts_that_cannot_be_decided(sinks: tuple[str, ...]) -> None:
    topology = Topology(0, (Subtopology("0", repartition_sources=(InternalTopic("r"),), repartition_sinks=sinks),))
    with pytest.raises(ApiError) as refusal:
        configured(topology)
    assert refusal.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize(
    ("topology", "code"),
    [
        (Topology(-1, COUNT.subtopologies), ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH),
        (Topology(0, (*COUNT.subtopologies, COUNT.subtopologies[0])), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (Topology(0, (Subtopology("0"),)), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (Topology(0, (Subtopology("0", ("s",), ("s.*",)),)), ErrorCode.INVALID_REQUEST),
        (Topology(0, (Subtopology("0", ("s",), changelogs=(InternalTopic("c", 2),)),)), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (Topology(0, (broken((1,), ()),)), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (Topology(0, (broken((0,), (-1,)),)), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (Topology(0, (Subtopology("0", ("s" * 249,) * 2),)), ErrorCode.STREAMS_INVALID_TOPOLOGY),
    ],
)  # fmt: skip
def test_a_topology_that_is_refused(topology: Topology, code: ErrorCode) -> None:
    check_topology(COUNT, 10_000)
    with pytest.raises(ApiError) as refusal:
        check_topology(topology, 500)
    assert refusal.value.code is code
