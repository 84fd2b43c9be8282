"""The configuration: the sources of values, which source wins, and which errors stop a start."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import MISSING, fields
from itertools import product
from pathlib import Path

import pytest

import ottla
from ottla.base.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    gather,
    load,
    problems,
)
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.log_config import LogConfig
from ottla.base.settings.network import NetworkSettings
from ottla.base.settings.setting import LONG_MAX

DAY_MS = 86_400_000

KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "errors.deadletterqueue.group.enable": "false",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "internal.segment.bytes": None,
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.decompressed.message.bytes": "2147483639",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

KAFKA_BROKER_DEFAULTS = {
    "num.partitions": 1,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "auto.create.topics.enable": True,
    "delete.topic.enable": True,
    "message.max.bytes": 1048588,
    "log.retention.hours": 168,
    "log.retention.ms": None,
    "log.segment.bytes": 1073741824,
    "log.flush.interval.messages": LONG_MAX,
    "replica.lag.time.max.ms": 30000,
    "unclean.leader.election.enable": False,
    "offsets.topic.num.partitions": 50,
    "offsets.retention.minutes": 10080,
    "offset.metadata.max.bytes": 4096,
    "group.min.session.timeout.ms": 6000,
    "group.max.session.timeout.ms": 1800000,
    "group.consumer.session.timeout.ms": 45000,
    "transaction.state.log.num.partitions": 50,
    "transaction.max.timeout.ms": 900000,
    "transactional.id.expiration.ms": 604800000,
    "producer.id.expiration.ms": 86400000,
    "socket.request.max.bytes": 104857600,
    "connections.max.idle.ms": 600000,
    "fetch.max.bytes": 57671680,
    "max.incremental.fetch.session.cache.slots": 1000,
}


def test_every_topic_setting_has_kafkas_default() -> None:
    ours = {"ottla.mirror.source": "", "ottla.leader.epoch.min": "0"}
    assert {name: setting.default_text for name, setting in TOPIC_SETTINGS.items()} == {**KAFKA_TOPIC_DEFAULTS, **ours}


@pytest.mark.parametrize(("name", "value"), KAFKA_BROKER_DEFAULTS.items())
def test_broker_defaults_are_kafkas(name: str, value: object) -> None:
    assert BrokerConfig().value(name) == value


def test_a_topic_without_overrides_gets_kafkas_log() -> None:
    log = BrokerConfig().log_config({})
    same_names = {setting.attribute: setting.default for setting in TOPIC_SETTINGS.values() if hasattr(log, setting.attribute)}
    assert len(same_names) == 17
    assert {name: getattr(log, name) for name in same_names} == same_names
    assert (log.is_deleted, log.is_compacted, log.is_log_append_time, log.is_strict) == (True, False, False, False)
    assert log.timestamp_after_max_ms == 3_600_000
    assert log.decompressed_bytes_max == 32 << 20


def test_the_settings_of_a_log_repeat_no_default() -> None:
    assert all(field.default is MISSING and field.default_factory is MISSING for field in fields(LogConfig))


def test_names_and_attributes_are_two_forms_of_one() -> None:
    for name, setting in BROKER_SETTINGS.items():
        assert setting.attribute == name.replace(".", "_")
    assert len({(setting.scope, setting.name) for setting in SETTINGS}) == len(SETTINGS)


def test_every_setting_says_what_it_is_for() -> None:
    for setting in SETTINGS:
        assert setting.doc.endswith("."), setting.name
        assert setting.default is None or setting.parse(setting.text(setting.default)) == setting.default, setting.name


def test_what_a_topic_or_group_falls_back_on_exists() -> None:
    for setting in (*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()):
        for name, factor in setting.broker_names:
            assert name in BROKER_SETTINGS
            assert factor >= 1


def test_a_single_broker_needs_one_replica_and_does_not_wait_for_members() -> None:
    config = BrokerConfig()
    assert config.offsets_topic_replication_factor == 1
    assert config.transaction_state_log_replication_factor == 1
    assert config.transaction_state_log_min_isr == 1
    assert config.group_initial_rebalance_delay_ms == 0
    assert [str(endpoint) for endpoint in config.endpoints] == ["PLAINTEXT://127.0.0.1:9092"]


PRECEDENCE = [
    ({}, "1", "default"),
    ({"file": "2"}, "2", "a.properties"),
    ({"file": "2", "environment": "3"}, "3", "environment"),
    ({"file": "2", "environment": "3", "set": "4"}, "4", "--set"),
    ({"file": "2", "set": "4"}, "4", "--set"),
    ({"environment": "3", "set": "4"}, "4", "--set"),
]


@pytest.mark.parametrize(("given", "value", "where"), PRECEDENCE)
def test_static_precedence(given: dict[str, str], value: str, where: str) -> None:
    config, notices = load(
        file_text=f"num.partitions={given['file']}" if "file" in given else "",
        file_name="a.properties",
        environment={"KAFKA_NUM_PARTITIONS": given["environment"]} if "environment" in given else {},
        assignments=[f"num.partitions={given['set']}"] if "set" in given else [],
    )
    assert (config.text("num.partitions"), config.where("num.partitions"), notices) == (value, where, [])


def test_dynamic_values_beat_static_ones_and_this_broker_beats_the_cluster() -> None:
    config, _ = load(assignments=["message.max.bytes=1000"])
    changed: list[frozenset[str]] = []
    config.on_change(changed.append)
    assert config.set_dynamic({"message.max.bytes": "2000"}, {}) == []
    assert (config.message_max_bytes, config.source("message.max.bytes")) == (2000, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    config.set_dynamic({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    assert (config.message_max_bytes, config.where("message.max.bytes")) == (3000, "dynamic")
    assert [synonym.text for synonym in config.synonyms("message.max.bytes")] == ["3000", "2000", "1000", "1048588"]
    config.set_dynamic({}, {})
    assert config.message_max_bytes == 1000
    assert changed == [frozenset({"message.max.bytes"})] * 3


def test_a_bad_stored_value_costs_a_line_and_not_the_broker() -> None:
    config = BrokerConfig()
    (notice,) = config.set_dynamic({"message.max.bytes": "lots", "num.partitions": "7", "made.up": "x"}, {})
    assert "message.max.bytes" in notice.text
    assert (config.message_max_bytes, config.num_partitions) == (1048588, 1)
    (notice,) = config.set_dynamic({}, {"listener.name.plaintext.max.connections": "lots"})
    assert "listener.name.plaintext.max.connections" in notice.text


@pytest.mark.parametrize(
    ("name", "is_warning", "words"),
    [
        ("log.retention.mss", True, "did you mean log.retention.ms?"),
        ("qqqqqqqqqqqqqq", True, "unknown setting"),
        ("num.io.threads", False, "known to Kafka"),
        ("process.roles", False, "known to Kafka"),
        ("inter.broker.protocol.version", False, "known to Kafka"),
        ("listener.name.external.ssl.provider", False, "known to Kafka"),
    ],
)
def test_unserved_names_never_stop_a_start(name: str, is_warning: bool, words: str) -> None:
    _, notices = load(file_text=f"{name}=x", file_name="server.properties")
    (notice,) = notices
    assert notice.is_warning is is_warning
    assert words in notice.text
    assert name in notice.text
    assert "\n" not in notice.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num.partitions=many", ["num.partitions", "many", "server.properties"]),
        ("num.partitions=0", ["num.partitions", "at least 1"]),
        ("log.segment.bytes=99999999999", ["log.segment.bytes"]),
        ("auto.create.topics.enable=yes", ["auto.create.topics.enable", "true or false"]),
        ("log.cleanup.policy=shrink", ["log.cleanup.policy", "compact, delete"]),
        ("compression.type=rar", ["compression.type"]),
        ("listeners=PLAINTEXT://host", ["listeners", "NAME://host:port"]),
        ("listeners=FOO://host:1", ["listener.security.protocol.map", "FOO"]),
        ("listener.security.protocol.map=A:QUIC\nlisteners=A://host:1", ["QUIC is none of"]),
        ("listeners=PLAINTEXT://:1,PLAINTEXT://:2", ["different name"]),
        ("listeners=", ["at least one address"]),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:1", ["no address"]),
        (
            "listeners=PLAINTEXT://:1\nadvertised.listeners=OTHER://h:1\n"
            "listener.security.protocol.map=OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            ["OTHER"],
        ),
        ("zookeeper.connect=zoo:2181", ["broker.id", "number of its own"]),
        ("zookeeper.connect=zoo:port\nbroker.id=1", ["zookeeper.connect", "host:port"]),
        ("zookeeper.connect=zoo:2181\nbroker.id=1\ninter.broker.listener.name=B", ["inter.broker.listener.name", "B is not one"]),
        ("zookeeper.connect=zoo:2181\nbroker.id=1\nzookeeper.set.acl=true", ["zookeeper.set.acl", "ottla.zookeeper.digest"]),
        ("zookeeper.connect=zoo:2181\nbroker.id=1\nottla.zookeeper.sasl=brokers", ["ottla.zookeeper.sasl", "user:password"]),
        ("broker.id=1\nnode.id=2", ["broker.id", "node.id"]),
        ("a=\\u00zz", ["server.properties", "escape"]),
        ("max.connections.per.ip.overrides=10.0.0.1:5,nonsense", ["max.connections.per.ip.overrides", "host:number"]),
    ],
)
def test_a_bad_value_stops_the_start_with_one_line(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file_text=text, file_name="server.properties")
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_an_empty_value_of_an_optional_setting_is_no_problem() -> None:
    given, _notices = gather(tuple(BROKER_SETTINGS), file_text="log.retention.ms=\nlog.retention.hours=x\n", file_name="f")
    assert [line for line in problems(given) if "log.retention.ms" in line] == []
    assert len(problems(given)) == 1
    assert load(file_text="log.retention.ms=\n")[0].log_retention_ms is None


def test_a_compose_file_for_apaches_image_starts() -> None:
    environment = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": "PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:9092",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
        "KAFKA_JMX_PORT": "9101",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_BOOTSTRAP_SERVERS": "other:9092",
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "PATH": "/bin",
    }
    config, notices = load(environment=environment)
    assert config.this_broker_id == 1
    assert [str(endpoint) for endpoint in config.endpoints] == ["PLAINTEXT://broker:29092", "PLAINTEXT_HOST://0.0.0.0:9092"]
    assert [endpoint.port for endpoint in config.advertised_endpoints] == [29092, 9092]
    assert config.ottla_cluster_id == "4L6g3nShT-eMCtK--X86sw"
    assert config.data_directories == ("/tmp/kraft-combined-logs",)
    (jvm,) = [notice for notice in notices if notice.is_warning]
    assert "KAFKA_HEAP_OPTS" in jvm.text
    assert "KAFKA_JMX_PORT" in jvm.text


@pytest.mark.parametrize(
    ("assignments", "retention_ms"),
    [
        ([], 7 * DAY_MS),
        (["log.retention.hours=1"], 3_600_000),
        (["log.retention.hours=1", "log.retention.minutes=2"], 120_000),
        (["log.retention.hours=1", "log.retention.minutes=2", "log.retention.ms=3"], 3),
        (["log.retention.ms=-1", "log.retention.hours=1"], -1),
        (["log.retention.hours=-1"], -1),
    ],
)
def test_retention_takes_the_finest_unit_that_is_set(assignments: list[str], retention_ms: int) -> None:
    config, _ = load(assignments=assignments)
    assert config.log_config({}).retention_ms == retention_ms
    assert config.log_config({"retention.ms": "9"}).retention_ms == 9


def test_topic_synonyms_name_the_one_in_force_first() -> None:
    config, _ = load(assignments=["log.retention.hours=1"])
    assert [(synonym.name, synonym.source) for synonym in config.topic_synonyms("retention.ms", {"retention.ms": "5"})] == [
        ("retention.ms", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.hours", ConfigSource.STATIC_BROKER),
    ]


def test_a_dynamic_broker_value_reaches_the_logs() -> None:
    config = BrokerConfig()
    config.set_dynamic({"log.cleanup.policy": "compact", "log.roll.ms": "60000"}, {})
    settings = config.log_config({})
    assert (settings.is_compacted, settings.is_deleted, settings.segment_ms) == (True, False, 60000)


@pytest.mark.parametrize(
    ("overrides", "level"),
    [
        ({}, None),
        ({"compression.gzip.level": "7"}, None),  # the level of a codec that this topic does not use
        ({"compression.type": "gzip"}, None),
        ({"compression.type": "gzip", "compression.gzip.level": "7"}, 7),
        ({"compression.type": "lz4"}, None),
        ({"compression.type": "lz4", "compression.lz4.level": "12"}, 12),
        ({"compression.type": "zstd"}, None),
        ({"compression.type": "zstd", "compression.zstd.level": "-3"}, -3),
        ({"compression.type": "snappy", "compression.zstd.level": "4"}, None),
    ],
)
def test_the_level_is_that_of_the_topics_codec(overrides: dict[str, str], level: int | None) -> None:
    assert BrokerConfig().log_config(overrides).compression_level == level
    of_broker = BrokerConfig({"compression.zstd.level": "9"}).log_config({"compression.type": "zstd"})
    assert of_broker.compression_level == 9


def test_what_is_looked_at_inside_of_batches() -> None:
    config, _ = load(assignments=("ottla.validate.records=true", "ottla.batch.decompressed.max.bytes=1048576"))
    assert config.log_config({}).is_strict
    assert config.log_config({}).decompressed_bytes_max == 1048588, "a batch that may be sent may be looked into"
    assert config.log_config({"max.message.bytes": "5000000"}).decompressed_bytes_max == 5000000
    assert not BrokerConfig().log_config({}).is_strict


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"made.up": "1"}, "Unknown topic config name"),
        ({"retention.ms": None}, "Null value"),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"segment.bytes": "1000"}, "at least 1048576"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "no more than 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "at least 0"),
        ({"compression.gzip.level": "0"}, "at least 1"),
        ({"remote.storage.enable": "true"}, "no tiered storage"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "larger than"),
        ({"leader.replication.throttled.replicas": "1-2"}, "partition:broker"),
    ],
)
def test_what_a_topic_may_not_have(overrides: dict[str, str | None], words: str) -> None:
    with pytest.raises(ApiError) as caught:
        BrokerConfig().check_topic(overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert words in caught.value.message


def test_what_a_topic_may_have() -> None:
    BrokerConfig().check_topic(
        {"cleanup.policy": "compact,delete", "compression.gzip.level": "-1", "leader.replication.throttled.replicas": "0:1,2:3"}
    )


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"made.up": "1"}, "Unknown group config name"),
        ({"consumer.session.timeout.ms": "1000"}, "than or equal to group.consumer.min.session.timeout.ms"),
        ({"consumer.heartbeat.interval.ms": "x"}, "Not a number"),
        ({"consumer.session.timeout.ms": None}, "Null value"),
        ({"share.record.lock.duration.ms": "14999"}, "greater than or equal to group.share.min.record.lock.duration.ms"),
        ({"share.session.timeout.ms": "1000"}, "than or equal to group.share.min.session.timeout.ms"),
        ({"share.heartbeat.interval.ms": "16000"}, "less than or equal to group.share.max.heartbeat.interval.ms"),
        ({"share.delivery.count.limit": "11"}, "less than or equal to group.share.max.delivery.count.limit"),
        ({"share.isolation.level": "serializable"}, "read_committed, read_uncommitted"),
        ({"share.auto.offset.reset": "by_duration:PT-1H"}, "by_duration"),
        ({"share.renew.acknowledge.enable": "maybe"}, "true or false"),
    ],
)
def test_what_a_group_may_not_have(overrides: dict[str, str | None], words: str) -> None:
    with pytest.raises(ApiError) as caught:
        BrokerConfig().check_group(overrides)
    assert words in caught.value.message


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_session_is_longer_than_the_time_between_two_heartbeats(kind: str) -> None:
    config = load(assignments=(f"group.{kind}.min.session.timeout.ms=1000",))[0]
    with pytest.raises(ApiError, match=f"{kind}.session.timeout.ms must be larger"):
        config.check_group({f"{kind}.session.timeout.ms": "5000"})


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["group.share.record.lock.duration.ms=14000"], "group.share.record.lock.duration.ms must be between 15000 and 60000"),
        (["group.share.min.delivery.count.limit=5", "group.share.delivery.count.limit=4"], "between 5 and 10"),
        (["group.share.max.share.sessions=10"], "group.share.max.share.sessions is smaller"),
    ],
)
def test_what_share_groups_may_have_must_agree(assignments: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(assignments=assignments)
    assert words in str(caught.value)


def test_what_a_share_group_may_have() -> None:
    config = BrokerConfig()
    own = {
        "share.auto.offset.reset": "by_duration:P1DT2H",
        "share.partition.max.record.locks": "300",
        "share.isolation.level": "read_committed",
    }
    config.check_group(own)
    assert config.group_value("share.auto.offset.reset", own) == "by_duration:P1DT2H"
    assert config.group_value("share.partition.max.record.locks", own) == 300
    assert config.group_value("share.renew.acknowledge.enable", own) is True
    assert [synonym.text for synonym in config.group_synonyms("share.isolation.level", own)] == ["read_committed", "read_uncommitted"]


def test_a_groups_value_stays_within_todays_bounds() -> None:
    config = BrokerConfig()
    assert config.group_value("consumer.session.timeout.ms", {}) == 45000
    assert config.group_value("consumer.session.timeout.ms", {"consumer.session.timeout.ms": "50000"}) == 50000
    narrow, _ = load(assignments=["group.consumer.max.session.timeout.ms=46000"])
    assert narrow.group_value("consumer.session.timeout.ms", {"consumer.session.timeout.ms": "50000"}) == 46000


@pytest.mark.parametrize(
    ("name", "is_cluster_default", "code"),
    [("num.partitions", False, ErrorCode.INVALID_REQUEST), ("sasl.enabled.mechanisms", True, ErrorCode.INVALID_REQUEST)],
)
def test_what_a_broker_cannot_change_while_it_runs(name: str, is_cluster_default: bool, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        BrokerConfig().check_broker({name: "1"}, is_cluster_default=is_cluster_default)
    assert caught.value.code is code


def test_a_class_attribute_is_the_setting_and_an_instance_attribute_its_value() -> None:
    assert NetworkSettings.socket_request_max_bytes.name == "socket.request.max.bytes"
    assert BrokerConfig().socket_request_max_bytes == 104857600


def test_without_listeners_the_ports_are_those_that_are_advertised() -> None:
    """Files for Confluent's image set only `advertised.listeners`; the image's script listens on these ports at every address."""
    environment_of_image = {
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092, PLAINTEXT_HOST://localhost:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    }
    config, notices = load(environment=environment_of_image)
    assert [str(endpoint) for endpoint in config.endpoints] == ["PLAINTEXT://:29092", "PLAINTEXT_HOST://:9092"]
    assert [str(endpoint) for endpoint in config.advertised_endpoints] == ["PLAINTEXT://broker:29092", "PLAINTEXT_HOST://localhost:9092"]
    assert [(notice.is_warning, "listeners is not set" in notice.text) for notice in notices] == [(False, True)]
    given, _ = load(environment=environment_of_image, assignments=["listeners=PLAINTEXT://127.0.0.1:29092,PLAINTEXT_HOST://127.0.0.1:9092"])
    assert [endpoint.host for endpoint in given.endpoints] == ["127.0.0.1", "127.0.0.1"]
    with pytest.raises(ConfigError, match="Expected NAME://host:port"):
        load(assignments=["advertised.listeners=nonsense"])


def test_with_a_zookeeper_kafkas_own_defaults_hold() -> None:
    alone, _ = load()
    member, notices = load(environment={"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181/kafka", "KAFKA_BROKER_ID": "7"})
    assert alone.is_single_broker and not member.is_single_broker and notices == []
    names = ("offsets.topic.replication.factor", "transaction.state.log.min.isr", "group.initial.rebalance.delay.ms")
    assert [alone.value(name) for name in names] == [1, 1, 0] and [member.value(name) for name in names] == [3, 2, 3000]
    assert member.zookeeper_address == ((("zookeeper", 2181),), "/kafka") and member.this_broker_id == 7
    assert [endpoint.host for endpoint in member.endpoints] == [""]


def test_users_that_an_image_would_make_are_missed_aloud() -> None:
    _, notices = load(environment={"KAFKA_CLIENT_USERS": "bob", "KAFKA_CLIENT_PASSWORDS": "hush"})
    assert all(notice.is_warning and "access is NOT restricted" in notice.text for notice in notices) and len(notices) == 2
    assert "hush" not in str(notices)


def test_the_listener_for_brokers_is_the_named_one_or_the_first_of_its_protocol() -> None:
    listeners = ["listeners=A://:1,B://:2", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"]
    assert load(assignments=listeners)[0].inter_broker_listener == "A"
    assert load(assignments=[*listeners, "inter.broker.listener.name=B"])[0].inter_broker_listener == "B"


def test_groups_are_bounded_where_kafka_has_no_limit() -> None:
    config = load()[0]
    assert (config.group_max_size, config.group_consumer_max_size, config.group_share_max_size) == (5000, 5000, 200)


BUILT_NAMES = re.compile(r"group\.(consumer|share|streams)\.(min|max)\.|compression\.\w+\.level|sasl\.oauthbearer\.")
"""Names of settings that the code composes: bounds of groups, levels of codecs, options of a listener's tokens."""
WITHOUT_EFFECT = re.compile(r"Accepted without effect|no tiered storage|Only PEM is supported|The only supported cipher")


def test_a_setting_has_an_effect_or_says_that_it_has_none() -> None:
    words: Counter[str] = Counter()
    for path in Path(ottla.__path__[0]).rglob("*.py"):
        words.update(re.findall(r"[\w.-]+", path.read_text(encoding="utf-8")))
    idle = []
    for table in (BROKER_SETTINGS, TOPIC_SETTINGS, GROUP_SETTINGS):
        for name, setting in table.items():
            is_read = words[name] > 1 or any(word.endswith(f".{setting.attribute}") for word in words)
            if not is_read and not BUILT_NAMES.search(name) and not WITHOUT_EFFECT.search(setting.doc):
                idle.append(name)
    assert idle == []


def test_no_refusal_and_no_notice_shows_a_secret() -> None:
    """An invalid value is shown in the line that refuses it, unless the setting may hold a secret."""
    of_a_listener = ("listeners=X://:1", "listener.security.protocol.map=X:SASL_PLAINTEXT", "sasl.enabled.mechanisms=PLAIN")
    secret = [name for name, setting in BROKER_SETTINGS.items() if setting.is_sensitive]
    values = ("hush", "=hush", "[hush", "hush:hush:x", 'x required hush="hush"', 'x required hush="hush";')
    refused: set[str] = set()
    for name, value, basis in product(secret, values, ((), of_a_listener, ("zookeeper.connect=a:1", "broker.id=1"))):
        for named in (name, f"listener.name.x.plain.{name}"):
            try:
                texts = [notice.text for notice in load(assignments=[*basis, f"{named}={value}"])[1]]
            except ConfigError as error:
                texts = [str(error)]
                refused.add(name)
            assert not any("hush" in text for text in texts), (named, value, texts)
    assert {"ottla.metrics.credentials", "ottla.zookeeper.sasl", "ottla.sasl.plain.users", "sasl.jaas.config"} <= refused


def test_an_error_in_an_argument_does_not_name_the_file() -> None:
    with pytest.raises(ConfigError, match=r"^--set: 'num\.partitions' is not of the form key=value$"):
        load(file_text="num.partitions=2", file_name="server.properties", assignments=["num.partitions"])


def test_a_changed_setting_of_one_listener_is_announced_when_the_file_is_read_again() -> None:
    limit = "listener.name.plaintext.max.connection.creation.rate"
    config, announced = BrokerConfig({limit: "5"}), list[frozenset[str]]()
    config.on_change(announced.append)
    assert config.take_over(BrokerConfig({limit: "7"})) == {limit}
    assert announced == [{limit}]
    assert config.take_over(BrokerConfig({limit: "7"})) == frozenset()
    assert announced == [{limit}]
