"""Share coordinators in a whole broker: creation of the topic at first use, states after a restart, pruning of the log, deleted topics,
metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.base.types import SHARE_GROUP_STATE_TOPIC
from ottla.server.app import BrokerServer
from tests.server.conftest import MakeServer, config_for, serving
from tests.server.monitoring.test_metrics import create, metrics_of, value

SETTINGS = (
    "share.coordinator.state.topic.num.partitions=1",
    "share.coordinator.snapshot.update.records.per.snapshot=2",
    "share.coordinator.state.topic.prune.interval.ms=20",
    "share.coordinator.cold.partition.snapshot.interval.ms=50",
)


def key_of(server: BrokerServer, topic: str, group: str = "g") -> SharePartitionKey:
    found = server.node.metadata.topic(topic)
    assert found is not None
    return SharePartitionKey(group, found.topic_id, 0)


def ask(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> Any:
    """Returns the persister's answer."""
    answer: asyncio.Future[Any] = loop.create_future()
    call(*arguments, lambda *results: answer.set_result(results if len(results) > 1 else results[0]))
    return loop.run_until_complete(asyncio.wait_for(answer, 10))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def acknowledge(server: BrokerServer, loop: asyncio.AbstractEventLoop, key: SharePartitionKey, offset: int) -> None:
    state = ShareState(1, 0, 0, offset + 1, (StateBatch(offset, offset, 2, 1),))
    assert ask(loop, server.node.share_persister.write, key, state) is ErrorCode.NONE


def test_what_is_remembered_outlives_the_broker(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    config = config_for(tmp_path, *SETTINGS)
    with serving(loop, config) as server:
        create(server, "orders")
        key = key_of(server, "orders")
        assert server.node.metadata.topic(SHARE_GROUP_STATE_TOPIC) is None
        assert ask(loop, server.node.share_persister.initialize, key, 1, 0) is ErrorCode.NONE
        for offset in range(9):
            acknowledge(server, loop, key, offset)
        partition = server.node.partitions.get(SHARE_GROUP_STATE_TOPIC, 0)
        assert partition is not None
        loop.run_until_complete(until(lambda: partition.log.log_start_offset > 5))
        assert value(metrics_of(server).render(), "kafka_server_share_coordinator_metrics_write_total") >= 10
    with serving(loop, config) as again:
        expected = ShareState(1, 1, 0, 9, (StateBatch(0, 8, 2, 1),))
        assert ask(loop, again.node.share_persister.read, key, 1) == (ErrorCode.NONE, expected)
        assert ask(loop, again.node.share_persister.read, key, 0) == (ErrorCode.FENCED_LEADER_EPOCH, None)


def test_a_deleted_topic_is_forgotten(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server(*SETTINGS)
    for topic in ("orders", "payments"):
        create(server, topic)
    gone, kept = key_of(server, "orders"), key_of(server, "payments")
    for key in (gone, kept):
        assert ask(loop, server.node.share_persister.initialize, key, 1, 0) is ErrorCode.NONE
    errors: list[ErrorCode] = []
    server.node.controller.delete_topics(["orders"], lambda results: errors.extend(result.error for result in results))
    loop.run_until_complete(until(lambda: bool(errors)))
    [host] = server.node.share_states.all_hosts()
    loop.run_until_complete(until(lambda: gone not in host.machine.shard.partitions))
    assert list(host.machine.shard.partitions) == [kept]
    assert ask(loop, server.node.share_persister.write, gone, ShareState(1, 0, 0, 0)) is ErrorCode.INVALID_REQUEST
    assert ask(loop, server.node.share_persister.delete, gone) is ErrorCode.NONE


def test_a_stop_answers_waiting_requests(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    codes: list[ErrorCode] = []
    with serving(loop, config_for(tmp_path, "ottla.flush.on.ack=true", *SETTINGS)) as server:
        create(server, "orders")
        for _ in range(3):
            server.node.share_persister.initialize(key_of(server, "orders"), 1, 0, codes.append)
    assert len(codes) == 3
    server.node.share_persister.delete(SharePartitionKey("g", bytes(16), 0), codes.append)
    assert codes[-1] is ErrorCode.NOT_COORDINATOR
