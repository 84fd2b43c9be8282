"""The table of split arrays: the named fields exist, and every array of a request is in the table or in the list of arrays that are not
split."""

from __future__ import annotations

import pytest

from ottla.handlers.served_apis import TABLE
from ottla.server.execution.splitting import ITEMS, Items, items_of
from ottla.wire.framing import load
from ottla.wire.schema import Field, Struct

WHOLE = {
    # Not split, because sessions, waits and byte limits apply to the whole request.
    "Fetch", "ShareFetch", "ShareAcknowledge",
    # Not split, because the request of one member, transaction or set of topics is decided in one step.
    "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat", "CreateTopics",
    "UpdateFeatures",
    # Not split: filters, and APIs with answers that are grouped differently from the request.
    "ListGroups", "ListTransactions", "ListConfigResources", "DescribeClientQuotas", "DescribeLogDirs", "AlterReplicaLogDirs",
    "DescribeTopicPartitions",
    # Not split: the number of elements is limited, and the changes of one user in two arrays belong together.
    "AlterUserScramCredentials",
    # Not split: one token with its renewers, and a filter.
    "CreateDelegationToken", "DescribeDelegationToken",
    # Not split, because the whole request is refused.
    "AddRaftVoter",
    # Not split, because only brokers send them.
    "LeaderAndIsr", "StopReplica", "UpdateMetadata", "AlterPartition",
}  # fmt: skip


def array(cls: type[Struct], name: str) -> Field:
    (field,) = [field for field in cls.__fields__ if field.name == name]
    assert field.kind == "array"
    return field


def check(request: type[Struct], response: type[Struct], items: Items) -> None:
    asked, answered = array(request, items.request), array(response, items.response)
    element = answered.struct
    known = {field.name for field in element.__fields__}
    assert known >= set(items.response_names), element
    if isinstance(asked.of, Field):
        assert not items.names and items.inner is None
        return
    assert {field.name for field in asked.struct.__fields__} >= set(items.names)
    if items.inner is not None:
        check(asked.struct, element, items.inner)


@pytest.mark.parametrize("key", ITEMS)
def test_the_fields_exist(key: int) -> None:
    for line in ITEMS[key]:
        check(*load(key), line)


def test_every_array_is_cut_or_known_to_be_whole() -> None:
    """The arrays of a new API must be added to the table or to the list."""
    for api in TABLE.values():
        request = load(api.key)[0]
        has_array = any(field.kind == "array" and field.is_in(api.max_version) for field in request.__fields__)
        if has_array and not api.is_extension:
            assert (items_of(api.key, api.max_version) is None) == (api.name in WHOLE), api.name
