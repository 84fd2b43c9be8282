"""Every API with as many things named as fit: one name repeated, all names different. The broker answers or closes, and serves others.

What each does to others' times is a figure of `tools/bench/attacks.py`, which sends a mebibyte of each.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.errors import ErrorCode
from ottla.requests.apis import TABLE
from ottla.wire.framing import load
from ottla.wire.messages import describe_configs, describe_groups, join_group, list_offsets
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_requests import World
from tests.clients.wire_client import WireClient
from tests.hostile.large_bodies import DIFFERENT, REPEATED, array_paths, filled

Connect = Callable[[], WireClient]
BODY_BYTES = 12_000
CLIENT_APIS = [api for api in TABLE.values() if not api.is_extension and array_paths(load(api.key)[0], api.max_version)]
MIB = 1 << 20


@pytest.mark.parametrize("key", [api.key for api in CLIENT_APIS], ids=[api.name for api in CLIENT_APIS])
def test_many_things_named(attacked: BrokerProcess, connect: Connect, honest: World, key: int) -> None:
    version = TABLE[key].max_version
    sample = honest.request(key, version)
    for path in array_paths(type(sample), version):
        if len(path) == 1:
            for kind in (REPEATED, DIFFERENT):
                body = filled(sample, version, path, kind, BODY_BYTES)
                client = connect()
                client.send(client.frame(body, version))
                client.receive()
                client.socket.close()
    assert attacked.is_running


def test_a_large_group_described_a_thousand_times(attacked: BrokerProcess, connect: Connect, honest: World) -> None:
    """Its answer was a thousand times as large as the group."""
    client = connect()
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(100_000))
    joining = join_group.JoinGroupRequest(
        group_id="large", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type="consumer", protocols=[protocol]
    )
    assert client.ask(joining, 3).error_code == 0
    answer = client.ask(describe_groups.DescribeGroupsRequest(groups=["large"] * 1000), 5)
    assert [group.group_id for group in answer.groups] == ["large"]


def test_settings_of_more_groups_than_an_answer_may_be_about(attacked: BrokerProcess, connect: Connect, honest: World) -> None:
    """The answer was as large as the client asked for, ten times as large while it was made."""
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
    """Each entry was looked up by itself; it is refused as it is within one entry."""
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=1)
    request = list_offsets.ListOffsetsRequest(
        topics=[list_offsets.ListOffsetsTopic(name=honest.topic, partitions=[partition]) for _ in range(2000)]
    )
    answer = connect().ask(request, 7)
    assert [topic.name for topic in answer.topics] == [honest.topic]
    assert {found.error_code for found in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}
