"""The controller as a whole: its start, conditional writes, the end of its mandate, metadata stores that answer late or never, and garbage
in the store."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ottla.base.cluster_metadata import ALL_BROKERS, CONFIG_BROKER, BrokerPut
from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.base.loop.procedure import Procedure
from ottla.base.loop.store_retries import RETRY_MS
from ottla.base.ports import Check, Create, Operation, Outcome, Set, StoreResult
from ottla.base.uuids import uuid_to_text
from ottla.controller.api import (
    ConfigEntry,
    ConfigOperation,
    ConfigRequest,
    ConfigResult,
    ElectionType,
    NewPartitions,
    NewTopic,
    PartitionResult,
    TopicResult,
)
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes
from tests.controller.cluster import Cluster
from tests.fakes.memory_store import MemoryStore


def overwrite(store: MemoryStore, path: str, data: bytes) -> None:
    answers: list[StoreResult] = []
    store.multi([Set(path, data)], lambda outcome: answers.append(outcome.result))
    assert answers == [StoreResult.OK]


def overwrite_or_create(store: MemoryStore, path: str, data: bytes) -> None:
    store.multi([Create(path, data)], lambda _outcome: None)
    overwrite(store, path, data)


def test_a_first_start_lays_the_ground() -> None:
    cluster = Cluster()
    nodes = cluster.store.nodes()
    assert cluster.is_started
    assert set(znodes.BASE_PATHS) <= set(nodes)
    assert json.loads(nodes[znodes.CONTROLLER].data)["brokerid"] == 0
    assert znodes.read_controller_epoch(nodes[znodes.CONTROLLER_EPOCH].data) == 1
    assert nodes[znodes.CONTROLLER].ephemeral_owner
    assert nodes[znodes.broker_path(0)].ephemeral_owner
    assert (cluster.metadata.controller_id, cluster.cache.controller_id) == (0, 0)
    assert cluster.metadata.brokers[0].epoch == nodes[znodes.broker_path(0)].czxid
    assert (cluster.metadata.cluster_id, cluster.cache.cluster_id) == ("test-cluster", "test-cluster")


def test_epochs_rise_with_every_start_and_the_cluster_stays_the_same() -> None:
    """I38, I15."""
    cluster = Cluster()
    cluster.create("a")
    seen = []
    for _ in range(3):
        cluster = Cluster(cluster.store.reopened())
        partition = cluster.metadata.partition("a", 0)
        assert partition is not None
        seen.append((cluster.metadata.controller_epoch, partition.leader_epoch, cluster.metadata.brokers[0].epoch))
        assert [state.partition for state in cluster.replicas.states] == [partition]
    assert seen == sorted(set(seen))
    assert [epochs[:2] for epochs in seen] == [(2, 1), (3, 2), (4, 3)]


def test_a_new_controller_keeps_replicas_eligible_until_their_leader_has_opened_its_log() -> None:
    """`min.insync.replicas` is 1, and the controller's own broker leads. Its log may turn out to be damaged."""
    cluster = Cluster()
    cluster.create("a")
    path = znodes.state_path("a", 0)
    partition = cluster.metadata.partition("a", 0)
    assert partition is not None
    killed = replace(partition, replicas=(0, 1, 2), isr=(0, 1, 2))
    topic = cluster.metadata.topic("a")
    assert topic is not None
    overwrite(cluster.store, znodes.topic_path("a"), znodes.topic_bytes(replace(topic, partitions=(killed,))))
    overwrite(cluster.store, path, znodes.partition_bytes(killed))
    overwrite_or_create(cluster.store, znodes.BROKER_EPOCHS, znodes.broker_epochs_bytes({0: 1, 1: 2, 2: 3}, {}, {}))
    again = Cluster(cluster.store.reopened(), is_clean=True).metadata.partition("a", 0)
    assert again is not None and (again.leader, again.isr, again.eligible) == (0, (0,), (1, 2))


def test_every_write_checks_the_controllers_epoch() -> None:
    """I39, for one write of each kind."""
    cluster = Cluster()
    registered = len(cluster.store.multis)
    cluster.create("a")
    answers: list[object] = []
    entry = ConfigEntry(name="message.max.bytes", operation=ConfigOperation.SET, value="5000")
    request = ConfigRequest(resource_type=CONFIG_BROKER, name=ALL_BROKERS, entries=[entry])
    cluster.loop.alter_configs([request], False, answers.append)
    cluster.delete("a")
    writes = cluster.store.multis[registered:]
    assert len(writes) == 4
    assert all(write[0] == Check(znodes.CONTROLLER_EPOCH, 0) for write in writes)


def test_another_controllers_epoch_ends_the_rule() -> None:
    """I38, I42: nothing is written, and waiting and later requests get NOT_CONTROLLER, until the controller has claimed an epoch above the
    other one."""
    cluster = Cluster()
    overwrite(cluster.store, znodes.CONTROLLER_EPOCH, b"garbage")
    before = cluster.store.nodes()
    assert cluster.create("a")[0].error is ErrorCode.NOT_CONTROLLER
    assert cluster.create("b")[0].error is ErrorCode.NOT_CONTROLLER
    assert not cluster.loop.is_active
    assert cluster.store.nodes() == {path: node for path, node in before.items() if path != znodes.CONTROLLER}
    assert cluster.metadata.topic("a") is None
    overwrite(cluster.store, znodes.CONTROLLER_EPOCH, b"9")
    assert cluster.loop.state.controller_epoch == 10
    assert cluster.create("a")[0].error is ErrorCode.NONE


def test_an_older_list_of_brokers_that_is_decided_after_a_newer_one() -> None:
    """A broker registers again while the state is read again after a write of unknown outcome. The state that was read names the broker's
    former registration, and is handled after the newer list from the watch."""
    cluster = Cluster()
    own = cluster.metadata.brokers[0]
    older, newer = replace(own, broker_id=5, epoch=1_000), replace(own, broker_id=5, epoch=2_000)
    read_state = cluster.loop._read_state

    def read_slowly() -> Procedure[ClusterState]:
        state = yield from read_state()
        state.apply([BrokerPut(older)])
        cluster.loop._on_brokers({0: own, 5: newer})
        return state

    cluster.loop._read_state = read_slowly  # type: ignore[method-assign]
    cluster.store.fail_next(StoreResult.UNKNOWN)
    assert cluster.create("a")[0].error is ErrorCode.NONE
    assert cluster.metadata.brokers[5] == newer


def test_an_expired_session_refuses_all_waiting_commands() -> None:
    cluster = Cluster()
    cluster.store.hold()
    answers: list[TopicResult] = []
    for name in ("a", "b"):
        cluster.loop.create_topics([NewTopic(name=name)], False, answers.extend)
    cluster.store.fail_next(StoreResult.SESSION_EXPIRED)
    cluster.store.release()
    assert [(result.name, result.error) for result in answers] == [("a", ErrorCode.NOT_CONTROLLER), ("b", ErrorCode.NOT_CONTROLLER)]


def test_commands_wait_for_the_write_before_them() -> None:
    """The second creation is decided when the first is applied, so the name is taken then. Nothing is sent or answered before (I42)."""
    cluster = Cluster()
    cluster.store.hold()
    answers: list[TopicResult] = []
    for _ in range(2):
        cluster.loop.create_topics([NewTopic(name="a")], False, answers.extend)
    assert (answers, cluster.replicas.states, cluster.metadata.topic("a")) == ([], [], None)
    cluster.store.release()
    assert [result.error for result in answers] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert len(cluster.replicas.states) == 1


def test_a_change_behind_the_controllers_back_is_read_and_the_command_decided_anew() -> None:
    """The controller follows KIP-497's rule itself: after a version conflict it reads the state again, and does not overwrite."""
    cluster = Cluster()
    cluster.create("a")
    path = znodes.topic_path("a")
    overwrite(cluster.store, path, cluster.store.nodes()[path].data)
    answers: list[list[TopicResult]] = []
    cluster.loop.create_partitions([NewPartitions(name="a", count=2)], False, answers.append)
    assert answers[0][0].error is ErrorCode.NONE
    topic = cluster.metadata.topic("a")
    assert topic is not None
    assert (len(topic.partitions), topic.version, cluster.store.nodes()[path].version) == (2, 2, 2)


def test_a_conflict_that_does_not_end_is_given_up() -> None:
    cluster = Cluster()
    cluster.create("a")
    works = cluster.store.multi

    def another_writer_is_always_first(operations: Sequence[Operation], done: Callable[[Outcome], object]) -> None:
        overwrite_path = znodes.topic_path("a")
        works([Set(overwrite_path, cluster.store.nodes()[overwrite_path].data)], lambda outcome: None)
        works(operations, done)

    cluster.store.multi = another_writer_is_always_first  # type: ignore[method-assign]
    answers: list[list[TopicResult]] = []
    cluster.loop.create_partitions([NewPartitions(name="a", count=2)], False, answers.append)
    assert answers[0][0].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert cluster.metadata.partition("a", 1) is None


@pytest.mark.parametrize("fault", [{"is_applied": True}, {"is_applied": False}, {"is_late": True}])
def test_a_command_of_unknown_outcome_is_decided_from_fresh_reads_and_answered_by_what_holds(fault: dict[str, bool]) -> None:
    """Whether the write was executed, not executed, or executed late: the command is neither lost nor carried out twice."""
    cluster = Cluster()
    writes = len(cluster.store.multis)
    cluster.store.fail_next(StoreResult.UNKNOWN, **fault)
    (result,) = cluster.create("a")
    topic = cluster.metadata.topic("a")
    assert result.error is ErrorCode.NONE and topic is not None and result.topic_id == topic.topic_id
    assert cluster.cache.topic("a") == topic
    assert [state.topic for state in cluster.replicas.states] == ["a"]
    assert uuid_to_text(topic.topic_id).encode() in cluster.store.nodes()[znodes.topic_path("a")].data
    assert len(cluster.store.multis) - writes == 1
    assert cluster.create("a")[0].error is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_deletion_with_unknown_outcome_is_finished() -> None:
    for is_applied in (True, False):
        cluster = Cluster()
        cluster.create("a")
        cluster.store.fail_next(StoreResult.UNKNOWN, is_applied=is_applied)
        assert cluster.delete("a")[0].error is ErrorCode.NONE
        assert cluster.metadata.topic("a") is None and cluster.cache.topic("a") is None
        assert [stopped.topic for stopped in cluster.replicas.stopped] == ["a"]
        assert cluster.create("a")[0].error is ErrorCode.NONE


def test_nothing_is_decided_while_the_connection_is_away() -> None:
    cluster = Cluster()
    cluster.store.disconnect()
    answers: list[TopicResult] = []
    for name in ("a", "b"):
        cluster.loop.create_topics([NewTopic(name=name)], False, answers.extend)
    cluster.timers.advance(10_000)
    assert answers == [] and cluster.loop.is_active
    cluster.store.reconnect()
    assert [result.error for result in answers] == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_failing_look_after_an_unknown_outcome_is_repeated() -> None:
    cluster = Cluster()
    cluster.store.fail_next(StoreResult.UNKNOWN, is_applied=True)
    answers: list[TopicResult] = []
    cluster.store.fail_next_read()
    cluster.loop.create_topics([NewTopic(name="a")], False, answers.extend)
    assert answers == []
    cluster.timers.advance(RETRY_MS)
    assert [result.error for result in answers] == [ErrorCode.NONE]


def test_a_store_whose_disk_fails_refuses_and_goes_on() -> None:
    cluster = Cluster()
    cluster.store.fail_next(StoreResult.DISK_FAILED)
    assert cluster.create("a")[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.create("a")[0].error is ErrorCode.NONE


DAMAGE = [
    ("/brokers/topics/a", "a", None),
    ("/brokers/topics/a/partitions/0/state", "a", "no leader"),
    ("/config/topics/a", "a", "served"),
    ("/config/brokers/<default>", "a", "served"),
]


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"{}", b"[1,2", b"x" * 100_000])
@pytest.mark.parametrize(("path", "topic", "what"), DAMAGE)
def test_garbage_costs_what_it_damages_and_no_more(
    path: str, topic: str, what: str | None, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged node affects only the topic or the settings that it describes."""
    cluster = Cluster()
    cluster.create("a", "b")
    cluster.store.put("/config/brokers/<default>", b"{}")
    overwrite(cluster.store, path, data)
    with caplog.at_level(logging.WARNING, logger="ottla"):
        after = Cluster(cluster.store.reopened())
    assert after.is_started
    assert after.metadata.partition("b", 0) is not None
    assert after.store.nodes()[path].data == data, "nothing is overwritten"
    found = after.metadata.partition(topic, 0)
    if what is None:
        assert found is None
    elif what == "no leader":
        assert found is not None
        assert found.leader == -1
    else:
        assert found is not None
        assert found.leader == 0
    if not (data == b"" and path.startswith("/config")):
        assert any(path in record.getMessage() for record in caplog.records)
        assert all(len(record.getMessage()) < 1000 for record in caplog.records)


def test_a_node_that_is_no_broker_is_passed_over() -> None:
    cluster = Cluster()
    store = cluster.store.reopened()
    store.put("/brokers/ids/seven", b"{}")
    assert list(Cluster(store).metadata.brokers) == [0]


def test_config_of_a_topic_that_is_gone_is_passed_over() -> None:
    cluster = Cluster()
    store = cluster.store.reopened()
    store.multi([Create("/config/topics/ghost", znodes.config_bytes({"retention.ms": "1"}))], lambda outcome: None)
    assert Cluster(store).metadata.topic("ghost") is None


def test_answers_come_once() -> None:
    cluster = Cluster()
    answers: list[list[ConfigResult]] = []
    cluster.loop.alter_configs([], False, answers.append)
    assert answers == [[]]


def test_an_answer_waits_for_the_logs() -> None:
    """A client may write to a topic as soon as its creation is answered."""
    cluster = Cluster()
    cluster.replicas.is_settled = False
    answers: list[TopicResult] = []
    cluster.loop.create_topics([NewTopic(name="a")], False, answers.extend)
    cluster.loop.create_partitions([NewPartitions(name="a", count=2)], False, answers.extend)
    cluster.loop.delete_topics(["a"], answers.extend)
    assert (answers, len(cluster.replicas.waiting), len(cluster.replicas.stopped)) == ([], 3, 2)
    assert cluster.metadata.topic("a") is None and "a" in cluster.metadata.deleting
    for function in cluster.replicas.waiting:
        function()
    assert [(result.name, result.error) for result in answers] == [("a", ErrorCode.NONE)] * 3
    assert not cluster.metadata.deleting


def test_the_answer_to_an_election_waits_for_the_brokers() -> None:
    """A client may ask any broker for the new leader, and write to it, as soon as its election is answered."""
    cluster = Cluster()
    cluster.replicas.is_settled = False
    cluster.loop.create_topics([NewTopic(name="a")], False, lambda _results: None)
    answers: list[PartitionResult] = []
    cluster.loop.elect_leaders(ElectionType.PREFERRED, [("a", 0)], lambda results, _error: answers.extend(results))
    assert answers == [], "what was announced before is not carried out yet"
    for function in cluster.replicas.waiting:
        function()
    assert [(result.topic, result.error) for result in answers] == [("a", ErrorCode.ELECTION_NOT_NEEDED)]


def test_many_topics_are_written_in_groups_that_count_as_one_request() -> None:
    config, _ = load(assignments=["ottla.create.topics.partitions.max=1900"])
    cluster = Cluster(config=config)
    before = len(cluster.store.multis)
    results = cluster.create(*(NewTopic(name=name, num_partitions=600) for name in "abcd"), "e", "a")
    codes = [(result.name, result.error) for result in results]
    done = [("a", ErrorCode.NONE), ("b", ErrorCode.NONE), ("c", ErrorCode.NONE)]
    assert codes == [*done, ("d", ErrorCode.POLICY_VIOLATION), ("e", ErrorCode.NONE), ("a", ErrorCode.TOPIC_ALREADY_EXISTS)]
    assert len(cluster.store.multis) - before == 4, "a topic with 600 partitions each, then what is left"
    assert cluster.metadata.partition_count == 1801


def test_a_large_write_is_decided_first_and_then_the_loop_turns() -> None:
    cluster = Cluster()
    later = cluster.later = []
    answers: list[TopicResult] = []
    cluster.loop.create_topics([NewTopic(name="a", num_partitions=3000)], False, answers.extend)
    cluster.loop.create_topics([NewTopic(name="a", num_partitions=1)], False, answers.extend)
    assert answers == [] and len(later) == 1
    while later:
        later.pop()()
    assert [result.error for result in answers] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS] and not later
