"""One operation is a conversation for the core and for shells that await, and a call for a shell that waits."""

from __future__ import annotations

import asyncio

from ottla.client import aio
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.admin import describe_cluster
from ottla.client.core.operation import Operation
from ottla.wire.messages.describe_cluster import DescribeClusterResponse
from tests.client.fake_broker import FakeBroker

DESCRIBE_CLUSTER = 60


def test_an_operation_runs_in_each_shell() -> None:
    with FakeBroker({DESCRIBE_CLUSTER: lambda _body, _version: DescribeClusterResponse(cluster_id="fake")}) as broker:
        with Cluster(broker.address) as cluster:
            assert describe_cluster(cluster).cluster_id == "fake"
            assert cluster.run(describe_cluster(cluster.core)).cluster_id == "fake"

        async def ask() -> str:
            async with await aio.connect(broker.address) as client:
                return str((await client.run(describe_cluster)).cluster_id)

        assert asyncio.run(ask()) == "fake"


def test_an_operation_has_the_name_and_the_text_of_its_conversation() -> None:
    assert isinstance(describe_cluster, Operation)
    assert describe_cluster.__name__ == "describe_cluster" and "a broker's view of the cluster" in (describe_cluster.__doc__ or "")
