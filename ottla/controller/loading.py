"""Reads the cluster's state from the metadata store: first all nodes, then a pure function makes a `ClusterState` of them. The controller's
epoch is not read: a controller that read it again might use the epoch of a successor (I38).

Damaged nodes are skipped and logged, so each affects only its own subject. A topic with a damaged node is not served, a partition with a
damaged state has no leader, and a damaged configuration is read as empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ottla.base.cluster_metadata import (
    CONFIG_TOPIC,
    BrokerEpochsNoted,
    BrokerPut,
    BrokerRemoved,
    Change,
    ConfigPut,
    PartitionMetadata,
    QuotaEntity,
    QuotaPut,
    ScramPut,
    SettingPut,
    TopicPut,
    TopicRemoved,
)
from ottla.base.ports import MetadataStore, StoreNode, StoreResult
from ottla.controller.damage_notes import damaged_line
from ottla.controller.state import ClusterState, MissingNodes
from ottla.metadata_store import znodes

T = TypeVar("T")
ROOTS = (
    "/brokers",
    "/cluster",
    "/config",
    "/admin",
    "/isr_change_notification",
    "/log_dir_event_notification",
)
NODES_MAX = 10_000_000
REQUESTS_MAX = 512
"""Maximum number of concurrent reads."""

NodesRead = Callable[[StoreResult, dict[str, StoreNode]], object]
"""Called with OK and the nodes, or with the failure of a read."""


def read_nodes(store: MetadataStore, roots: Sequence[str], done: NodesRead) -> None:
    _Reader(store, roots, done, is_deep=True).run()


def read_paths(store: MetadataStore, paths: Sequence[str], done: NodesRead) -> None:
    """Reads the nodes at these paths. Missing nodes are not in the result."""
    _Reader(store, paths, done, is_deep=False).run()


class _Reader:
    """Reads a tree of nodes. The store may answer before its call returns or later. The first failed read ends the reader."""

    def __init__(self, store: MetadataStore, roots: Sequence[str], done: NodesRead, *, is_deep: bool) -> None:
        self._store = store
        self._done = done
        self._is_deep = is_deep
        self._nodes: dict[str, StoreNode] = {}
        self._waiting = list(roots)
        self._outstanding = 0
        self._is_running = False
        self._is_over = False

    def run(self) -> None:
        if self._is_running or self._is_over:
            return
        self._is_running = True
        while self._waiting and self._outstanding < REQUESTS_MAX and not self._is_over:
            path = self._waiting.pop()
            self._outstanding += 1
            self._store.get(path, partial(self._on_node, path))
        self._is_running = False
        if self._outstanding == 0:
            self._end(StoreResult.OK)

    def _on_node(self, path: str, result: StoreResult, node: StoreNode | None) -> None:
        if node is None:
            self._settle(result, [])
            return
        assert len(self._nodes) < NODES_MAX, "the metadata store has no end"
        self._nodes[path] = node
        if not self._is_deep:
            self._settle(StoreResult.OK, [])
            return
        self._store.children(path, lambda result, names: self._settle(result, [f"{path}/{name}" for name in names]))

    def _settle(self, result: StoreResult, found: list[str]) -> None:
        self._waiting += found
        self._outstanding -= 1
        if result not in (StoreResult.OK, StoreResult.NO_NODE):
            self._end(result)
        elif not self._is_running:
            self.run()

    def _end(self, result: StoreResult) -> None:
        if not self._is_over:
            self._is_over = True
            self._done(result, self._nodes)


def build_state(nodes: Mapping[str, StoreNode]) -> tuple[ClusterState, list[str]]:
    """Returns the state that the nodes describe, and a log line for each skipped node."""
    notes: list[str] = []
    state = ClusterState(cluster_id(nodes, notes))
    names = _names(nodes)
    changes = _brokers(nodes, names, notes)
    changes += _noted_epochs(nodes, notes)
    topics = _topics(nodes, names, notes)
    changes += topics
    state.apply(changes)
    marked = [broker_id for broker_id, broker in state.brokers.items() if state.dead.get(broker_id) == broker.epoch]
    state.apply([BrokerRemoved(broker_id) for broker_id in marked])
    damaged: list[str] = []
    state.apply(_configs(nodes, names, lambda name: state.topic(name) is not None, notes, damaged))
    state.damaged_settings = frozenset(damaged)
    state.damaged_topics = frozenset(names.get(znodes.TOPICS, [])).difference(topic.name for topic in state.topics())
    state.apply([TopicRemoved(name) for name in names.get(znodes.DELETE_TOPICS, []) if state.topic(name) is not None])
    state.missing_nodes = _missing_nodes(nodes, state)
    return state, notes


def cluster_id(nodes: Mapping[str, StoreNode], notes: list[str]) -> str:
    node = nodes.get(znodes.CLUSTER_ID)
    return _tried(notes, znodes.CLUSTER_ID, znodes.read_cluster_id, node.data) or "" if node is not None else ""


def _names(nodes: Mapping[str, StoreNode]) -> dict[str, list[str]]:
    """Returns the names of each path's children, in order of creation."""
    children: dict[str, list[str]] = {}
    for path in sorted(nodes, key=lambda path: (nodes[path].czxid, path)):
        parent, _, name = path.rpartition("/")
        children.setdefault(parent, []).append(name)
    return children


def _tried(notes: list[str], path: str, read: Callable[..., T], *arguments: Any) -> T | None:
    try:
        return read(*arguments)
    except znodes.NodeError as error:
        notes.append(damaged_line(path, error))
        return None


def _brokers(nodes: Mapping[str, StoreNode], names: Mapping[str, list[str]], notes: list[str]) -> list[Change]:
    changes: list[Change] = []
    for name in names.get(znodes.BROKER_IDS, []):
        path = f"{znodes.BROKER_IDS}/{name}"
        node = nodes[path]
        if not (name.isascii() and name.isdigit()):
            notes.append(f"{path} in the metadata store is skipped: {name} is no broker id")
            continue
        broker = _tried(notes, path, znodes.read_broker, int(name), node.data, node.czxid)
        if broker is not None:
            changes.append(BrokerPut(broker))
    return changes


def _noted_epochs(nodes: Mapping[str, StoreNode], notes: list[str]) -> list[Change]:
    """Reads the noted epochs. A damaged node is read as empty, so every broker is treated as restarted."""
    node = nodes.get(znodes.BROKER_EPOCHS)
    if node is None:
        return []
    noted = _tried(notes, znodes.BROKER_EPOCHS, _read_noted, node)
    return [noted or BrokerEpochsNoted({}, None)]


def _read_noted(node: StoreNode) -> BrokerEpochsNoted:
    epochs, dead = znodes.read_broker_epochs(node.data)
    return BrokerEpochsNoted(epochs, node.version, dead, *znodes.read_noted_directories(node.data))


def _topics(nodes: Mapping[str, StoreNode], names: Mapping[str, list[str]], notes: list[str]) -> list[Change]:
    changes: list[Change] = []
    for name in names.get(znodes.TOPICS, []):
        path = znodes.topic_path(name)
        node = nodes[path]
        states = _partition_states(nodes, names, name, notes)
        topic = _tried(notes, path, znodes.read_topic, name, node.data, node.version, states)
        if topic is not None:
            changes.append(TopicPut(topic))
    return changes


def _partition_states(
    nodes: Mapping[str, StoreNode], names: Mapping[str, list[str]], topic: str, notes: list[str]
) -> dict[int, PartitionMetadata]:
    states: dict[int, PartitionMetadata] = {}
    for name in names.get(znodes.partitions_path(topic), []):
        path = f"{znodes.partitions_path(topic)}/{name}/state"
        node = nodes.get(path)
        if node is None or not (name.isascii() and name.isdigit()):
            continue
        state = _tried(notes, path, znodes.read_partition, int(name), node.data, node.version)
        if state is not None:
            states[int(name)] = state
    return states


def _missing_nodes(nodes: Mapping[str, StoreNode], state: ClusterState) -> dict[str, MissingNodes]:
    found: dict[str, MissingNodes] = {}
    for topic in state.topics():
        name = topic.name
        partitions = {
            partition.index: znodes.partition_path(name, partition.index) not in nodes
            for partition in topic.partitions
            if partition.partition_epoch < 0 and znodes.state_path(name, partition.index) not in nodes
        }
        if partitions:
            found[name] = MissingNodes(znodes.partitions_path(name) not in nodes, partitions)
    return found


def settings_in(nodes: Mapping[str, StoreNode]) -> tuple[list[SettingPut], list[str]]:
    """Returns the settings of all resources other than topics, the quotas and the credentials of users; and a log line for each skipped
    node."""
    notes: list[str] = []
    return _configs(nodes, _names(nodes), lambda _name: False, notes, []), notes


def _configs(
    nodes: Mapping[str, StoreNode],
    names: Mapping[str, list[str]],
    has_topic: Callable[[str], bool],
    notes: list[str],
    damaged: list[str],
) -> list[SettingPut]:
    """Returns the settings in the nodes. Adds a log line for each damaged node to `notes`, and its path to `damaged`."""
    changes: list[SettingPut] = []
    for resource_type, folder in znodes.CONFIG_FOLDERS.items():
        for node_name in names.get(folder, []):
            path = f"{folder}/{node_name}"
            name = _tried(notes, path, znodes.config_name, resource_type, node_name)
            if name is None or (resource_type == CONFIG_TOPIC and not has_topic(name)):
                continue
            configs = _tried(notes, path, znodes.read_config, nodes[path].data)
            changes.append(ConfigPut(resource_type, name, configs or {}))
            damaged += [path] if configs is None else []
    for path, entity in _quota_entities(names):
        quotas = _tried(notes, path, znodes.read_quotas, nodes[path].data)
        changes.append(QuotaPut(entity, quotas or {}))
        user = znodes.user_of(entity)
        scram_notes = notes if quotas is not None else []  # one line for a node
        credentials = None if user is None else _tried(scram_notes, path, znodes.read_scram, nodes[path].data)
        if user is not None and credentials:
            changes.append(ScramPut(user, credentials))
        damaged += [path] if quotas is None or (user is not None and credentials is None) else []
    return changes


def _quota_entities(names: Mapping[str, list[str]]) -> list[tuple[str, QuotaEntity]]:
    found: list[tuple[str, QuotaEntity]] = []
    for folder, kind in ((znodes.CLIENTS, "client-id"), (znodes.IPS, "ip")):
        found += [(f"{folder}/{name}", ((kind, znodes.entity_name(name)),)) for name in names.get(folder, [])]
    for user in names.get(znodes.USERS, []):
        path, user_name = f"{znodes.USERS}/{user}", znodes.entity_name(user)
        found.append((path, (("user", user_name),)))
        for client in names.get(f"{path}/clients", []):
            found.append((f"{path}/clients/{client}", (("client-id", znodes.entity_name(client)), ("user", user_name))))
    return found
