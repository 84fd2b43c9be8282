"""Many logs are opened and deleted in time slices: requests meanwhile get a retriable error, and the order of changes is kept."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.control_messages import ReplicaRole
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop import turns
from ottla.base.types import TopicPartition
from ottla.controller.api import NewPartitions, NewTopic, TopicResult
from ottla.replication.partition import Partition
from ottla.server import replica_changes
from ottla.server.app import BrokerServer
from tests.server.conftest import MakeServer
from tests.server.threads import run_until

Answers = list[list[TopicResult]]


@pytest.fixture
def server(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> BrokerServer:
    """A broker whose time slices have a single step."""
    server = make_server()
    monkeypatch.setattr(turns, "PIECE_MS", 0)
    server.begin_turns()
    return server


def opened(server: BrokerServer, topic: str) -> int:
    return len(server.node.partitions.of_topic(topic))


def turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(asyncio.sleep(0))


def until_answered(loop: asyncio.AbstractEventLoop, answers: Answers, count: int = 1) -> None:
    run_until(loop, lambda: len(answers) >= count)


def test_a_creation_is_answered_when_the_last_log_is_there(loop: asyncio.AbstractEventLoop, server: BrokerServer) -> None:
    answers: Answers = []
    server.node.controller.create_topics([NewTopic(name="t", num_partitions=20)], False, answers.append)
    topic = server.node.metadata.topic("t")
    assert topic is not None and len(topic.partitions) == 20, "all or nothing of it is known"
    assert opened(server, "t") < 20 and not answers
    assert server.node.partitions.absence("t", 19) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert server.node.partitions.absence("t", 20) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert server.node.partitions.topic_name(topic.topic_id) == "t"
    seen = {opened(server, "t")}
    while not answers:
        turn(loop)
        seen.add(opened(server, "t"))
    assert len(seen) > 5, "the loop was given to others in between"
    assert opened(server, "t") == 20 and answers[0][0].error is ErrorCode.NONE


def test_what_was_said_first_is_done_first(loop: asyncio.AbstractEventLoop, server: BrokerServer) -> None:
    answers: Answers = []
    server.node.controller.create_topics([NewTopic(name="t", num_partitions=5)], False, answers.append)
    server.node.controller.create_partitions([NewPartitions(name="t", count=9)], False, answers.append)
    server.node.controller.create_topics([NewTopic(name="u", num_partitions=1)], False, answers.append)
    until_answered(loop, answers, 3)
    assert [[result.name for result in results] for results in answers] == [["t"], ["t"], ["u"]]
    assert opened(server, "t") == 9 and opened(server, "u") == 1


def test_a_role_of_an_older_epoch_changes_nothing(
    loop: asyncio.AbstractEventLoop, server: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Another broker has sent the older role, so it must not stop this broker like a broken invariant."""
    answers: Answers = []
    server.node.controller.create_topics([NewTopic(name="t", num_partitions=1)], False, answers.append)
    until_answered(loop, answers)
    topic, partition = server.node.metadata.topic("t"), server.node.partitions.get("t", 0)
    assert topic is not None and partition is not None
    epoch = partition.leader_epoch + 5
    partition.become_leader(leader_epoch=epoch, partition_epoch=9, replicas=partition.isr, isr=partition.isr, now_ms=0)
    state = ReplicaRole(topic="t", topic_id=topic.topic_id, partition=topic.partitions[0])
    server.node.replicas.on_leader_and_isr([state])
    done: list[bool] = []
    server.node.replicas.call_when_settled(lambda: done.append(True))
    run_until(loop, lambda: done)
    assert partition.is_leading and partition.leader_epoch == epoch
    assert "t-0 keeps its role" in caplog.text


def test_a_log_that_the_next_role_opens_counts_as_working_again(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log must also be reported as working. Otherwise its broker would stay outside of the in-sync set."""
    server = make_server()
    partitions, reports = server.node.partitions, list[bool]()
    server.node.replicas.on_replicas = lambda reopened: reports.append(bool(reopened))

    def fail(*_arguments: object, **_options: object) -> Partition:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")

    with monkeypatch.context() as full:
        full.setattr(partitions, "open", fail)
        server.node.create_topics([("t", 1)])
    topic = server.node.metadata.topic("t")
    assert topic is not None and server.node.metadata.offline_here() == [TopicPartition("t", 0)] and reports == [False]
    state = replace(topic.partitions[0], leader_epoch=1, partition_epoch=1, offline_replicas=())
    server.node.replicas.on_leader_and_isr([ReplicaRole(topic="t", topic_id=topic.topic_id, partition=state)])
    partition = partitions.get("t", 0)
    assert partition is not None and partition.is_online
    assert server.node.metadata.offline_here() == [] and reports == [False, True]


@pytest.mark.parametrize("was_open", [True, False])
def test_i15_a_log_in_a_healed_directory_does_not_lead_in_the_epoch_in_which_the_directory_failed(
    make_server: MakeServer, was_open: bool
) -> None:
    """The log may have lost its tail, even if the broker got the role while the directory was offline. It leads again in the controller's
    next epoch."""
    server = make_server()
    node = server.node
    node.create_topics([("t", 1)])
    topic, partition = node.metadata.topic("t"), node.partitions.get("t", 0)
    assert topic is not None and partition is not None
    directory = node.partitions.directory_of(partition)
    node.metadata.is_of_cluster = True
    roles = list[bool]()
    node.replicas.on_replicas = lambda _reopened: roles.append(is_leading())

    def is_leading() -> bool:
        found = node.partitions.get("t", 0)
        return found is not None and found.is_leading

    if not was_open:
        partition.log.close(clean=True)
        node.partitions.drop([partition])
    node._directory_failed(directory, "Input/output error")
    elected = replace(topic.partitions[0], leader_epoch=1, partition_epoch=1)
    node.replicas.on_leader_and_isr([ReplicaRole(topic="t", topic_id=topic.topic_id, partition=elected)])
    node.replicas.reopen(directory)
    again = node.partitions.get("t", 0)
    assert again is not None and again.is_online and not again.is_leading
    node.replicas.on_leader_and_isr([ReplicaRole(topic="t", topic_id=topic.topic_id, partition=elected)])
    assert roles and not any(roles) and not again.is_leading, "a role that is sent again changes nothing"
    following = replace(elected, leader_epoch=2, partition_epoch=2)
    node.replicas.on_leader_and_isr([ReplicaRole(topic="t", topic_id=topic.topic_id, partition=following)])
    assert again.is_leading


def test_i15_a_role_that_waits_while_its_directory_heals_does_not_let_the_replica_lead_again(
    loop: asyncio.AbstractEventLoop, server: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has sent the role before it learned of the failure, so the role names the epoch in which the replica has led."""
    node, answers, is_held, led = server.node, Answers(), [True], list[Partition]()
    node.controller.create_topics([NewTopic(name="t", num_partitions=1)], False, answers.append)
    until_answered(loop, answers)
    topic, partition = node.metadata.topic("t"), node.partitions.get("t", 0)
    assert topic is not None and partition is not None and partition.is_leading
    monkeypatch.setattr(node.metadata, "is_of_cluster", True)
    monkeypatch.setattr(Partition, "become_leader", lambda found, **_role: led.append(found))
    directory = node.partitions.directory_of(partition)
    node._directory_failed(directory, "Input/output error")

    def hold() -> Iterator[None]:
        while is_held:
            yield

    node.replicas.turns.add(hold())
    shrunk = replace(topic.partitions[0], partition_epoch=topic.partitions[0].partition_epoch + 1)
    node.replicas.on_leader_and_isr([ReplicaRole(topic="t", topic_id=topic.topic_id, partition=shrunk)])
    node.replicas.reopen(directory)
    is_held.clear()
    run_until(loop, lambda: node.replicas.turns.is_idle)
    again = node.partitions.get("t", 0)
    assert again is not None and again is not partition and again.is_online and not led


def test_i40_a_broker_whose_session_is_over_leads_nothing_until_it_is_said_again(make_server: MakeServer) -> None:
    """Requests that wait for an acknowledgement of the ended term are refused. The broker leads again in the controller's next epoch."""
    server = make_server()
    server.node.create_topics([("t", 1)])
    partition = server.node.partitions.get("t", 0)
    topic = server.node.metadata.topic("t")
    assert partition is not None and topic is not None and partition.is_leading
    leader = partition.require_leading()
    server.node.replicas.on_session_expired()
    assert leader.is_over and not partition.is_leading and leader.acknowledgement(0, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    again = replace(topic.partitions[0], leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1)
    server.node.replicas.on_leader_and_isr([ReplicaRole(topic="t", topic_id=topic.topic_id, partition=again)])
    assert partition.is_leading


def test_a_deletion_in_the_middle_of_a_creation_leaves_nothing(
    loop: asyncio.AbstractEventLoop, server: BrokerServer, tmp_path: Path
) -> None:
    answers: Answers = []
    server.node.controller.create_topics([NewTopic(name="t", num_partitions=9)], False, answers.append)
    server.node.controller.delete_topics(["t"], answers.append)
    refused: Answers = []
    server.node.controller.create_topics([NewTopic(name="t", num_partitions=1)], False, refused.append)
    until_answered(loop, answers, 2)
    assert opened(server, "t") == 0 and server.node.partitions.absence("t", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused[0][0].error is ErrorCode.TOPIC_ALREADY_EXISTS, "the name is free when the last log has gone"
    assert not [path for path in (tmp_path / "data0").glob("t-*") if not path.name.endswith("-delete")]
    server.node.controller.create_topics([NewTopic(name="t", num_partitions=2)], False, answers.append)
    until_answered(loop, answers, 3)
    assert answers[2][0].error is ErrorCode.NONE and opened(server, "t") == 2


def test_a_stop_finishes_what_was_begun(loop: asyncio.AbstractEventLoop, server: BrokerServer, tmp_path: Path) -> None:
    answers: Answers = []
    server.node.controller.create_topics([NewTopic(name="t", num_partitions=9)], False, answers.append)
    loop.run_until_complete(server.stop())
    assert answers and len(list((tmp_path / "data0").glob("t-*"))) == 9


def test_a_broken_invariant_in_a_timer_stops_the_broker_too(
    loop: asyncio.AbstractEventLoop, server: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[BaseException] = []
    monkeypatch.setattr(server, "stop_at_once", seen.append)

    def broken() -> None:
        raise AssertionError("two leaders")

    server.timers.call_later(0, broken)
    run_until(loop, lambda: seen)
    assert [str(error) for error in seen] == ["two leaders"]


def test_what_is_wanted_from_the_start_is_there_at_the_start(make_server: MakeServer) -> None:
    """`--seed-topic` names more partitions than are written at a time. READY is printed after the last partition was created."""
    server = make_server()
    server.node.create_topics([("a", 600), ("b", 600)])
    assert (opened(server, "a"), opened(server, "b")) == (600, 600)


def test_many_partitions_are_no_work_for_the_collector(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects of opened partitions are frozen. So reference counts must free them, because the garbage collector would not."""
    monkeypatch.setattr(replica_changes, "OPENED_PER_FREEZE", 10)
    server = make_server()
    gc.collect()
    gc.disable()
    frozen = gc.get_freeze_count()
    try:
        server.node.create_topics([("t", 40)])
        assert gc.get_freeze_count() > frozen + 40
        made = id(server.node.partitions.of_topic("t")[0])
        server.node.controller.delete_topics(["t"], lambda results: None)
        gc.unfreeze()
        assert made not in [id(found) for found in gc.get_objects() if isinstance(found, Partition)]
    finally:
        gc.freeze()
        gc.enable()


def test_logs_with_the_same_settings_share_them_until_a_default_changes(loop: asyncio.AbstractEventLoop, server: BrokerServer) -> None:
    answers: Answers = []
    create = server.node.controller.create_topics
    topics = [NewTopic(name="t", num_partitions=3), NewTopic(name="u", num_partitions=1, configs={"retention.ms": "7"})]
    create(topics, False, answers.append)
    until_answered(loop, answers)
    settings = [partition.log.config for partition in server.node.partitions.of_topic("t")]
    assert all(one is settings[0] for one in settings)
    assert [partition.log.config.retention_ms for partition in server.node.partitions.of_topic("u")] == [7]
    server.config.set_dynamic({"log.retention.ms": "1234"}, {})
    create([NewTopic(name="v", num_partitions=1)], False, answers.append)
    until_answered(loop, answers, 2)
    changed = [*server.node.partitions.of_topic("t"), *server.node.partitions.of_topic("v")]
    assert [partition.log.config.retention_ms for partition in changed] == [1234] * 4
