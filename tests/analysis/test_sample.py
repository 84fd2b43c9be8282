"""Looks at a cluster: the lag of every group, with few requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.analysis.sample import Sampler
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.core import group_admin
from ottla.client.core.conversation import Ask, Effect
from ottla.client.core.group_admin import GROUPS_A_REQUEST, committed_offsets, committed_offsets_of
from ottla.testing.broker import Broker

GROUPS = GROUPS_A_REQUEST + 20


class CountingCluster(Cluster):
    """Counts its requests by API key."""

    def __init__(self, address: str) -> None:
        self.asked: list[int] = []
        super().__init__(address)

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Ask):
            self.asked.append(effect.body.API_KEY)
        return super()._perform(effect)


@pytest.fixture(scope="module")
def cluster() -> Iterator[CountingCluster]:
    with Broker(topics=["read:2"]) as broker, CountingCluster(broker.bootstrap_server) as cluster:
        with Producer(cluster) as producer:
            for _ in range(10):
                producer.produce("read", b"x", partition=0)
            producer.flush()
        for number in range(GROUPS):
            group_admin.commit_offsets(cluster, f"group-{number:03}", {TopicPartition("read", 0): number % 10})
        yield cluster


def test_a_look_asks_for_the_offsets_of_many_groups_at_once(cluster: CountingCluster) -> None:
    sampler = Sampler(cluster, groups_max=GROUPS)
    cluster.asked.clear()
    look = sampler.look()
    assert cluster.asked.count(group_admin.OFFSET_FETCH) == 2
    assert len(cluster.asked) < 12, "a look costs a few requests, whatever the number of groups"
    assert {group.name: group.lag for group in look.groups} == {f"group-{number:03}": 10 - number % 10 for number in range(GROUPS)}
    assert sampler.lags["group-003"] == {"read": 7}


def test_the_offsets_of_many_groups_are_those_of_each(cluster: CountingCluster) -> None:
    listed = group_admin.list_groups(cluster)
    assert len(listed) == GROUPS
    found = committed_offsets_of(cluster, [*listed[:3], listed[0]._replace(group_id="unknown")])
    assert found.pop("unknown") == {}
    assert found == {group.group_id: committed_offsets(cluster, group.group_id) for group in listed[:3]}
