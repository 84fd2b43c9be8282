"""librdkafka is a member of a group of the new protocol (KIP-848), and answers with its new epoch are lost (KIP-1251)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing.broker import Broker

SECONDS_MAX = 60.0
LOST = 40
"""Answers that are lost, some milliseconds apart: more than the test waits for."""


@pytest.fixture
def own() -> Iterator[Broker]:
    heartbeats = {"group.consumer.min.heartbeat.interval.ms": 100, "group.consumer.heartbeat.interval.ms": 200}
    with Broker(topics=["orders:4"], settings=heartbeats) as broker:
        yield broker


def test_kip_1251_a_member_commits_before_it_has_learned_its_new_epoch(own: Broker) -> None:
    """The member has given up its revoked partitions, so the coordinator has raised its epoch; the answer is lost. The member still commits
    for the partitions that it keeps.
    """
    reconnecting = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}
    options = {**reconnecting, "group_id": "readers", "group_protocol": "consumer", "enable_auto_commit": False}
    given_up: list[int] = []

    def give_up(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        given_up.extend(one.partition for one in partitions)
        own.lose_answer("ConsumerGroupHeartbeat", times=LOST)

    def poll_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline
            for member in members:
                member.poll(0.02)

    first = own.consumer(client="confluent-kafka", **options)
    second = Consumer({"bootstrap.servers": own.direct_server, "group.id": "readers", "group.protocol": "consumer"})  # without faults
    members = [first]
    with closing(first), closing(second):
        first.subscribe(["orders"], on_revoke=give_up)
        poll_until(lambda: len(first.assignment()) == 4)
        second.subscribe(["orders"])
        members.append(second)
        poll_until(lambda: len(second.assignment()) == 2)  # so the coordinator knows which partitions the first member has given up
        kept = first.assignment()
        assert len(given_up) == len(kept) == 2
        for offset in range(3):
            committed = first.commit(offsets=[TopicPartition("orders", kept[0].partition, offset)], asynchronous=False)
            assert committed[0].error is None
        assert own._faults()._faults, "answers were lost until now"
        own.end_faults()
