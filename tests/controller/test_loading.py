"""Reading the state from the metadata store: it equals the state that the controller wrote, whatever the changes were and whenever the
answers come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.ports import StoreNode, StoreResult, Watch
from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest, NewPartitions, NewTopic, QuotaRequest
from ottla.controller.loading import ROOTS, build_state, read_nodes, read_paths
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes
from tests.controller.cluster import Cluster
from tests.fakes.memory_store import MemoryStore

NAMES = st.sampled_from(["a", "b", "c.d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
        st.tuples(st.just("delete"), NAMES, st.just(0)),
        st.tuples(st.just("grow"), NAMES, st.integers(1, 5)),
        st.tuples(st.just("config"), NAMES, st.integers(1, 9)),
        st.tuples(st.just("group"), NAMES, st.integers(45000, 60000)),
        st.tuples(st.just("quota"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("restart"), NAMES, st.just(0)),
    ),
    max_size=12,
)


def do(cluster: Cluster, step: str, name: str, number: int) -> Cluster:
    def ignore(_answer: Any) -> None:
        return

    if step == "create":
        cluster.create(NewTopic(name=name, num_partitions=number))
    elif step == "delete":
        cluster.delete(name)
    elif step == "grow":
        cluster.loop.create_partitions([NewPartitions(name=name, count=number)], False, ignore)
    elif step == "restart":
        return Cluster(cluster.store.reopened())
    elif step == "quota":
        entity = (("client-id", None), ("user", name))
        cluster.loop.alter_quotas([QuotaRequest(entity=entity, values={"request_percentage": number or None})], False, ignore)
    else:
        kind, key = (2, "retention.ms") if step == "config" else (32, "consumer.session.timeout.ms")
        entry = ConfigEntry(name=key, operation=ConfigOperation.SET, value=str(number))
        cluster.loop.alter_configs([ConfigRequest(resource_type=kind, name=name, entries=[entry])], False, ignore)
    return cluster


def seen(state: ClusterState) -> dict[str, object]:
    return {
        "topics": {topic.name: topic for topic in state.topics()},
        "brokers": state.brokers,
        "configs": {kind: {name: state.configs(kind, name) for name in state.config_names(kind)} for kind in (2, 4, 16, 32)},
        "quotas": state.quotas,
        "cluster": state.cluster_id,
        "deleting": state.deleting,
        "count": state.partition_count,
        "config nodes": set(state.config_nodes),
        "quota nodes": set(state.quota_nodes),
    }


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_live_state_is_what_the_store_says(steps: list[tuple[str, str, int]]) -> None:
    cluster = Cluster()
    for step in steps:
        cluster = do(cluster, *step)
        loaded, notes = build_state(cluster.store.nodes())
        assert notes == []
        assert seen(loaded) == seen(cluster.metadata)


class LateStore(MemoryStore):
    """A metadata store that answers when the test says so, the last question first."""

    def __init__(self, nodes: dict[str, StoreNode]) -> None:
        super().__init__(nodes)
        self.questions: list[Callable[[], None]] = []

    def get(self, path: str, done: Callable[[StoreResult, StoreNode | None], object], *, watch: Watch | None = None) -> None:
        self.questions.append(lambda: super(LateStore, self).get(path, done))

    def children(self, path: str, done: Callable[[StoreResult, list[str]], object], *, watch: Watch | None = None) -> None:
        self.questions.append(lambda: super(LateStore, self).children(path, done))


def test_answers_may_come_late_and_in_any_order() -> None:
    cluster = Cluster()
    cluster.create(NewTopic(name="a", num_partitions=3))
    store = LateStore(cluster.store.nodes())
    answers: list[dict[str, StoreNode]] = []
    read_nodes(store, ROOTS, lambda _result, nodes: answers.append(nodes))
    while store.questions:
        assert answers == []
        store.questions.pop()()
    apart = (znodes.CONTROLLER, znodes.CONTROLLER_EPOCH)
    assert answers == [{path: node for path, node in cluster.store.nodes().items() if path not in apart}]


@pytest.mark.parametrize("reads_before", [0, 1, 7, 20])
def test_a_read_that_fails_is_no_missing_node(reads_before: int) -> None:
    cluster = Cluster()
    cluster.create(NewTopic(name="a", num_partitions=3))
    store = LateStore(cluster.store.nodes())
    answers: list[StoreResult] = []
    read_nodes(store, ROOTS, lambda result, _nodes: answers.append(result))
    for _ in range(reads_before):
        store.questions.pop()()
    store.fail_next_read()
    while store.questions:
        store.questions.pop()()
    assert answers == [StoreResult.CONNECTION_LOST]


def test_an_empty_store() -> None:
    answers: list[tuple[StoreResult, dict[str, StoreNode]]] = []
    read_nodes(MemoryStore(), ROOTS, lambda *answer: answers.append(answer))
    read_paths(MemoryStore(), ["/a"], lambda *answer: answers.append(answer))
    assert answers == [(StoreResult.OK, {}), (StoreResult.OK, {})]
    state, notes = build_state({})
    assert (list(state.topics()), state.cluster_id, notes) == ([], "", [])


def test_noted_epochs_and_directories() -> None:
    data = znodes.broker_epochs_bytes({2: 7, 11: 9}, {3: 5}, {2: ("a", "b"), 3: ("c",)}, {"a": "g"})
    state, notes = build_state({znodes.BROKER_EPOCHS: StoreNode(data=data, version=4, czxid=1)})
    assert (state.noted_epochs, state.noted_version, state.dead, notes) == ({2: 7, 11: 9}, 4, {3: 5}, [])
    assert (state.noted_directories, state.noted_generations) == ({2: ("a", "b"), 3: ("c",)}, {"a": "g"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b'{"epochs":{"x":1}}',
        '{"epochs":{"²":1}}'.encode(),
        b'{"epochs":{"2":7},"directories":{"2":"a"}}',
        '{"epochs":{"2":7},"directories":{"²":["a"]}}'.encode(),
    ],
)
def test_nothing_of_damaged_epochs_counts(data: bytes) -> None:
    """The state then has no epoch of any broker, so all brokers seem restarted, and no version of the node with which it could be
    overwritten."""
    state, notes = build_state({znodes.BROKER_EPOCHS: StoreNode(data=data, version=4, czxid=1)})
    assert (state.noted_epochs, state.noted_version, state.noted_directories, len(notes)) == ({}, None, {}, 1)


def test_a_broker_whose_registration_is_marked_as_dead_is_not_live() -> None:
    broker = BrokerMetadata(broker_id=3, endpoints={"A": ("h", 1)})
    nodes = {
        znodes.BROKER_EPOCHS: StoreNode(data=znodes.broker_epochs_bytes({}, {3: 5}), version=0, czxid=1),
        znodes.BROKER_IDS: StoreNode(data=b"", version=0, czxid=1),
    }
    data = znodes.broker_bytes(broker, {"A": "PLAINTEXT"}, 1)
    for epoch, is_live in ((5, False), (6, True)):
        state, _ = build_state({**nodes, znodes.broker_path(3): StoreNode(data=data, version=0, czxid=epoch)})
        assert (3 in state.brokers) is is_live and state.dead == {3: 5}


def test_a_topic_that_cannot_be_read_leaves_the_state_in_part() -> None:
    nodes = {znodes.TOPICS: StoreNode(data=b"", version=0, czxid=1)}
    assert build_state(nodes)[0].is_whole
    state, notes = build_state({**nodes, znodes.topic_path("t"): StoreNode(data=b"garbage", version=0, czxid=2)})
    assert not state.is_whole and len(notes) == 1 and state.damaged_topics == {"t"}


def test_a_partition_whose_state_cannot_be_read_leaves_the_state_in_part() -> None:
    cluster = Cluster()
    cluster.create(NewTopic(name="t", num_partitions=2))
    nodes = cluster.store.nodes()
    assert build_state(nodes)[0].is_whole
    state, notes = build_state({**nodes, znodes.state_path("t", 1): StoreNode(data=b"garbage", version=3, czxid=9)})
    assert not state.is_whole and len(notes) == 1 and state.damaged_topics == frozenset()
    damaged = state.partition("t", 1)
    assert damaged is not None and (damaged.leader, damaged.leader_epoch, damaged.partition_epoch) == (-1, -1, -1)


def test_a_damaged_node_of_a_user_is_one_line_though_quotas_and_credentials_stand_in_it() -> None:
    path = znodes.quota_path((("user", "u"),))
    nodes = {path: StoreNode(data=b"garbage", version=0, czxid=2), znodes.USERS: StoreNode(data=b"", version=0, czxid=1)}
    _, notes = build_state(nodes)
    assert len(notes) == 1 and notes[0].startswith(f"{path} in the metadata store is damaged")
