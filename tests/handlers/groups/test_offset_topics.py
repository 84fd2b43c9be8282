"""A topic of which only some of the requested partitions exist appears once in the answer."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.groups.offset_topics import joined
from ottla.wire.messages.offset_commit import OffsetCommitResponsePartition, OffsetCommitResponseTopic


def topic(name: str, *partitions: tuple[int, ErrorCode], topic_id: bytes = bytes(16)) -> OffsetCommitResponseTopic:
    results = [OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in partitions]
    return OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=results)


def test_a_divided_topic_is_joined_in_the_place_of_its_first_part() -> None:
    good, bad = (0, ErrorCode.NONE), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert joined([topic("a", good), topic("b", good), topic("a", bad)]) == [topic("a", good, bad), topic("b", good)]


def test_topics_that_are_named_by_id_are_distinct() -> None:
    one, other = topic("", (0, ErrorCode.NONE), topic_id=b"1" * 16), topic("", (0, ErrorCode.NONE), topic_id=b"2" * 16)
    assert joined([one, other]) == [one, other]
