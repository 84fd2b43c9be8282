"""The nodes of the metadata store: their paths and their JSON, in the form that Kafka uses in ZooKeeper.

Writers write Kafka's fields. They add our own fields only if the fields have a value: `clean`, `incarnation`, `log_dirs` and `cordons` of a
broker, `eligible`, `last_leader`, `last_known`, `emptied` and `loss_epoch` of a partition. Readers accept any order of fields and unknown
fields, and raise `NodeError` for invalid content. The code that loads the nodes skips an invalid node and logs a line, so that the node
does not stop a broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ottla.base.cluster_metadata import (
    ALL_BROKERS,
    CONFIG_BROKER,
    CONFIG_CLIENT_METRICS,
    CONFIG_GROUP,
    CONFIG_TOPIC,
    NO_LEADER,
    BrokerMetadata,
    ConfigPut,
    LogDirectoryHistory,
    PartitionMetadata,
    QuotaEntity,
    QuotaPut,
    Renewal,
    TopicMetadata,
)
from ottla.base.uuids import uuid_from_text, uuid_to_text
from ottla.metadata_store.node_json import NUMBER_MAX, field_of, integer_of, integers, list_of, number_in, read_json, write_json
from ottla.metadata_store.node_json import NodeError as NodeError  # noqa: PLC0414 - re-exported

BROKER_IDS = "/brokers/ids"
BROKER_EPOCHS = "/brokers/epochs"
"""Ours: for each broker, the epoch that the controller has processed, the epoch that it has declared dead, and the log directories
(`controller/membership.py`). A single broker has no such node."""
RENEWALS = "/brokers/generations"
"""Ours: a node for each broker of a cluster, with the renewals of its log directories (`storage/generations.py`)."""
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
CLUSTER_SECRET = "/cluster/secret"
"""Ours: brokers prove to each other that they know this secret (`security/cluster_identity.py`). A single broker has no such node."""
DELETE_TOPICS = "/admin/delete_topics"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CONFIG_FOLDERS = {
    CONFIG_TOPIC: "/config/topics", CONFIG_BROKER: "/config/brokers", CONFIG_CLIENT_METRICS: "/config/client-metrics",
    CONFIG_GROUP: "/config/groups",
}  # fmt: skip
USERS = "/config/users"
CLIENTS = "/config/clients"
IPS = "/config/ips"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
DEFAULT_ENTITY = "<default>"
SCRAM_PREFIX = "SCRAM-"
"""Prefix of the credentials in the node of a user; the other fields are quotas."""

BASE_PATHS = (
    "/brokers",
    BROKER_IDS,
    "/brokers/seqid",
    RENEWALS,
    TOPICS,
    "/cluster",
    "/config",
    CONFIG_CHANGES,
    *CONFIG_FOLDERS.values(),
    USERS,
    CLIENTS,
    IPS,
    "/admin",
    DELETE_TOPICS,
    "/isr_change_notification",
    LOG_DIR_EVENTS,
)
"""Nodes that must exist before topics, brokers and settings are written, parents first."""

SENSITIVE_PATHS = ("/cluster/secret", USERS, CONFIG_FOLDERS[CONFIG_BROKER], "/delegation_token")
"""Nodes with secrets. If ZooKeeper's ACLs are on, only brokers may read these nodes and their descendants."""

PLAIN_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_")


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def renewals_path(broker_id: int) -> str:
    return f"{RENEWALS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def config_path(resource_type: int, name: str) -> str:
    if resource_type == CONFIG_BROKER and name == ALL_BROKERS:
        name = DEFAULT_ENTITY
    return f"{CONFIG_FOLDERS[resource_type]}/{quoted(name)}"


def config_name(resource_type: int, node_name: str) -> str:
    """Returns the name of the resource that is configured in the node `node_name`."""
    return ALL_BROKERS if resource_type == CONFIG_BROKER and node_name == DEFAULT_ENTITY else unquoted(node_name)


def quota_path(entity: QuotaEntity) -> str:
    names = dict(entity)

    def node(kind: str) -> str:
        name = names[kind]
        return DEFAULT_ENTITY if name is None else quoted(name)

    if "ip" in names:
        return f"{IPS}/{node('ip')}"
    if "user" not in names:
        return f"{CLIENTS}/{node('client-id')}"
    user = f"{USERS}/{node('user')}"
    return f"{user}/clients/{node('client-id')}" if "client-id" in names else user


def setting_at(path: str) -> ConfigPut | QuotaPut | None:
    """Returns the resource or entity whose settings are stored at this path, with empty settings; None for another path."""
    kind, *names = path.removeprefix("/config/").split("/")
    for resource_type, folder in CONFIG_FOLDERS.items():
        if folder == f"/config/{kind}" and len(names) == 1:
            return ConfigPut(resource_type, config_name(resource_type, names[0]), {})
    folder = f"/config/{kind}"
    if folder == USERS and len(names) == 1:
        return QuotaPut((("user", entity_name(names[0])),), {})
    if folder == USERS and len(names) == 3 and names[1] == "clients":
        return QuotaPut((("client-id", entity_name(names[2])), ("user", entity_name(names[0]))), {})
    if folder in (CLIENTS, IPS) and len(names) == 1:
        return QuotaPut((("client-id" if folder == CLIENTS else "ip", entity_name(names[0])),), {})
    return None


def change_bytes(path: str) -> bytes:
    """Encodes the announcement that the settings at this path have changed, in Kafka's form."""
    return write_json({"version": 2, "entity_path": path.removeprefix("/config/")})


def read_change(data: bytes) -> str:
    """Returns the path of the changed settings. Raises `NodeError`."""
    path = field_of(read_json(data), "entity_path")
    if not isinstance(path, str) or not path:
        raise NodeError("a change of settings names no path")
    return f"/config/{path}"


def entity_name(node_name: str) -> str | None:
    return None if node_name == DEFAULT_ENTITY else unquoted(node_name)


def quoted(name: str) -> str:
    """Encodes a name for a path: every character except letters, digits and `.-_` as `%XX`. `<default>` is not changed."""
    if name == DEFAULT_ENTITY or PLAIN_LETTERS.issuperset(name):
        return name
    return "".join(letter if letter in PLAIN_LETTERS else "".join(f"%{byte:02X}" for byte in letter.encode()) for letter in name)


def unquoted(text: str) -> str:
    """Decodes a quoted name. Raises `NodeError`."""
    try:
        raw = re.sub(rb"(?s)%(.{0,2})", lambda escaped: bytes([int(escaped[1], 16)]), text.encode())
    except ValueError:
        raise NodeError(f"{text!r} is not a quoted name") from None
    return raw.decode("utf-8", "replace")


def controller_bytes(broker_id: int, now_ms: int) -> bytes:
    return write_json({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def controller_epoch_bytes(epoch: int) -> bytes:
    return str(epoch).encode()


def read_controller_epoch(data: bytes) -> int:
    """Decodes the controller epoch. Raises `NodeError` also if the next epoch would not fit into 32 bits."""
    try:
        epoch = int(data)
    except ValueError:
        raise NodeError(f"{CONTROLLER_EPOCH} holds no number") from None
    if not 0 <= epoch <= NUMBER_MAX:
        raise NodeError(f"{CONTROLLER_EPOCH} holds {epoch}")
    return epoch


def cluster_id_bytes(cluster_id: str) -> bytes:
    return write_json({"version": "1", "id": cluster_id})


def read_cluster_id(data: bytes) -> str:
    return str(field_of(read_json(data), "id"))


def broker_bytes(broker: BrokerMetadata, protocols: Mapping[str, str], now_ms: int, *, incarnation: str = "") -> bytes:
    """Encodes a registration. The fields `host` and `port` are the address of the first PLAINTEXT listener, for clients that do not know
    listeners. Without such a listener they are null and -1. `incarnation` has the ids of the broker's log directories, separated by commas.
    """
    plain = next((address for name, address in broker.endpoints.items() if protocols[name] == "PLAINTEXT"), (None, -1))
    value: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": dict(protocols),
        "endpoints": [f"{name}://{_bracketed(host)}:{port}" for name, (host, port) in broker.endpoints.items()],
        "jmx_port": -1,
        "port": plain[1],
        "host": plain[0],
        "version": 5,
        "timestamp": str(now_ms),
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    if broker.is_clean:
        value["clean"] = True
    if incarnation:
        value["incarnation"] = incarnation
    if broker.histories:
        value["log_dirs"] = {key: {"path": found.path, "generations": list(found.generations)} for key, found in broker.histories.items()}
    if broker.cordons:
        value["cordons"] = dict(broker.cordons)
    return write_json(value)


def read_incarnation(data: bytes) -> str:
    """Returns the ids of the registered broker's log directories, separated by commas, or an empty text if there are none."""
    return str(read_json(data).get("incarnation", ""))


def read_broker(broker_id: int, data: bytes, epoch: int) -> BrokerMetadata:
    value = read_json(data)
    endpoints = {}
    for text in list_of(value, "endpoints"):
        name, separator, address = str(text).partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon:
            raise NodeError(f"broker {broker_id} is registered with the endpoint {text!r}")
        endpoints[name] = (host.strip("[]"), number_in(port, f"the port in {text!r}"))
    rack = value.get("rack")
    return BrokerMetadata(
        broker_id=broker_id,
        endpoints=endpoints,
        rack=None if rack is None else str(rack),
        epoch=epoch,
        is_clean=value.get("clean") is True,
        directories=_directories(value.get("incarnation", "")),
        histories=_histories(value.get("log_dirs", {})),
        cordons=_cordons(value.get("cordons", {})),
    )


def _cordons(value: Any) -> dict[str, bool]:
    if not isinstance(value, dict):
        raise NodeError("cordons are no map of paths")
    return {path: is_cordoned is True for path, is_cordoned in value.items()}


def _histories(value: Any) -> dict[str, LogDirectoryHistory]:
    if not isinstance(value, dict) or not all(isinstance(found, dict) for found in value.values()):
        raise NodeError("log_dirs are no map of ids to directories")
    return {
        key: LogDirectoryHistory(str(found.get("path", "")), tuple(map(str, list_of(found, "generations")))) for key, found in value.items()
    }


def _directories(incarnation: Any) -> tuple[str, ...]:
    return tuple(filter(None, str(incarnation).split(",")))


def broker_epochs_bytes(
    epochs: Mapping[int, int],
    dead: Mapping[int, int],
    directories: Mapping[int, Sequence[str]] = MappingProxyType({}),
    generations: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    value: dict[str, Any] = {"version": 1, "epochs": {str(broker_id): epochs[broker_id] for broker_id in sorted(epochs)}}
    if dead:
        value["dead"] = {str(broker_id): dead[broker_id] for broker_id in sorted(dead)}
    if directories:
        value["directories"] = {str(broker_id): list(directories[broker_id]) for broker_id in sorted(directories)}
    if generations:
        value["generations"] = {directory: generations[directory] for directory in sorted(generations)}
    return write_json(value)


def read_broker_epochs(data: bytes) -> tuple[dict[int, int], dict[int, int]]:
    """Returns, by broker id, the broker epochs that the controller has processed, and the broker epochs that it has declared dead."""
    value = read_json(data)
    return _epochs(field_of(value, "epochs")), _epochs(value.get("dead", {}))


def read_noted_directories(data: bytes) -> tuple[dict[int, tuple[str, ...]], dict[str, str]]:
    """Decodes the rest of the node `BROKER_EPOCHS`. Returns the ids of each broker's log directories, and the newest generation of each log
    directory (`LogDirectoryHistory`).
    """
    found = read_json(data)
    value, generations = found.get("directories", {}), found.get("generations", {})
    if not isinstance(value, dict) or not all(isinstance(ids, list) for ids in value.values()):
        raise NodeError("directories are no map of broker ids to lists")
    if not isinstance(generations, dict) or not all(isinstance(name, str) for name in generations.values()):
        raise NodeError("generations are no map of directories to names")
    return {number_in(key, "a broker id in directories"): tuple(map(str, ids)) for key, ids in value.items()}, generations


def renewals_bytes(renewals: Mapping[str, Renewal]) -> bytes:
    """Encodes a broker's node below `RENEWALS`. The keys of `renewals` are the ids of the broker's log directories."""
    return write_json({"version": 1, "directories": {key: renewals[key]._asdict() for key in sorted(renewals)}})


def read_renewals(data: bytes) -> dict[str, Renewal]:
    found = field_of(read_json(data), "directories")
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise NodeError("directories are no map of ids to renewals")
    return {key: Renewal(str(field_of(entry, "generation")), integer_of(entry, "number")) for key, entry in found.items()}


def _epochs(value: Any) -> dict[int, int]:
    if not isinstance(value, dict) or not all(isinstance(epoch, int) for epoch in value.values()):
        raise NodeError("epochs are no map of broker ids to numbers")
    return {number_in(key, "a broker id in epochs"): epoch for key, epoch in value.items()}


def topic_bytes(topic: TopicMetadata) -> bytes:
    return write_json(
        {
            "removing_replicas": {str(part.index): list(part.removing_replicas) for part in topic.partitions if part.removing_replicas},
            "partitions": {str(part.index): list(part.replicas) for part in topic.partitions},
            "topic_id": uuid_to_text(topic.topic_id),
            "adding_replicas": {str(part.index): list(part.adding_replicas) for part in topic.partitions if part.adding_replicas},
            "version": 3,
        }
    )


def read_topic(name: str, data: bytes, version: int, states: Mapping[int, PartitionMetadata]) -> TopicMetadata:
    """Decodes a topic's assignment and combines it with the partitions' states. A partition without a state has no leader."""
    value = read_json(data)
    try:
        topic_id = uuid_from_text(str(field_of(value, "topic_id")))
    except ValueError as error:
        raise NodeError(f"topic {name}: {error}") from None
    assignment = _replicas(value, "partitions")
    adding, removing = _replicas(value, "adding_replicas"), _replicas(value, "removing_replicas")
    if sorted(assignment) != list(range(len(assignment))):
        raise NodeError(f"topic {name}: its partitions are not numbered from 0 without a gap")
    partitions = []
    for index in range(len(assignment)):
        state = states.get(index)
        partitions.append(
            PartitionMetadata(
                index=index,
                leader=state.leader if state else NO_LEADER,
                leader_epoch=state.leader_epoch if state else -1,
                replicas=assignment[index],
                isr=state.isr if state else (),
                partition_epoch=state.partition_epoch if state else -1,
                controller_epoch=state.controller_epoch if state else 0,
                adding_replicas=adding.get(index, ()),
                removing_replicas=removing.get(index, ()),
                eligible=state.eligible if state else (),
                last_leader=state.last_leader if state else NO_LEADER,
                last_known=state.last_known if state else (),
                emptied=state.emptied if state else (),
                loss_epoch=state.loss_epoch if state else -1,
            )
        )
    return TopicMetadata(name=name, topic_id=topic_id, partitions=tuple(partitions), version=version)


def partition_bytes(partition: PartitionMetadata) -> bytes:
    value: dict[str, Any] = {
        "controller_epoch": partition.controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
    }
    if partition.eligible:
        value["eligible"] = list(partition.eligible)
    if partition.last_leader != NO_LEADER:
        value["last_leader"] = partition.last_leader
    if partition.last_known:
        value["last_known"] = list(partition.last_known)
    if partition.emptied:
        value["emptied"] = list(partition.emptied)
    if partition.loss_epoch >= 0:
        value["loss_epoch"] = partition.loss_epoch
    return write_json(value)


def read_partition(index: int, data: bytes, version: int) -> PartitionMetadata:
    """Decodes the partition's state. The replicas are in the topic's node."""
    value = read_json(data)
    isr = integers(list_of(value, "isr"), "isr")
    return PartitionMetadata(
        index=index,
        leader=integer_of(value, "leader"),
        leader_epoch=integer_of(value, "leader_epoch"),
        controller_epoch=integer_of(value, "controller_epoch"),
        replicas=(),
        isr=isr,
        partition_epoch=version,
        eligible=integers(list_of(value, "eligible"), "eligible") if "eligible" in value else (),
        last_leader=integer_of(value, "last_leader") if "last_leader" in value else NO_LEADER,
        last_known=integers(list_of(value, "last_known"), "last_known") if "last_known" in value else (),
        emptied=integers(list_of(value, "emptied"), "emptied") if "emptied" in value else (),
        loss_epoch=integer_of(value, "loss_epoch") if "loss_epoch" in value else -1,
    )


def config_bytes(configs: Mapping[str, str]) -> bytes:
    return write_json({"version": 1, "config": dict(configs)})


def read_config(data: bytes) -> dict[str, str]:
    if not data:
        return {}
    configs = field_of(read_json(data), "config")
    if not isinstance(configs, dict):
        raise NodeError("the field config is not an object")
    return {str(name): str(text) for name, text in configs.items()}


def user_bytes(quotas: Mapping[str, float], credentials: Mapping[str, str]) -> bytes:
    """Encodes the node of a user, which has quotas and credentials, as in Kafka."""
    return config_bytes({**credentials, **{name: str(value) for name, value in quotas.items()}})


def read_scram(data: bytes) -> dict[str, str]:
    """Returns the SCRAM credentials in the node of a user, by mechanism."""
    return {name: text for name, text in read_config(data).items() if name.startswith(SCRAM_PREFIX)}


def user_of(entity: QuotaEntity) -> str | None:
    """Returns the user's name if the entity is one named user; None for the default user and for other entities."""
    return entity[0][1] if len(entity) == 1 and entity[0][0] == "user" else None


def read_quotas(data: bytes) -> dict[str, float]:
    try:
        return {name: float(text) for name, text in read_config(data).items() if not name.startswith(SCRAM_PREFIX)}
    except ValueError as error:
        raise NodeError(f"the value of a quota is not a number: {error}") from None


def _replicas(value: Mapping[str, Any], name: str) -> dict[int, tuple[int, ...]]:
    entries = value.get(name, {})
    if not isinstance(entries, dict) or not all(isinstance(replicas, list) for replicas in entries.values()):
        raise NodeError(f"the field {name} is no assignment")
    return {number_in(key, f"a partition in {name}"): integers(replicas, name) for key, replicas in entries.items()}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
