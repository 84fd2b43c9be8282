"""The table of items: it names fields that there are, and every array of a request is in it or known to be answered as a whole."""

from __future__ import annotations

import pytest

from ottla.handlers.served_apis import TABLE
from ottla.server.execution.splitting import ITEMS, Items, items_of
from ottla.wire.framing import load
from ottla.wire.schema import Field, Struct

WHOLE = {
    # Sessions, waiting and byte limits are those of a request as a whole.
    "Fetch", "ShareFetch", "ShareAcknowledge",
    # What one member, transaction or set of topics asks for is decided at once.
    "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat", "CreateTopics",
    "UpdateFeatures",
    # Filters, and answers that are grouped in another way than the request.
    "ListGroups", "ListTransactions", "ListConfigResources", "DescribeClientQuotas", "DescribeLogDirs", "AlterReplicaLogDirs",
    "DescribeTopicPartitions",
    # Bounded in number; two arrays whose changes of one user are one.
    "AlterUserScramCredentials",
    # One token with its renewers; a filter.
    "CreateDelegationToken", "DescribeDelegationToken",
    # Refused as a whole.
    "AddRaftVoter",
    # Only from brokers.
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
    """An API that is new must be put on one of the two sides."""
    for api in TABLE.values():
        request = load(api.key)[0]
        has_array = any(field.kind == "array" and field.is_in(api.max_version) for field in request.__fields__)
        if has_array and not api.is_extension:
            assert (items_of(api.key, api.max_version) is None) == (api.name in WHOLE), api.name
