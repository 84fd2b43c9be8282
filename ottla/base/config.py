"""The broker's configuration: the value of every setting, its source, and the resulting settings of topics' logs.

`SETTINGS` is the table of all settings (declared in files under `settings/`). `load` merges `--set`, the environment, the file and the
default, in this order of precedence. Dynamic values (`set_dynamic`) take precedence over all of these, a value of this broker over the
cluster's default. `BrokerConfig` is updated while the broker runs: each setting is a typed attribute (`config.log_retention_ms`), which has
the dynamic value if there is one, and `on_change` registers listeners.

An unknown name, or one that only Kafka serves, causes a notice and does not prevent the start, with few exceptions (`settings/known.py`).
At the start an invalid value of a served setting raises `ConfigError` with one line. Callers pass the texts of files and the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.log_config import LogConfig
from ottla.base.settings.access import AccessSettings, why_contradictory
from ottla.base.settings.coordinators import GroupSettings, TransactionSettings, bound_names
from ottla.base.settings.cordons import CORDONED, why_not_cordonable
from ottla.base.settings.deployments import CLUSTER_DEFAULTS, SINGLE_BROKER_DEFAULTS
from ottla.base.settings.dynamic_values import check_values, parse_for_client, usable_values
from ottla.base.settings.gathering import ConfigError, Given, Notice, ReadFile, gather
from ottla.base.settings.groups import GROUP_SETTINGS
from ottla.base.settings.listener_values import ListenerValues
from ottla.base.settings.listeners import Endpoint, check_between_brokers, parse_endpoints, protocol_map
from ottla.base.settings.logs import UNLIMITED_RECORD, LogSettings, ReplicationSettings
from ottla.base.settings.network import NetworkSettings
from ottla.base.settings.passwords import PasswordSettings, StoredPasswords
from ottla.base.settings.security import SecuritySettings
from ottla.base.settings.setting import INT_MAX, ConfigSource, Scope, Setting, SettingError, Synonym, Type, UpdateMode, settings_of
from ottla.base.settings.share_coordinator import ShareCoordinatorSettings
from ottla.base.settings.sharing import ShareSettings
from ottla.base.settings.sources import nearest
from ottla.base.settings.staging import StagingSettings
from ottla.base.settings.tokens import TokenSettings
from ottla.base.settings.topics import TOPIC_SETTINGS
from ottla.base.settings.zookeeper import ZooKeeperAddress, ZooKeeperSettings, parse_connect

__all__ = [
    "BROKER_SETTINGS",
    "GROUP_SETTINGS",
    "SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "ConfigError",
    "Endpoint",
    "Notice",
    "Scope",
    "Setting",
    "SettingError",
    "ConfigSource",
    "Synonym",
    "Type",
    "UpdateMode",
    "gather",
    "load",
    "problems",
]


class _AllSettings(
    NetworkSettings, SecuritySettings, PasswordSettings, TokenSettings, AccessSettings,
    LogSettings, ReplicationSettings, GroupSettings, ShareSettings, ShareCoordinatorSettings, TransactionSettings,
    StagingSettings, ZooKeeperSettings,
):  # fmt: skip
    """The broker's settings in one class."""


BROKER_SETTINGS: dict[str, Setting[Any]] = {setting.name: setting for setting in settings_of(_AllSettings)}
SETTINGS: tuple[Setting[Any], ...] = (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values())


class BrokerConfig(_AllSettings):
    """All settings of one broker with their current values. Raises `ConfigError` if a given value is invalid, or values contradict each
    other."""

    def __init__(self, given: Mapping[str, Given | str] | None = None) -> None:
        self._given = {name: Given(entry, "given") if isinstance(entry, str) else entry for name, entry in (given or {}).items()}
        self._broker_dynamic: dict[str, str] = {}
        self._cluster_dynamic: dict[str, str] = {}
        self._listeners: list[Callable[[frozenset[str]], object]] = []
        self.passwords = StoredPasswords(self, BROKER_SETTINGS)
        self.of_listeners = ListenerValues(self._given, lambda: (self._broker_dynamic, self._cluster_dynamic), self.value)
        is_single = not self._given.get("zookeeper.connect", Given("", "")).text.strip()
        self.is_single_broker = is_single
        self._defaults = SINGLE_BROKER_DEFAULTS if is_single else CLUSTER_DEFAULTS
        for setting in BROKER_SETTINGS.values():
            self.__dict__[setting.attribute] = self._static_value(setting)
        self._check()

    # Reading

    def value(self, name: str) -> Any:
        return self.__dict__[BROKER_SETTINGS[name].attribute]

    def static_value(self, name: str) -> Any:
        """Returns the value without dynamic changes."""
        return self._static_value(BROKER_SETTINGS[name])

    def text(self, name: str) -> str | None:
        """Returns the current value as text; None for a setting that has neither a value nor a default."""
        value = self.value(name)
        return None if value is None else BROKER_SETTINGS[name].text(value)

    def source(self, name: str) -> ConfigSource:
        return self.synonyms(name)[0].source

    def where(self, name: str) -> str:
        """Returns the source of the current value, for people: a file's name, `environment`, `--set`, `dynamic` or `default`."""
        source = self.source(name)
        if source is ConfigSource.STATIC_BROKER:
            return self._given[name].where
        return "default" if source is ConfigSource.DEFAULT else "dynamic"

    def synonyms(self, name: str) -> list[Synonym]:
        """Returns every value of the setting in any source, the current one first."""
        setting = BROKER_SETTINGS[name]
        found = []
        if name in self._broker_dynamic:
            found.append(Synonym(name, self._broker_dynamic[name], ConfigSource.DYNAMIC_BROKER))
        if name in self._cluster_dynamic:
            found.append(Synonym(name, self._cluster_dynamic[name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
        if name in self._given:
            found.append(Synonym(name, self._given[name].text, ConfigSource.STATIC_BROKER))
        default = self._default(setting)
        found.append(Synonym(name, None if default is None else setting.text(default), ConfigSource.DEFAULT))
        return found

    @property
    def this_broker_id(self) -> int:
        """`broker.id`, else `node.id`, else 0."""
        return max(self.broker_id if self.broker_id >= 0 else self.node_id, 0)

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self.log_dirs or self.log_dir

    @property
    def endpoints(self) -> list[Endpoint]:
        return parse_endpoints("listeners", self.listeners, self._protocols(), self.controller_listener_names)

    @property
    def advertised_endpoints(self) -> list[Endpoint]:
        """Returns the configured addresses for clients. The result is empty if the addresses of `endpoints` are advertised."""
        return parse_endpoints("advertised.listeners", self.advertised_listeners, self._protocols(), self.controller_listener_names)

    @property
    def zookeeper_address(self) -> ZooKeeperAddress:
        """Returns ZooKeeper's address. `zookeeper.connect` must be set."""
        return parse_connect(self.zookeeper_connect or "")

    @property
    def inter_broker_listener(self) -> str:
        """Returns the name of the listener for other brokers: the configured name, else the first listener with the configured protocol,
        else the first listener."""
        if self.inter_broker_listener_name:
            return self.inter_broker_listener_name
        endpoints = self.endpoints
        protocol = self.security_inter_broker_protocol
        return next((endpoint.name for endpoint in endpoints if endpoint.protocol == protocol), endpoints[0].name)

    # Changing while the broker runs

    def on_change(self, listener: Callable[[frozenset[str]], object]) -> None:
        """Calls `listener(names)` after each change of current values."""
        self._listeners.append(listener)

    def set_dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> list[Notice]:
        """Applies the stored dynamic values. Skips invalid values, which must not stop a broker, and returns a notice for each."""
        notices: list[Notice] = []
        before = {**self._cluster_dynamic, **self._broker_dynamic}
        self._cluster_dynamic = usable_values(BROKER_SETTINGS, cluster, notices)
        self._broker_dynamic = usable_values(BROKER_SETTINGS, self.passwords.readable(broker, notices), notices)
        now = {**self._cluster_dynamic, **self._broker_dynamic}
        changed = [name for name in {**before, **now} if name not in BROKER_SETTINGS and before.get(name) != now.get(name)]
        for name, setting in BROKER_SETTINGS.items():
            if setting.update is UpdateMode.READ_ONLY:
                continue
            value = self._dynamic_value(setting, self._broker_dynamic)
            if value != self.__dict__[setting.attribute]:
                self.__dict__[setting.attribute] = value
                changed.append(name)
        self._announce(changed)
        return notices

    def _announce(self, changed: list[str]) -> None:
        for listener in self._listeners if changed else ():
            listener(frozenset(changed))

    def listeners_with(self, broker: Mapping[str, str]) -> ListenerValues:
        """Returns the settings of listeners as they would be with these dynamic values of this broker."""
        usable = usable_values(BROKER_SETTINGS, broker, [])
        return ListenerValues(
            self._given, lambda: (usable, self._cluster_dynamic), lambda name: self._dynamic_value(BROKER_SETTINGS[name], usable)
        )

    def take_over(self, newer: BrokerConfig) -> frozenset[str]:
        """Takes over the changeable values of a configuration that was read again, and calls the functions of `on_change`. Returns the
        names of changed settings."""
        before = {name: self.value(name) for name in BROKER_SETTINGS}
        for name, setting in BROKER_SETTINGS.items():
            if setting.update is not UpdateMode.READ_ONLY:
                self._given.pop(name, None)
                if name in newer._given:
                    self._given[name] = newer._given[name]
        families = self._families()
        for name in families:
            self._given.pop(name, None)
        self._given.update(newer._families())
        self.set_dynamic(self._cluster_dynamic, self._broker_dynamic)
        changed = [name for name in {**families, **self._families()} if families.get(name) != self._families().get(name)]
        self._announce(changed)
        return frozenset([*(name for name, value in before.items() if self.value(name) != value), *changed])

    def _families(self) -> dict[str, Given]:
        """Returns the given values with names that are not in the table: settings of one listener, users of PLAIN."""
        return {name: entry for name, entry in self._given.items() if name not in BROKER_SETTINGS}

    # Topics

    def topic_value(self, name: str, overrides: Mapping[str, str]) -> Any:
        """Returns the current value of a topic setting. An invalid stored override is ignored."""
        setting = TOPIC_SETTINGS[name]
        text = overrides.get(name)
        if text is not None:
            try:
                return setting.parse(text)
            except SettingError:
                pass
        for broker_name, factor in setting.broker_names:
            value = self.value(broker_name)
            if value is not None:
                return value * factor if factor != 1 and value > 0 else value
        return setting.default

    def topic_synonyms(self, name: str, overrides: Mapping[str, str]) -> list[Synonym]:
        """Returns every value of a topic setting and of the broker settings that it falls back on, the current value first. As in Kafka,
        only the default of the first broker setting is included, because the other settings may have another unit."""
        setting = TOPIC_SETTINGS[name]
        found = [Synonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC)] if name in overrides else []
        for broker_name, _ in setting.broker_names:
            found += [synonym for synonym in self.synonyms(broker_name) if synonym.source is not ConfigSource.DEFAULT]
        for broker_name, _ in setting.broker_names[:1]:
            defaults = (synonym for synonym in self.synonyms(broker_name) if synonym.source is ConfigSource.DEFAULT)
            found += [synonym for synonym in defaults if synonym.text is not None]
        return found

    def is_flush_on_ack(self, log_config: LogConfig) -> bool:
        """Whether acknowledgements of a log with these settings wait for the disk."""
        return bool(self.ottla_flush_on_ack) or log_config.flush_messages == 1

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        def value(name: str) -> Any:
            return self.topic_value(name, overrides)

        policy, codec = value("cleanup.policy"), value("compression.type")
        record_bytes_max = value("max.decompressed.message.bytes")
        return LogConfig(
            segment_bytes=value("internal.segment.bytes") or value("segment.bytes"),
            segment_ms=value("segment.ms"),
            segment_jitter_ms=value("segment.jitter.ms"),
            segment_index_bytes=value("segment.index.bytes"),
            index_interval_bytes=value("index.interval.bytes"),
            retention_ms=value("retention.ms"),
            retention_bytes=value("retention.bytes"),
            is_deleted="delete" in policy,
            is_compacted="compact" in policy,
            delete_retention_ms=value("delete.retention.ms"),
            min_compaction_lag_ms=value("min.compaction.lag.ms"),
            max_compaction_lag_ms=value("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
            max_message_bytes=value("max.message.bytes"),
            is_log_append_time=value("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
            compression_type=codec,
            compression_level=self._compression_level(codec, overrides),
            min_insync_replicas=value("min.insync.replicas"),
            is_unclean_election_enabled=value("unclean.leader.election.enable"),
            flush_messages=value("flush.messages"),
            flush_ms=value("flush.ms"),
            file_delete_delay_ms=value("file.delete.delay.ms"),
            record_bytes_max=None if record_bytes_max >= UNLIMITED_RECORD else record_bytes_max,
            decompressed_bytes_max=max(self.ottla_batch_decompressed_max_bytes, value("max.message.bytes")),
            leader_throttled=frozenset(value("leader.replication.throttled.replicas")),
            follower_throttled=frozenset(value("follower.replication.throttled.replicas")),
            mirror_source=value("ottla.mirror.source"),
            leader_epoch_min=value("ottla.leader.epoch.min"),
            is_strict=self.ottla_validate_records,
        )

    def _compression_level(self, codec: str, overrides: Mapping[str, str]) -> int | None:
        """Returns the configured compression level. Returns None (the codec's own default) for a codec without levels, and for Kafka's
        default level: for lz4 this is 9, but Kafka then uses the fastest level."""
        name = f"compression.{codec}.level"
        level = self.topic_value(name, overrides) if name in TOPIC_SETTINGS else None
        return None if level is None or level == TOPIC_SETTINGS[name].default else int(level)

    def check_topic(self, overrides: Mapping[str, str | None]) -> None:
        """Raises `ApiError` INVALID_CONFIG if these settings of a topic are invalid."""
        for name in overrides:
            text = overrides[name]
            if name not in TOPIC_SETTINGS:
                likely = nearest(name, list(TOPIC_SETTINGS))
                hint = f"; did you mean {likely}?" if likely else ""
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}{hint}")
            if text is None:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
            parse_for_client(TOPIC_SETTINGS[name], text)
        if str(overrides.get("remote.storage.enable", "")).strip().lower() == "true":
            raise ApiError(ErrorCode.INVALID_CONFIG, "remote.storage.enable: this broker has no tiered storage")
        given = {name: text for name, text in overrides.items() if text is not None}
        low = self.topic_value("min.compaction.lag.ms", given)
        high = self.topic_value("max.compaction.lag.ms", given)
        if low > high:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"min.compaction.lag.ms ({low}) is larger than max.compaction.lag.ms ({high})")

    # Groups

    def group_value(self, name: str, overrides: Mapping[str, str]) -> Any:
        """Returns the current value of a group setting, limited to the broker's current minimum and maximum. An invalid stored override is
        ignored."""
        setting = GROUP_SETTINGS[name]
        broker_name = setting.broker_names[0][0] if setting.broker_names else ""
        value = self.value(broker_name) if broker_name else setting.default
        if name in overrides:
            with suppress(SettingError):
                value = setting.parse(overrides[name])
        if not broker_name or setting.type not in (Type.INT, Type.LONG):
            return value
        low, high = self._group_bounds(broker_name)
        return int(min(max(value, low), high))

    def group_synonyms(self, name: str, overrides: Mapping[str, str]) -> list[Synonym]:
        found = [Synonym(name, overrides[name], ConfigSource.DYNAMIC_GROUP)] if name in overrides else []
        setting = GROUP_SETTINGS[name]
        if setting.broker_names:
            return found + self.synonyms(setting.broker_names[0][0])
        return [*found, Synonym(name, setting.default_text, ConfigSource.DEFAULT)]

    def check_group(self, overrides: Mapping[str, str | None]) -> None:
        """Raises `ApiError` INVALID_CONFIG if these settings of a group are invalid."""
        for name, text in overrides.items():
            if name not in GROUP_SETTINGS:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
            if text is None:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for group configs: {name}")
            value = parse_for_client(GROUP_SETTINGS[name], text)
            if not GROUP_SETTINGS[name].broker_names:
                continue
            lowest, highest = bound_names(GROUP_SETTINGS[name].broker_names[0][0], BROKER_SETTINGS)
            if lowest and value < self.value(lowest):
                raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {lowest}")
            if highest and value > self.value(highest):
                raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {highest}")
        given = {name: text for name, text in overrides.items() if text is not None}
        for kind in ("consumer", "share", "streams"):
            beat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
            if self.group_value(beat, given) >= self.group_value(session, given):
                raise ApiError(ErrorCode.INVALID_CONFIG, f"{session} must be larger than {beat}")

    # Brokers

    def check_broker(self, overrides: Mapping[str, str | None], *, is_cluster_default: bool) -> None:
        """Raises `ApiError` INVALID_REQUEST or INVALID_CONFIG if these values cannot be set while the broker runs."""
        check_values(BROKER_SETTINGS, overrides, is_cluster_default=is_cluster_default)

    def _group_bounds(self, broker_name: str) -> tuple[int, int]:
        lowest, highest = bound_names(broker_name, BROKER_SETTINGS)
        return self.value(lowest) if lowest else 0, self.value(highest) if highest else INT_MAX

    def _protocols(self) -> dict[str, str]:
        return protocol_map(self.listener_security_protocol_map)

    def _default(self, setting: Setting[Any]) -> Any:
        return self._defaults.get(setting.name, setting.default)

    def _static_value(self, setting: Setting[Any]) -> Any:
        given = self._given.get(setting.name)
        return self._default(setting) if given is None else _given_value(setting, given)

    def _dynamic_value(self, setting: Setting[Any], of_broker: Mapping[str, str]) -> Any:
        for values in (of_broker, self._cluster_dynamic):
            if setting.name in values:
                return setting.parse(values[setting.name])
        return self._static_value(setting)

    def _check(self) -> None:
        """Checks the rules that concern several settings. Raises `ConfigError`."""
        try:
            self._check_cluster()
            if not self.endpoints:
                raise ConfigError("listeners: there must be at least one address to listen on")
            names = {endpoint.name for endpoint in self.endpoints}
            for endpoint in self.advertised_endpoints:
                if endpoint.name not in names:
                    raise ConfigError(f"advertised.listeners: {endpoint.name} is not one of the listeners")
                if not endpoint.host or endpoint.host in ("0.0.0.0", "::"):
                    raise ConfigError(f"advertised.listeners: {endpoint} is no address that a client could connect to")
        except SettingError as error:
            raise ConfigError(str(error)) from None
        if self.broker_id >= 0 and self.node_id >= 0 and self.broker_id != self.node_id:
            raise ConfigError(f"broker.id is {self.broker_id} and node.id is {self.node_id}: they are two names of one number")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")
        if self.ottla_console_registry and not self.ottla_console_registry.startswith(("http://", "https://")):
            raise ConfigError("ottla.console.registry is not http://HOST:PORT or https://HOST:PORT")
        if self.ottla_metrics_credentials and ":" not in self.ottla_metrics_credentials:
            raise ConfigError("ottla.metrics.credentials has no colon: write user:password")
        if reason := why_not_cordonable(self.cordoned_log_dirs, self.data_directories):
            raise ConfigError(f"{reason} ({self.where(CORDONED)})")
        self._check_groups()
        self._check_access()
        self.of_listeners.check(self.endpoints, None if self.is_single_broker else self.inter_broker_listener)

    def _check_access(self) -> None:
        named = frozenset(name for name, given in self._given.items() if given.text.strip())
        reason = why_contradictory(
            authorizer=self.authorizer_class_name, named=named, allows_without_rules=self.allow_everyone_if_no_acl_found
        )
        if reason:
            raise ConfigError(reason)

    def _check_cluster(self) -> None:
        if self.is_single_broker:
            factor = self.default_replication_factor
            if factor > 1 and self.ottla_cores == 1:
                reason = "a broker without zookeeper.connect is alone, and could create no topic: set it to 1"
                raise ConfigError(f"default.replication.factor is {factor}: {reason}")
            return
        assert self.zookeeper_address.servers
        if self.broker_id < 0 and self.node_id < 0:
            raise ConfigError("broker.id: with zookeeper.connect each broker needs a number of its own")
        if self.zookeeper_set_acl and not (self.ottla_zookeeper_digest or self.ottla_zookeeper_sasl):
            raise ConfigError("zookeeper.set.acl: needs an identity that the nodes belong to; set ottla.zookeeper.digest=user:password")
        is_protocol_given = "security.inter.broker.protocol" in self._given
        check_between_brokers(self.endpoints, self.inter_broker_listener_name, self.security_inter_broker_protocol, is_protocol_given)

    def _check_groups(self) -> None:
        for setting in GROUP_SETTINGS.values():
            broker_name = setting.broker_names[0][0] if setting.broker_names and setting.type in (Type.INT, Type.LONG) else ""
            if broker_name.startswith(("group.share.", "group.streams.")):
                low, high = self._group_bounds(broker_name)
                if not low <= self.value(broker_name) <= high:
                    raise ConfigError(f"{broker_name} must be between {low} and {high}, the bounds of what a group may set")
        if self.group_share_max_share_sessions < self.group_share_max_size:
            raise ConfigError("group.share.max.share.sessions is smaller than group.share.max.size")


def load(
    *,
    file_text: str = "",
    file_name: str = "",
    environment: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
    read_file: ReadFile | None = None,
) -> tuple[BrokerConfig, list[Notice]]:
    """Merges all sources. Raises `ConfigError` with one line, which names the place of an invalid value. `read_file` reads a JAAS file."""
    given, notices = gather(
        tuple(BROKER_SETTINGS), file_text=file_text, file_name=file_name, environment=environment, assignments=assignments,
        read_file=read_file,
    )  # fmt: skip
    return BrokerConfig(given), notices


def problems(given: Mapping[str, Given]) -> list[str]:
    """Returns one line for each invalid value of a setting in the table, and one for the first problem that `BrokerConfig` finds in the
    other values."""
    found, usable = [], {}
    for name, entry in given.items():
        setting = BROKER_SETTINGS.get(name)  # None: a setting of one listener or PLAIN user; `BrokerConfig` checks it
        try:
            if setting is not None:
                _given_value(setting, entry)
        except ConfigError as error:
            found.append(str(error))
        else:
            usable[name] = entry
    try:
        BrokerConfig(usable)
    except ConfigError as error:
        found.append(str(error))
    return found


def _given_value(setting: Setting[Any], given: Given) -> Any:
    """Returns the value of a text; None for an empty text if the setting has no default. Raises `ConfigError`, which names the source."""
    if setting.default is None and not given.text.strip():
        return None
    try:
        return setting.parse(given.text)
    except SettingError as error:
        raise ConfigError(f"{error} ({given.where})") from None
