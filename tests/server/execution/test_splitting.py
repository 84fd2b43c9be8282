"""Requests are cut into pieces: together the pieces equal the request, a repeated name is requested once, and the answers are joined
again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.server.execution.splitting import ELEMENTS_PER_STEP, Items, cut, gather, has_many_items, item_count, items_of, joined, refuse
from ottla.wire.messages import create_acls, describe_configs, offset_fetch
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LIST_OFFSETS, OFFSET_FETCH, DESCRIBE_GROUPS, CREATE_ACLS, DESCRIBE_CONFIGS = 2, 9, 15, 30, 32
Shape = list[tuple[str, list[tuple[str, list[int]]]]]
indexes = st.lists(st.integers(0, 3), max_size=6)
shapes = st.lists(st.tuples(st.sampled_from("gh"), st.lists(st.tuples(st.sampled_from("tuv"), indexes), max_size=4)), max_size=5)


def items(key: int, version: int, at_once: int = 3) -> Items:
    found = items_of(key, version)
    assert found is not None
    return found._replace(at_once=at_once)


def run(steps: Iterator[Any]) -> None:
    for _ in steps:
        pass


def fetch_request(shape: Shape) -> offset_fetch.OffsetFetchRequest:
    groups = [
        offset_fetch.OffsetFetchRequestGroup(
            group_id=group,
            topics=[offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=list(found)) for topic, found in topics],
        )
        for group, topics in shape
    ]
    return offset_fetch.OffsetFetchRequest(groups=groups)


def leaves(body: offset_fetch.OffsetFetchRequest) -> list[tuple[str, str, int]]:
    return [
        (group.group_id, topic.name, index) for group in body.groups for topic in group.topics or () for index in topic.partition_indexes
    ]


@given(shapes)
def test_pieces_ask_for_the_same_once_and_are_small(shape: Shape) -> None:
    body, line = fetch_request(shape), items(OFFSET_FETCH, 8)
    asked = leaves(body)
    run(gather(body, line))
    assert sorted(leaves(body)) == sorted(set(asked))
    assert [group.group_id for group in body.groups] == list(dict.fromkeys(group for group, _ in shape))
    pieces = list(cut(body, line))
    assert [leaf for piece, _ in pieces for leaf in leaves(piece)] == leaves(body)
    assert all(item_count(piece, line) <= line.at_once for piece, _ in pieces)
    assert not pieces or pieces[-1][1], "the last piece ends its element"


@given(shapes)
def test_answers_about_one_element_join_again(shape: Shape) -> None:
    body, line = fetch_request(shape), items(OFFSET_FETCH, 8)
    run(gather(body, line))
    run_of: list[list[Any]] = []
    answered = []
    for piece, is_end in cut(body, line):
        refusal = refuse(offset_fetch.OffsetFetchResponse, piece, line, ErrorCode.POLICY_VIOLATION, "")
        run_of.append(refusal.groups)
        if is_end:
            answered += finished(joined(run_of, line))
            run_of = []
    found = [
        (group.group_id, topic.name, partition.partition_index)
        for group in answered
        for topic in group.topics
        for partition in topic.partitions
    ]
    assert found == leaves(body)
    assert [group.group_id for group in answered] == [group.group_id for group in body.groups]


def finished(steps: Any) -> list[Any]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return list(end.value)


def test_a_group_named_twice_is_described_once() -> None:
    body = DescribeGroupsRequest(groups=["a", "b", "a", "a"])
    run(gather(body, items(DESCRIBE_GROUPS, 5)))
    assert body.groups == ["a", "b"]


def test_where_naming_twice_is_an_error_two_are_left_for_the_handler() -> None:
    """ListOffsets refuses a partition that is named twice, also in two entries of its topic."""
    partition = ListOffsetsPartition(partition_index=1)
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition] * 3) for _ in range(5)])
    run(gather(body, items(LIST_OFFSETS, 7)))
    assert [topic.name for topic in body.topics] == ["t"]
    assert len(body.topics[0].partitions) == 2


def test_settings_asked_for_twice_are_those_of_both() -> None:
    def wanted(*keys: str) -> describe_configs.DescribeConfigsResource:
        return describe_configs.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=list(keys) or None)

    def gathered(*resources: describe_configs.DescribeConfigsResource) -> list[list[str] | None]:
        body = describe_configs.DescribeConfigsRequest(resources=list(resources))
        run(gather(body, items(DESCRIBE_CONFIGS, 4)))
        return [resource.configuration_keys for resource in body.resources]

    assert gathered(wanted("a"), wanted("b", "a")) == [["a", "b"]]
    assert gathered(wanted("a"), wanted()) == [None]


def test_a_refusal_names_every_element() -> None:
    body = DescribeGroupsRequest(groups=["a", "b"])
    answer = refuse(DescribeGroupsResponse, body, items(DESCRIBE_GROUPS, 6), ErrorCode.POLICY_VIOLATION, "too much")
    assert [(group.group_id, group.error_code, group.error_message) for group in answer.groups] == [
        ("a", ErrorCode.POLICY_VIOLATION, "too much"),
        ("b", ErrorCode.POLICY_VIOLATION, "too much"),
    ]


def test_the_names_in_many_elements_are_brought_together_in_steps() -> None:
    """Formerly only the outer array was handled in steps, and all elements inside one of its elements in a single step."""
    groups = 20 * ELEMENTS_PER_STEP
    body = fetch_request([(f"g{number}", [("t", [1])]) for number in range(groups)])
    assert len(list(gather(body, items(OFFSET_FETCH, 8)))) >= 2 * groups // ELEMENTS_PER_STEP


def test_short_lists_in_short_lists_are_brought_together_in_steps() -> None:
    """Formerly a hundred groups of two hundred topics of twenty partitions were handled in one step, because none of the lists is long."""
    topics = [offset_fetch.OffsetFetchRequestTopics(name=f"t{number}", partition_indexes=list(range(20))) for number in range(50)]
    groups = [offset_fetch.OffsetFetchRequestGroup(group_id=f"g{number}", topics=topics) for number in range(20)]
    body = offset_fetch.OffsetFetchRequest(groups=groups)
    assert len(list(gather(body, items(OFFSET_FETCH, 8)))) >= 20 * 50 * 20 // ELEMENTS_PER_STEP // 2


def test_what_is_repeated_is_not_kept_until_the_end() -> None:
    body = DescribeGroupsRequest(groups=["a"] * (3 * ELEMENTS_PER_STEP))
    given_list = body.groups
    steps = gather(body, items(DESCRIBE_GROUPS, 5))
    next(steps)
    assert given_list.count("a") == 2 * ELEMENTS_PER_STEP


class CountedList(list[Any]):
    """A list that counts how often an element of it is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        for element in super().__iter__():
            self.looks += 1
            yield element


def test_a_request_is_not_counted_further_than_to_know_that_it_is_large() -> None:
    body = fetch_request([("g", [(f"t{number}", [1]) for number in range(1000)])])
    topics = CountedList(body.groups[0].topics)
    body.groups[0].topics = topics
    assert has_many_items(body, items(OFFSET_FETCH, 8)) and topics.looks == 2


def test_a_refusal_of_elements_without_names_has_their_number() -> None:
    body = create_acls.CreateAclsRequest(creations=[object()] * 3)
    refusal = refuse(create_acls.CreateAclsResponse, body, items(CREATE_ACLS, 3), ErrorCode.POLICY_VIOLATION, "too much")
    assert [(result.error_code, result.error_message) for result in refusal.results] == [(ErrorCode.POLICY_VIOLATION, "too much")] * 3
