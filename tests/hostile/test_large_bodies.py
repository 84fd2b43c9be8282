"""Requests of every API with as many names as fit, all equal or all different: the broker answers or closes the connection, and serves
other clients. `tools/bench/attacks.py` measures their effect on other clients, with a mebibyte of each.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.served_apis import TABLE
from ottla.wire.framing import load
from ottla.wire.messages import add_partitions_to_txn, describe_configs, describe_groups, join_group, list_offsets
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient
from tests.hostile.large_bodies import large_bodies

Connect = Callable[[], WireClient]
BODY_BYTES = 12_000
NOTHING_TO_FILL = {"ControlledShutdown", "DescribeCluster", "DescribeFrames", "GetTelemetrySubscriptions", "UnregisterBroker"}
"""APIs whose requests have neither an array nor a text."""
MIB = 1 << 20


@pytest.mark.parametrize("key", TABLE, ids=[api.name for api in TABLE.values()])
def test_as_much_as_fits(attacked: BrokerProcess, connect: Connect, honest: World, key: int) -> None:
    """Sends all arrays and texts of the newest version, and of every older version that has different ones. No request causes an unexpected
    error.
    """
    tried: set[str] = set()
    since = len(attacked.log_text())
    for version in reversed(range(TABLE[key].min_version, TABLE[key].max_version + 1)):
        for body in large_bodies(honest.request(key, version), version, BODY_BYTES, MIB):
            if body.name not in tried:
                tried.add(body.name)
                client = connect()
                if TABLE[key].is_extension:
                    client.ask_for_extensions()
                client.send(client.frame(body.request, version))
                client.receive()
                client.socket.close()
    assert attacked.is_running
    attacked.check_log(since)
    assert tried or TABLE[key].name in NOTHING_TO_FILL, "an API that is not attacked"
    assert not (tried and TABLE[key].name in NOTHING_TO_FILL)


def test_a_large_group_described_a_thousand_times(attacked: BrokerProcess, connect: Connect, honest: World) -> None:
    """A group that is named a thousand times in one request is described once. In an earlier version the answer was a thousand times as
    large as the group.
    """
    client = connect()
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(100_000))
    joining = join_group.JoinGroupRequest(
        group_id="large", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type="consumer", protocols=[protocol]
    )
    assert client.ask(joining, 3).error_code == 0
    answer = client.ask(describe_groups.DescribeGroupsRequest(groups=["large"] * 1000), 5)
    assert [group.group_id for group in answer.groups] == ["large"]


def test_settings_of_more_groups_than_an_answer_may_be_about(attacked: BrokerProcess, connect: Connect, honest: World) -> None:
    """The number of groups in one answer is limited. In an earlier version the client chose the size of the answer, and encoding took ten
    times as much memory.
    """
    resources = [
        describe_configs.DescribeConfigsResource(resource_type=32, resource_name=f"group-{number}", configuration_keys=None)
        for number in range(3000)
    ]
    request = describe_configs.DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    before = attacked.rss_bytes()
    answer = connect().ask(request, 4)
    assert {result.error_code for result in answer.results} == {0} and len(answer.results) == 3000
    assert attacked.rss_bytes() - before < 40 * MIB


def test_a_partition_looked_up_in_many_entries_of_its_topic(connect: Connect, honest: World) -> None:
    """A partition that is repeated in several entries of its topic is refused, as a repetition within one entry is. In an earlier version
    each entry was looked up separately.
    """
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=1)
    request = list_offsets.ListOffsetsRequest(
        topics=[list_offsets.ListOffsetsTopic(name=honest.topic, partitions=[partition]) for _ in range(2000)]
    )
    answer = connect().ask(request, 7)
    assert [topic.name for topic in answer.topics] == [honest.topic]
    assert {found.error_code for found in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


def test_a_transaction_of_more_partitions_than_a_request_may_add(connect: Connect, honest: World) -> None:
    """The number of partitions in one request is limited, because they are decided together: a mebibyte of numbers would take half a
    second.
    """
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=honest.topic, partitions=list(range(20_001)))]
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(transactional_id="wide", producer_id=1, topics=topics)
    batched = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])
    assert connect().ask(batched, 5).error_code == ErrorCode.INVALID_REQUEST
    older = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="wide", v3_and_below_producer_id=1, v3_and_below_topics=topics
    )
    client = connect()
    client.send(client.frame(older, 3))
    assert client.receive() is None


@pytest.mark.parametrize(("key", "version"), [(68, 0), (76, 1)])
def test_a_member_that_subscribes_to_too_many_names(connect: Connect, honest: World, key: int, version: int) -> None:
    """The number of names in a subscription is limited. In an earlier version all of them were looked up in one iteration of the event
    loop.
    """
    beat = {"rebalance_timeout_ms": 1000, "topic_partitions": []} if key == 68 else {}
    names = [f"topic-{number}" for number in range(10_001)]
    request = load(key)[0](group_id=f"names-{key}", member_id="m", subscribed_topic_names=names, **beat)
    assert connect().ask(request, version).error_code == ErrorCode.INVALID_REQUEST
