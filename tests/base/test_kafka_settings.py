"""Types, defaults and validation of the settings that Apache Kafka has too, compared with Kafka's.

`kafka_settings.tsv` was written by a Java program from the `ConfigDef`s of Kafka 4.3.0: `LogConfig`, `AbstractKafkaConfig` and
`GroupConfig`. A missing default is `null` or `NO_DEFAULT`. The last column is the text of the validator, empty for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.base.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, BrokerConfig, ConfigError, load
from ottla.base.errors import ApiError
from ottla.base.settings.setting import Setting, SettingError

TABLES: Mapping[str, Mapping[str, Setting[object]]] = {"topic": TOPIC_SETTINGS, "broker": BROKER_SETTINGS, "group": GROUP_SETTINGS}
KEY_STORES = "there are no Java key stores here: a PEM file is the usual store"
STATED = "Kafka's ConfigDef does not check the value; it fails later, or behaves as if another value was set"
OTHER_DEFAULTS = {
    "advertised.listeners": "an empty list stands for none",
    "controller.listener.names": "there are no controllers in KRaft's sense, so it need not be set",
    "group.consumer.max.size": "one client could otherwise fill the memory of the coordinator (docs/limits.md)",
    "group.max.size": "one client could otherwise fill the memory of the coordinator (docs/limits.md)",
    "group.streams.max.size": "one client could otherwise fill the memory of the coordinator (docs/limits.md)",
    "listener.security.protocol.map": "the type is a list, because the value is one",
    "listeners": "the loopback address: a new broker without access rules is not reached from outside",
    "log.dir": "a directory that a restart of the machine does not delete",
    "log.dirs": "an empty list stands for none",
    "node.id": "`broker.id` has the number in a cluster on ZooKeeper",
    "sasl.mechanism.inter.broker.protocol": "brokers prove that they know the cluster's secret; there is no Kerberos",
    "ssl.keystore.type": KEY_STORES,
    "ssl.truststore.type": KEY_STORES,
}
OTHER_VALIDATION = {
    "authorizer.class.name": "classes cannot be loaded, so only names of the authorizer are valid",
    "broker.id": STATED,
    "connections.max.reauth.ms": STATED,
    "follower.replication.throttled.replicas": "the same values, in other words",
    "group.consumer.assignors": "classes cannot be loaded, so only Kafka's own assignors are valid",
    "group.consumer.migration.policy": "the same values, in other words",
    "group.coordinator.rebalance.protocols": "the same values in another order",
    "group.share.assignors": "classes cannot be loaded, so only Kafka's own assignor is valid",
    "internal.segment.bytes": STATED,
    "leader.replication.throttled.replicas": "the same values, in other words",
    "max.connection.creation.rate": "0 would let no client in, not even to set another rate",
    "node.id": "-1 stands for none: `broker.id` has the number",
    "replica.high.watermark.checkpoint.interval.ms": STATED,
    "sasl.login.connect.timeout.ms": STATED,
    "sasl.login.read.timeout.ms": STATED,
    "sasl.login.refresh.window.factor": STATED,
    "sasl.login.retry.backoff.max.ms": STATED,
    "sasl.login.retry.backoff.ms": STATED,
    "sasl.mechanism.inter.broker.protocol": "only mechanisms that exist here are valid",
    "sasl.oauthbearer.clock.skew.seconds": STATED,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": STATED,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": STATED,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": STATED,
    "sasl.server.max.receive.size": STATED,
    "ssl.client.auth": "the same values in another order",
    "ssl.enabled.protocols": "only protocols that exist here are valid",
    "ssl.endpoint.identification.algorithm": "only algorithms that exist here are valid",
    "ssl.keystore.type": KEY_STORES,
    "ssl.truststore.type": KEY_STORES,
}


class Fact(NamedTuple):
    """A setting of Apache Kafka."""

    kind: str
    name: str
    type: str
    default: str
    valid: str


def facts() -> list[Fact]:
    lines = (Path(__file__).parent / "kafka_settings.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [Fact(*line.split("\t")) for line in lines]


def test_types_and_defaults_are_those_of_kafka() -> None:
    different = set()
    for fact in facts():
        setting = TABLES[fact.kind][fact.name]
        ours = (setting.type.name, "null" if setting.default_text is None else setting.default_text)
        if ours != (fact.type, fact.default):
            different.add(fact.name)
    assert different == OTHER_DEFAULTS.keys()


def test_validation_is_that_of_kafka() -> None:
    different = {fact.name for fact in facts() if TABLES[fact.kind][fact.name].valid_text != fact.valid}
    assert different == OTHER_VALIDATION.keys()


def test_each_setting_that_kafka_has_too_is_compared() -> None:
    known = {(fact.kind, fact.name) for fact in facts()}
    assert len(known) == len(facts()) > 250
    for kind, table in TABLES.items():
        of_kafka = {name for known_kind, name in known if known_kind == kind}
        ours = {name for name in table if not name.startswith(("ottla.", "zookeeper."))}
        assert ours - of_kafka == NEWER[kind] | (NOT_IN_THE_DEFINITION if kind == "broker" else set())


NOT_IN_THE_DEFINITION = {
    "allow.everyone.if.no.acl.found", "controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms",
    "delegation.token.master.key", "follower.replication.throttled.rate", "java.security.auth.login.config",
    "leader.imbalance.per.broker.percentage", "leader.replication.throttled.rate", "password.encoder.cipher.algorithm",
    "password.encoder.iterations", "password.encoder.key.length", "password.encoder.keyfactory.algorithm",
    "password.encoder.old.secret", "password.encoder.secret", "replica.alter.log.dirs.io.max.bytes.per.second",
    "sasl.oauthbearer.header.urlencode", "super.users",
}
"""Settings of brokers that Kafka reads elsewhere than in `AbstractKafkaConfig`, or had with ZooKeeper."""
NEWER: Mapping[str, set[str]] = {
    "topic": {
        "errors.deadletterqueue.group.enable", "max.decompressed.message.bytes", "remote.copy.lag.bytes", "remote.copy.lag.ms",
    },
    "broker": {
        "errors.deadletterqueue.auto.create.topics.enable", "errors.deadletterqueue.topic.name.prefix",
        "group.consumer.assignor.offload.enable", "group.share.assignor.offload.enable", "group.streams.acceptable.recovery.lag",
        "group.streams.assignor.offload.enable", "group.streams.assignors", "group.streams.max.warmup.replicas",
        "group.streams.min.task.offset.interval.ms", "group.streams.num.warmup.replicas", "group.streams.rack.aware.assignment.tags",
        "group.streams.task.offset.interval.ms", "group.streams.topology.description.plugin.class",
        "log.remote.copy.lag.bytes", "log.remote.copy.lag.ms", "max.decompressed.message.bytes",
        "sasl.oauthbearer.allow.unverified.audience", "sasl.oauthbearer.allow.unverified.issuer",
    },
    "group": {
        "consumer.assignor.offload.enable", "errors.deadletterqueue.copy.record.enable", "errors.deadletterqueue.topic.name",
        "share.assignor.offload.enable", "streams.acceptable.recovery.lag", "streams.assignor.name",
        "streams.assignor.offload.enable", "streams.num.warmup.replicas", "streams.rack.aware.assignment.tags",
        "streams.task.offset.interval.ms",
    },
}
"""Settings that Kafka has had since a version after 4.3."""


def test_settings_that_came_with_kafka_4_4() -> None:
    """Their types and defaults are those of KIP-1191, KIP-1071, KIP-1357 and KIP-1241."""
    facts_of_4_4 = {
        ("topic", "errors.deadletterqueue.group.enable"): ("BOOLEAN", "false"),
        ("topic", "max.decompressed.message.bytes"): ("INT", "2147483639"),
        ("topic", "remote.copy.lag.bytes"): ("LONG", "-1"),
        ("topic", "remote.copy.lag.ms"): ("LONG", "0"),
        ("broker", "max.decompressed.message.bytes"): ("INT", "2147483639"),
        ("broker", "log.remote.copy.lag.bytes"): ("LONG", "-1"),
        ("broker", "log.remote.copy.lag.ms"): ("LONG", "0"),
        ("broker", "errors.deadletterqueue.auto.create.topics.enable"): ("BOOLEAN", "false"),
        ("broker", "errors.deadletterqueue.topic.name.prefix"): ("STRING", "dlq."),
        ("group", "errors.deadletterqueue.copy.record.enable"): ("BOOLEAN", "false"),
        ("group", "errors.deadletterqueue.topic.name"): ("STRING", ""),
        ("broker", "group.streams.acceptable.recovery.lag"): ("LONG", "10000"),
        ("broker", "group.streams.assignors"): ("LIST", "sticky"),
        ("broker", "group.consumer.assignor.offload.enable"): ("BOOLEAN", "true"),
        ("group", "consumer.assignor.offload.enable"): ("BOOLEAN", "true"),
        ("broker", "group.share.assignor.offload.enable"): ("BOOLEAN", "true"),
        ("group", "share.assignor.offload.enable"): ("BOOLEAN", "true"),
        ("broker", "group.streams.assignor.offload.enable"): ("BOOLEAN", "true"),
        ("group", "streams.assignor.offload.enable"): ("BOOLEAN", "true"),
        ("broker", "group.streams.num.warmup.replicas"): ("INT", "2"),
        ("broker", "group.streams.max.warmup.replicas"): ("INT", "20"),
        ("broker", "group.streams.topology.description.plugin.class"): ("CLASS", None),
        ("broker", "group.streams.rack.aware.assignment.tags"): ("LIST", ""),
        ("group", "streams.rack.aware.assignment.tags"): ("LIST", ""),
        ("broker", "group.streams.task.offset.interval.ms"): ("INT", "60000"),
        ("broker", "group.streams.min.task.offset.interval.ms"): ("INT", "15000"),
        ("group", "streams.acceptable.recovery.lag"): ("LONG", "10000"),
        ("group", "streams.num.warmup.replicas"): ("INT", "2"),
        ("group", "streams.task.offset.interval.ms"): ("INT", "60000"),
    }
    for (kind, name), expected in facts_of_4_4.items():
        setting = TABLES[kind][name]
        assert (setting.type.name, setting.default_text) == expected, name
        assert setting.is_dynamic or name.startswith("group.streams."), name
    config = BrokerConfig()
    config.check_group({"errors.deadletterqueue.topic.name": "dlq.orders"})
    with pytest.raises(ApiError, match="internal topics"):
        config.check_group({"errors.deadletterqueue.topic.name": "__consumer_offsets"})


def test_the_plugin_of_topology_descriptions_is_the_one_in_memory() -> None:
    name, plugin = "group.streams.topology.description.plugin.class", "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"
    assert load(assignments=[f"{name}={plugin}"])[0].value(name) == plugin
    with pytest.raises(ConfigError, match=name):
        load(assignments=[f"{name}=com.example.Plugin"])


@pytest.mark.parametrize("text", ["zone,zone", "zone, rack ,zone", "zone,,rack", ","])
def test_keys_of_client_tags_are_neither_repeated_nor_empty(text: str) -> None:
    name = "streams.rack.aware.assignment.tags"
    BrokerConfig().check_group({name: " zone , rack"})
    with pytest.raises(ApiError, match=name):
        BrokerConfig().check_group({name: text})
    with pytest.raises(ConfigError, match=f"group.{name}"):
        load(assignments=[f"group.{name}={text}"])


def test_warm_up_replicas_have_a_bound_of_the_broker() -> None:
    BrokerConfig().check_group({"streams.num.warmup.replicas": "20"})
    with pytest.raises(ApiError, match=r"less than or equal to group\.streams\.max\.warmup\.replicas"):
        BrokerConfig().check_group({"streams.num.warmup.replicas": "21"})
    with pytest.raises(ConfigError, match=r"group\.streams\.num\.warmup\.replicas"):
        load(assignments=["group.streams.num.warmup.replicas=2", "group.streams.max.warmup.replicas=1"])


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_the_offload_of_assignments_is_a_setting_of_the_broker_and_of_the_group(kind: str) -> None:
    name = f"{kind}.assignor.offload.enable"
    config = load(assignments=[f"group.{name}=false"])[0]
    assert BrokerConfig().group_value(name, {}) is True
    assert config.group_value(name, {}) is False
    assert config.group_value(name, {name: "true"}) is True
    config.check_group({name: "False"})
    with pytest.raises(ApiError, match=name):
        config.check_group({name: "1"})


@pytest.mark.parametrize(
    ("name", "lowest"),
    [("segment.bytes", 1 << 20), ("segment.ms", 1), ("min.insync.replicas", 1), ("retention.ms", -1)],
)
def test_bounds_of_topics(name: str, lowest: int) -> None:
    """The bounds include those of KIP-1030."""
    config = BrokerConfig()
    config.check_topic({name: str(lowest)})
    with pytest.raises(ApiError, match=name):
        config.check_topic({name: str(lowest - 1)})


def test_lists_as_kip_1161_has_them() -> None:
    """An empty `cleanup.policy` keeps all records, and a repeated entry counts once."""
    config = BrokerConfig()
    config.check_topic({"cleanup.policy": ""})
    found = config.log_config({"cleanup.policy": "", "retention.ms": "1"})
    assert (found.is_deleted, found.is_compacted) == (False, False)
    assert TOPIC_SETTINGS["cleanup.policy"].parse("compact,compact") == ("compact",)
    with pytest.raises(SettingError):
        BROKER_SETTINGS["group.consumer.assignors"].parse("")


def test_tiered_storage_is_refused_and_its_delays_have_no_effect() -> None:
    config = BrokerConfig()
    with pytest.raises(ApiError, match="tiered storage"):
        config.check_topic({"remote.storage.enable": "true"})
    for name in ("remote.copy.lag.ms", "remote.copy.lag.bytes"):
        config.check_topic({name: "-1"})
        with pytest.raises(ApiError, match=name):
            config.check_topic({name: "-2"})


def test_a_limit_of_decompressed_records_is_of_the_broker_or_of_the_topic() -> None:
    assert BrokerConfig().log_config({}).record_bytes_max is None
    config = load(assignments=["max.decompressed.message.bytes=512"])[0]
    assert config.log_config({}).record_bytes_max == 512
    assert config.log_config({"max.decompressed.message.bytes": "4096"}).record_bytes_max == 4096


def test_kafka_4_4_checks_the_audience_and_issuer_of_tokens() -> None:
    for claim in ("audience", "issuer"):
        assert BROKER_SETTINGS[f"sasl.oauthbearer.allow.unverified.{claim}"].default is False
