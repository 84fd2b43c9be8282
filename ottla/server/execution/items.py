"""The arrays of a request and of its answer: the table by which a large request is cut into pieces.

A line names the array of a request, the array of the answer that has an element for each of its elements, and the fields that both have in
common. `inner` is the same for the arrays in the elements (topics, then partitions). Other requests are answered as a whole: they have no
array, only brokers of the cluster may send them, or their items depend on each other (an assignment, a session).

A thing that a request names more than once is answered once (`ONCE`): the last element counts, as in Kafka, which keeps such requests in
maps. Where a repetition is an error of its own, two elements are kept (`TWICE`), so that the handler refuses them. Where each element
carries data of its own, all are kept (`ALL`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple

from ottla.wire.apis import KEYS


class Repeats(Enum):
    """How many elements of the same name are kept."""

    ONCE = 1
    TWICE = 2
    ALL = 3


class Items(NamedTuple):
    """One array of a request and the one of the answer."""

    request: str
    response: str
    names: tuple[str, ...]
    """The fields that identify a request's element; empty if the element itself does, a string or a number."""
    response_names: tuple[str, ...]
    """The fields that identify an answer's element; empty if only its position does."""
    repeats: Repeats
    inner: Items | None
    at_once: int
    """The number of innermost elements in a piece: a few milliseconds of work."""
    since: int
    is_amplified: bool
    """An element's answer may be many times as large as the element."""
    key: Callable[[Any], Hashable]
    response_key: Callable[[Any], Hashable]


def _items(
    request: str,
    response: str,
    names: str = "",
    response_names: str | None = None,
    inner: Items | None = None,
    *,
    repeats: Repeats = Repeats.ONCE,
    at_once: int = 200,
    since: int = 0,
    is_amplified: bool = False,
    key: Callable[[Any], Hashable] | None = None,
) -> Items:
    asked = tuple(names.split())
    answered = asked if response_names is None else tuple(response_names.split())
    request_key, response_key = (key or (attrgetter(*names) if names else _itself) for names in (asked, answered))
    return Items(request, response, asked, answered, repeats, inner, at_once, since, is_amplified, request_key, response_key)


def _itself(value: Hashable) -> Hashable:
    return value


def _marker(marker: Any) -> Hashable:
    """The identity of a marker, or of the answer about one producer's markers."""
    return marker.producer_id, *[getattr(marker, name, None) for name in ("producer_epoch", "coordinator_epoch", "transaction_result")]


def _entity(entry: Any) -> Hashable:
    """The identity of a quota: kinds and names."""
    return tuple(sorted((part.entity_type, part.entity_name or "", part.entity_name is None) for part in entry.entity))


_ALL, _TWICE = Repeats.ALL, Repeats.TWICE
_PARTITIONS = _items("partitions", "partitions", "partition_index")
_INDEXES = _items("partition_indexes", "partitions", "", "partition_index")
_DATA = _items("partitions", "partitions", "partition_index", repeats=_ALL)
_RESOURCE = "resource_type resource_name"

ITEMS: dict[int, Sequence[Items]] = {
    KEYS[name]: lines
    for name, lines in {
        "Produce": [
            _items(
                "topic_data", "responses", "name topic_id", None,
                _items("partition_data", "partition_responses", "index", repeats=_ALL), repeats=_ALL, at_once=500,
            )
        ],
        "ListOffsets": [
            _items("topics", "topics", "name", None, _items("partitions", "partitions", "partition_index", repeats=_TWICE), at_once=100)
        ],
        "Metadata": [_items("topics", "topics", "name topic_id", at_once=100)],
        "OffsetCommit": [_items("topics", "topics", "name topic_id", None, _DATA, at_once=500)],
        "OffsetFetch": [
            _items("topics", "topics", "name", None, _INDEXES, at_once=500),
            _items(
                "groups", "groups", "group_id", None,
                _items("topics", "topics", "name topic_id", None, _INDEXES), at_once=100, since=8, is_amplified=True,
            ),
        ],
        "FindCoordinator": [_items("coordinator_keys", "coordinators", "", "key", since=4)],
        "LeaveGroup": [_items("members", "members", "member_id group_instance_id", repeats=_ALL, since=3, at_once=50)],
        "DescribeGroups": [_items("groups", "groups", "", "group_id", at_once=5, is_amplified=True)],
        "DeleteTopics": [
            _items("topic_names", "responses", "", "name", repeats=_TWICE, at_once=100),
            _items("topics", "responses", "name topic_id", repeats=_TWICE, since=6, at_once=100),
        ],
        "DeleteRecords": [_items("topics", "topics", "name", None, _PARTITIONS, at_once=50)],
        "OffsetForLeaderEpoch": [_items("topics", "topics", "topic", None, _items("partitions", "partitions", "partition"))],
        "TxnOffsetCommit": [_items("topics", "topics", "name topic_id", None, _DATA, at_once=500)],
        "CreateAcls": [_items("creations", "results", repeats=_ALL, at_once=500)],  # each piece rewrites the lists of its resources
        "DeleteAcls": [_items("filters", "filter_results", repeats=_ALL, at_once=10, is_amplified=True)],
        "DescribeConfigs": [_items("resources", "results", _RESOURCE, at_once=5, is_amplified=True)],
        "AlterConfigs": [_items("resources", "responses", _RESOURCE, repeats=_TWICE, at_once=5)],
        "IncrementalAlterConfigs": [_items("resources", "responses", _RESOURCE, repeats=_TWICE, at_once=5)],
        "CreatePartitions": [_items("topics", "results", "name", repeats=_TWICE, at_once=50)],
        "DeleteGroups": [_items("groups_names", "results", "", "group_id", at_once=50)],
        "ElectLeaders": [
            _items(
                "topic_partitions", "replica_election_results", "topic", None,
                _items("partitions", "partition_result", "", "partition_id"),
            )
        ],
        "AlterPartitionReassignments": [_items("topics", "responses", "name", None, _DATA)],
        "ListPartitionReassignments": [_items("topics", "topics", "name", None, _INDEXES)],
        "OffsetDelete": [_items("topics", "topics", "name", None, _PARTITIONS, at_once=20)],
        "AlterClientQuotas": [_items("entries", "entries", repeats=_TWICE, key=_entity, at_once=50)],
        "DescribeUserScramCredentials": [_items("users", "results", "name", "user", repeats=_TWICE)],
        "DescribeQuorum": [
            _items("topics", "topics", "topic_name", None, _items("partitions", "partitions", "partition_index"), at_once=500)
        ],
        "WriteTxnMarkers": [
            _items("markers", "markers", "producer_id", None, _items("topics", "topics", "name", None, _INDEXES), key=_marker)
        ],
        **{
            name: [_items("topics", "results", "topic_id", None, _items("partitions", "partitions", "partition"))]
            for name in ("InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState",
                         "ReadShareGroupStateSummary")
        },
        "AddPartitionsToTxn": [
            _items("transactions", "results_by_transaction", "transactional_id", repeats=_ALL, since=4, at_once=5),
        ],
        "DescribeProducers": [_items("topics", "topics", "name", None, _INDEXES, is_amplified=True)],
        "DescribeTransactions": [_items("transactional_ids", "transaction_states", "", "transactional_id", at_once=50, is_amplified=True)],
        "ConsumerGroupDescribe": [_items("group_ids", "groups", "", "group_id", at_once=5, is_amplified=True)],
        "ShareGroupDescribe": [_items("group_ids", "groups", "", "group_id", at_once=5, is_amplified=True)],
        "DescribeShareGroupOffsets": [
            _items(
                "groups", "groups", "group_id", None,
                _items("topics", "topics", "topic_name", None, _items("partitions", "partitions", "", "partition_index")),
                at_once=50, is_amplified=True,
            )
        ],
        "AlterShareGroupOffsets": [_items("topics", "responses", "topic_name", None, _PARTITIONS)],
        "DeleteShareGroupOffsets": [_items("topics", "responses", "topic_name", at_once=50)],
    }.items()
}  # fmt: skip


def items_of(key: int, version: int) -> Items | None:
    """The line for one version of a request; None if it is answered as a whole."""
    found = [line for line in ITEMS.get(key, ()) if line.since <= version]
    return found[-1] if found else None
