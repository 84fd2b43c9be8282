"""Large messages are freed a bounded number of objects at a time, and lists that a handler has kept are not emptied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.server.execution.disposal import INNER_MAX, dispose
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

STEP_MAX = 500 * (1 + INNER_MAX)
counts = {"alive": 0}


class Counted(OffsetFetchRequestTopics):
    """A topic that is counted while it exists."""

    def __del__(self) -> None:
        counts["alive"] -= 1


def counted(name: str) -> Counted:
    counts["alive"] += 1
    return Counted(name=name)


def alive() -> int:
    return counts["alive"]


def request(groups: int, topics: int) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=[counted(str(number)) for number in range(topics)]) for _ in range(groups)
        ]
    )


def most_freed_at_once(steps: Iterator[None]) -> int:
    most, before = 0, alive()
    for _ in steps:
        most, before = max(most, before - alive()), alive()
    return max(most, before - alive())


@pytest.mark.parametrize(("groups", "topics"), [(1, 40_000), (2, 20_000), (3000, 10), (400, 100), (1, 1)])
def test_few_objects_are_freed_in_a_step(groups: int, topics: int) -> None:
    steps = dispose(request(groups, topics))
    assert alive() == groups * topics
    assert most_freed_at_once(steps) <= STEP_MAX
    assert alive() == 0


def test_a_list_that_a_handler_has_kept_stays_whole() -> None:
    body = request(2, 1000)
    kept = body.groups[1].topics
    steps = dispose(body)
    del body
    for _ in steps:
        pass
    assert len(kept) == alive() == 1000


def test_long_lists_at_the_third_level() -> None:
    """A marker has few topics, and one of the topics has many partitions."""
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=list(range(9000))), WritableTxnMarkerTopic(name="u")]
    body = WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=topics)])
    del topics
    steps = dispose(body)
    del body
    assert len(list(steps)) >= 9000 // 500
