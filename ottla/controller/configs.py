"""Changes configurations of topics, brokers, groups and metrics subscriptions, and quotas of users, clients and addresses: checks them and
writes their nodes.

A request is incremental (set, delete, append, subtract) or replaces all settings of a resource. The resulting configuration is checked
before anything is written; for a broker, only the values in the request are checked. Append and subtract start from the value of the
resource (`_list_to_alter`). Values from the store are never assumed to be valid (`base/config.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from ottla.base.cluster_metadata import (
    ALL_BROKERS,
    CONFIG_BROKER,
    CONFIG_CLIENT_METRICS,
    CONFIG_GROUP,
    CONFIG_TOPIC,
    ConfigPut,
    PartitionPut,
    QuotaEntity,
)
from ottla.base.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, BrokerConfig, Setting, Type
from ottla.base.errors import ApiError, ErrorCode, shortened
from ottla.base.ports import Create, Operation, Set
from ottla.base.settings.client_metrics import check_client_metrics
from ottla.base.settings.cordons import CORDONED, why_not_cordonable
from ottla.base.settings.security import PLAIN_USER_PREFIX
from ottla.controller.api import (
    CONFIG_ENTRIES_MAX,
    TOO_MANY_CONFIG_ENTRIES,
    ConfigEntry,
    ConfigOperation,
    ConfigRequest,
    ConfigResult,
    QuotaRequest,
    QuotaResult,
)
from ottla.controller.partition_states import state_write
from ottla.controller.plans import Plan, Unit, check_name, check_size, check_whole, planned
from ottla.controller.quota_nodes import QuotaNodes
from ottla.controller.settings_memory import SettingsRoom
from ottla.controller.state import ClusterState
from ottla.controller.topic_names import check_topic_name
from ottla.controller.topics import check_mirror_settings, least_epoch
from ottla.metadata_store import znodes

_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
QUOTAS: Mapping[str, int | None] = {
    "producer_byte_rate": _LONG_MAX,
    "consumer_byte_rate": _LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""Quotas of users and client ids, and the largest value of quotas that must be whole numbers. None: fractions are allowed."""
QUOTAS_OF_IP: Mapping[str, int | None] = {"connection_creation_rate": _INT_MAX}
ENTITY_TYPES = ("client-id", "ip", "user")
VALUE_BYTES_MAX = 0x7FFF
"""Longest list after an append, in bytes: no string of the protocol may be longer."""
LOGIN_SETTING = re.compile(r"(^|\.)(ssl\.truststore\.\w+|sasl\.jaas\.config|ottla\.sasl\.plain\.users|sasl\.oauthbearer\..+|super\.users)$")
"""Settings of a broker or a listener that decide who may log in."""
QUOTA_ENTITIES_MAX = 50_000
"""Maximum number of entities with quotas, and users with credentials, together. Their nodes take about 30 MiB."""


def decide_alter_configs(state: ClusterState, config: BrokerConfig, requests: Sequence[ConfigRequest], *, validate_only: bool) -> Plan:
    units: list[Unit] = []
    results = []
    room = SettingsRoom(state, config)
    times = Counter((request.resource_type, request.name) for request in requests)
    for request in requests:
        key = (request.resource_type, request.name)
        try:
            if times[key] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            configs = _altered(state, config, request)
            room.take(key, configs)
        except ApiError as refusal:
            results.append(ConfigResult(resource_type=key[0], name=key[1], error=refusal.code, message=refusal.message))
            continue
        results.append(ConfigResult(resource_type=key[0], name=key[1]))
        path, data = znodes.config_path(*key), znodes.config_bytes(configs)
        operations: list[Operation] = [Set(path, data) if key in state.config_nodes else Create(path, data)]
        if not config.is_single_broker and request.resource_type != CONFIG_TOPIC:
            operations.append(announced(path))  # A topic's settings are sent with the topic.
        if request.resource_type == CONFIG_TOPIC:
            units += _raised_epochs(state, request.name, least_epoch(configs))
        units.append(Unit(operations, [ConfigPut(*key, configs)]))
    if validate_only:
        return Plan(answer=results)
    return planned(state, units, answer=results)


def _raised_epochs(state: ClusterState, name: str, epoch: int) -> list[Unit]:
    """Returns the writes that raise the leader epochs of a topic's partitions to `epoch`. A raised epoch begins a new term of the same
    leader."""
    topic = state.topic(name)
    raised = [
        replace(one, leader_epoch=epoch, partition_epoch=one.partition_epoch + 1, controller_epoch=state.controller_epoch)
        for one in (topic.partitions if topic is not None else ())
        if 0 <= one.leader_epoch < epoch and one.partition_epoch >= 0
    ]
    return [Unit([state_write(name, one)], [PartitionPut(name, one)]) for one in raised]


def announced(path: str) -> Operation:
    """Returns the write of a notification: every broker reads the settings at `path` again."""
    return Create(znodes.CONFIG_CHANGE_PREFIX, znodes.change_bytes(path), is_sequential=True)


def _altered(state: ClusterState, config: BrokerConfig, request: ConfigRequest) -> dict[str, str]:
    """Returns the resource's complete new configuration, checked. Raises `ApiError`."""
    _check_resource_name(state, request)
    check_whole(state, znodes.config_path(request.resource_type, request.name))
    configs = altered_values(config, request, state.configs(request.resource_type, request.name), _inherited(state, request))
    if request.resource_type == CONFIG_TOPIC:
        config.check_topic(configs)
        check_mirror_settings(request.name, configs)
        if state.topic(request.name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{request.name}' does not exist.")
    elif request.resource_type == CONFIG_GROUP:
        config.check_group(configs)
    elif request.resource_type == CONFIG_CLIENT_METRICS:
        check_client_metrics(configs)
    else:
        touched = {entry.name: configs[entry.name] for entry in request.entries if entry.name in configs}
        _refuse_read_only(config, request)
        config.check_broker(touched, is_cluster_default=request.name == ALL_BROKERS)
        if CORDONED in touched:
            entries = BROKER_SETTINGS[CORDONED].parse(touched[CORDONED])
            if reason := why_not_cordonable(entries, state.brokers[int(request.name)].cordons):
                raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    check_size(znodes.config_bytes(configs), "The configuration")
    return configs


def altered_values(config: BrokerConfig, request: ConfigRequest, old: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Returns the new values of a resource, from a request and the old values; raises `ApiError`. Does not check whether they are valid.
    `inherited`: the values that apply to a broker where it has none in `old`.
    """
    if len(request.entries) > CONFIG_ENTRIES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, TOO_MANY_CONFIG_ENTRIES)
    names = [entry.name for entry in request.entries]
    if len(dict.fromkeys(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    configs = {} if request.is_replacing else dict(old)
    for entry in request.entries:
        _alter_one(config, request, entry, {**inherited, **old}, configs)
    return configs


def _inherited(state: ClusterState, request: ConfigRequest) -> dict[str, str]:
    """Returns the settings of all brokers for a broker, and the log directories that its configuration file cordons."""
    if request.resource_type != CONFIG_BROKER or request.name == ALL_BROKERS:
        return {}
    cordons = state.brokers[int(request.name)].cordons
    by_file = {CORDONED: ",".join(path for path, is_cordoned in cordons.items() if is_cordoned)} if cordons else {}
    return {**by_file, **state.configs(CONFIG_BROKER, ALL_BROKERS)}


def _check_resource_name(state: ClusterState, request: ConfigRequest) -> None:
    name = request.name
    if request.resource_type == CONFIG_TOPIC:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)
    elif request.resource_type == CONFIG_BROKER:
        if name != ALL_BROKERS and not (name.isascii() and name.isdigit() and int(name) in state.brokers):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"No broker with the id '{name}' is registered.")
    elif request.resource_type == CONFIG_GROUP:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        check_name(name, "a group with settings")
    elif request.resource_type == CONFIG_CLIENT_METRICS:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        check_name(name, "a subscription")
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Resources of type {request.resource_type} have no settings here.")


def _refuse_read_only(config: BrokerConfig, request: ConfigRequest) -> None:
    for entry in request.entries:
        if LOGIN_SETTING.search(entry.name) and not config.ottla_login_settings_alterable:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"ottla.login.settings.alterable is false, so this cannot be altered: {entry.name}")
        setting = BROKER_SETTINGS.get(entry.name)
        if (setting is not None and not setting.is_dynamic) or entry.name.startswith(PLAIN_USER_PREFIX):  # read at the start only
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{entry.name}]")


def _alter_one(config: BrokerConfig, request: ConfigRequest, entry: ConfigEntry, old: Mapping[str, str], configs: dict[str, str]) -> None:
    if entry.operation is ConfigOperation.DELETE:
        configs.pop(entry.name, None)
        return
    if entry.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {entry.name}")
    if entry.operation is ConfigOperation.SET:
        configs[entry.name] = entry.value
        return
    setting = _settings(request.resource_type).get(entry.name)
    if setting is None or setting.type is not Type.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Can't {entry.operation.name} to key {entry.name} because its type is not LIST.")
    parts = dict.fromkeys(_list_to_alter(config, request, setting, old))
    given = [part.strip() for part in entry.value.split(",") if part.strip()]
    if entry.operation is ConfigOperation.APPEND:
        parts.update(dict.fromkeys(given))
    else:
        for part in given:
            parts.pop(part, None)
    configs[entry.name] = ",".join(parts)
    if entry.operation is ConfigOperation.APPEND and len(configs[entry.name].encode()) > VALUE_BYTES_MAX:
        message = f"The list {entry.name} would have more than {VALUE_BYTES_MAX} bytes, which no answer could show."
        raise ApiError(ErrorCode.INVALID_CONFIG, message)


def _settings(resource_type: int) -> Mapping[str, Setting[Any]]:
    return {CONFIG_TOPIC: TOPIC_SETTINGS, CONFIG_BROKER: BROKER_SETTINGS, CONFIG_GROUP: GROUP_SETTINGS}.get(resource_type, {})


def _list_to_alter(config: BrokerConfig, request: ConfigRequest, setting: Setting[Any], old: Mapping[str, str]) -> list[str]:
    """Returns the list that an append or a subtract starts from: the value in `old`, else the value in the configuration file of this
    broker. The controller does not know the files of other brokers. For them it takes the default of the setting, as Kafka always does.
    """
    if request.resource_type == CONFIG_TOPIC:
        return list(config.topic_value(setting.name, old))
    if setting.name in old:
        return [part.strip() for part in old[setting.name].split(",") if part.strip()]
    if request.resource_type == CONFIG_BROKER and (config.is_single_broker or request.name == str(config.this_broker_id)):
        return list(config.static_value(setting.name))
    return list(setting.default or ())


def decide_alter_quotas(state: ClusterState, config: BrokerConfig, requests: Sequence[QuotaRequest], *, validate_only: bool) -> Plan:
    nodes = QuotaNodes(state)
    units: list[Unit] = []
    results = []
    for request in requests:
        try:
            quotas = _altered_quotas(nodes, request)
            for entity in (request.entity, tuple(part for part in request.entity if part[0] == "user")):
                if entity:
                    check_whole(state, znodes.quota_path(entity))
            if quotas:
                check_room(nodes, request.entity)
        except ApiError as refusal:
            results.append(QuotaResult(entity=request.entity, error=refusal.code, message=refusal.message))
            continue
        results.append(QuotaResult(entity=request.entity))
        operations, changes = nodes.write_quotas(request.entity, quotas)
        if operations and not config.is_single_broker:
            operations.append(announced(znodes.quota_path(request.entity)))
        if operations:
            units.append(Unit(operations, changes))
    if validate_only:
        return Plan(answer=results)
    return planned(state, units, answer=results)


def _altered_quotas(nodes: QuotaNodes, request: QuotaRequest) -> dict[str, float]:
    kinds = [kind for kind, _ in request.entity]
    if not kinds:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in request.entity:
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.INVALID_REQUEST, shortened(f"Unhandled client quota entity type: {kind}"))
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
        check_name(name or "", "an entity")
    if "ip" in kinds and len(kinds) > 1:  # "shouldnot" is Kafka's
        message = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if kinds == ["ip"]:
        _check_address(request.entity[0][1])
    quotas = dict(nodes.quotas(request.entity))
    known = QUOTAS_OF_IP if "ip" in kinds else QUOTAS
    for name, value in request.values.items():
        if value is None:
            quotas.pop(name, None)
            continue
        if name not in known:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {name}")
        _check_quota(name, value, known[name])
        quotas[name] = value
    return quotas


def _check_address(name: str | None) -> None:
    """Raises `ApiError` INVALID_REQUEST for host names. Kafka resolves them; this broker would never apply their quotas."""
    try:
        ip_address(name or "0.0.0.0")  # none: the default of all addresses
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is not a valid IP or resolvable host.") from None


def check_room(nodes: QuotaNodes, entity: QuotaEntity) -> None:
    """Raises `ApiError` POLICY_VIOLATION for a new entity beyond `QUOTA_ENTITIES_MAX`, because clients can invent any number of names."""
    if not nodes.has(entity) and nodes.count >= QUOTA_ENTITIES_MAX:
        message = f"There are {QUOTA_ENTITIES_MAX:,} users, clients and addresses with quotas or credentials already."
        raise ApiError(ErrorCode.POLICY_VIOLATION, message)


def _check_quota(name: str, value: float, largest: int | None) -> None:
    """Raises `ApiError` INVALID_REQUEST for values that Kafka refuses: byte rates and connection rates must be whole numbers."""
    if not value > 0 or value == float("inf"):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Quota {name} must be greater than 0")
    if largest is not None and value > largest:
        kind = "an INT" if largest == _INT_MAX else "a LONG"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Proposed value for {name} is too large for {kind}.")
    if largest is not None and not value.is_integer():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} cannot be a fractional value.")
