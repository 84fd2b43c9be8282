"""DescribeConfigs: values, sources and synonyms of topics, brokers and groups."""

from __future__ import annotations

import pytest

from ottla.base.config import BROKER_SETTINGS, load
from ottla.base.errors import ErrorCode
from ottla.controller.api import NewTopic
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResult
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.handlers.admin_world import AdminWorld, DenyAll

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


def described(world: AdminWorld, kind: int, name: str, *keys: str, version: int = 4) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    (result,) = world.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), version).results
    assert isinstance(result, DescribeConfigsResult)
    return result


def set_config(world: AdminWorld, kind: int, name: str, key: str, value: str) -> None:
    configs = [AlterableConfig(name=key, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    assert world.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_in_every_version(version: int) -> None:
    config, _ = load(assignments=["log.retention.hours=1"])
    world = AdminWorld(config)
    world.cluster.create(NewTopic(name="a", configs={"segment.ms": "9"}))
    configs = {entry.name: entry for entry in described(world, TOPIC, "a", version=version).configs}
    assert len(configs) == 39
    assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("9", 1)
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("3600000", 4, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in retention.synonyms] == [
        ("log.retention.hours", "1", 4),
    ]
    if version >= 3:
        assert retention.config_type == 5


def test_only_the_keys_asked_for() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    assert [entry.name for entry in described(world, TOPIC, "a", "retention.ms", "no.such").configs] == ["retention.ms"]


def test_documentation_when_asked() -> None:
    world = AdminWorld()
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="0", configuration_keys=["num.partitions"])
    (result,) = world.ask(DescribeConfigsRequest(resources=[resource], include_documentation=True)).results
    assert result.configs[0].documentation == BROKER_SETTINGS["num.partitions"].doc
    assert result.configs[0].synonyms == []


def test_a_broker() -> None:
    world = AdminWorld()
    set_config(world, BROKER, "", "message.max.bytes", "5000")
    configs = {entry.name: entry for entry in described(world, BROKER, "0").configs}
    assert len(configs) == sum(not setting.is_internal for setting in BROKER_SETTINGS.values())
    assert (configs["message.max.bytes"].value, configs["message.max.bytes"].config_source) == ("5000", 3)
    assert configs["num.partitions"].read_only
    assert not configs["message.max.bytes"].read_only
    (default,) = described(world, BROKER, "").configs
    assert (default.name, default.value, default.config_source) == ("message.max.bytes", "5000", 3)


def test_what_was_set_and_is_of_no_use_here_is_shown() -> None:
    """The rate setting belongs to a function that this broker lacks. The unknown setting's value may be a secret."""
    world = AdminWorld()
    rate, unknown = "remote.log.manager.copy.max.bytes.per.second", "made.up"
    for name in ("0", ""):
        set_config(world, BROKER, name, rate, f"100{name}")
    set_config(world, BROKER, "0", unknown, "x")
    own = {entry.name: entry for entry in described(world, BROKER, "0", rate, unknown).configs}
    assert (own[rate].value, own[rate].config_source, own[rate].is_sensitive) == ("1000", 2, False)
    assert [(synonym.value, synonym.source) for synonym in own[rate].synonyms] == [("1000", 2), ("100", 3)]
    assert (own[unknown].value, own[unknown].is_sensitive, [found.value for found in own[unknown].synonyms]) == (None, True, [None])
    (default,) = described(world, BROKER, "").configs
    assert (default.name, default.value, default.config_source) == (rate, "100", 3)


def test_settings_of_a_listener_are_shown_as_what_they_are() -> None:
    """A path is shown, for it is no secret, though `.keystore` begins with "key"."""
    world = AdminWorld()
    own = "listener.name.plaintext."
    for name, value in (("ssl.keystore.location", "/k.pem"), ("ssl.key.password", "s3cret"), ("ssl.client.auth", "required")):
        set_config(world, BROKER, "0", f"{own}{name}", value)
    configs = {entry.name.removeprefix(own): entry for entry in described(world, BROKER, "0").configs if entry.name.startswith(own)}
    assert {name: (entry.value, entry.is_sensitive, entry.read_only) for name, entry in configs.items()} == {
        "ssl.keystore.location": ("/k.pem", False, False), "ssl.key.password": (None, True, False),
        "ssl.client.auth": ("required", False, False),
    }  # fmt: skip


def test_a_dynamic_broker_value_is_the_topics() -> None:
    world = AdminWorld()
    world.cluster.create("a")
    set_config(world, BROKER, "", "message.max.bytes", "5000")
    (entry,) = described(world, TOPIC, "a", "max.message.bytes").configs
    assert (entry.value, entry.config_source) == ("5000", 3)


def test_a_subscription_to_client_metrics() -> None:
    """KIP-714. A subscription without settings has the defaults. As in Kafka, the answer has no synonyms of them."""
    world = AdminWorld()
    set_config(world, CLIENT_METRICS, "m", "interval.ms", "1000")
    for name, interval in (("m", ("1000", 7, [("interval.ms", "1000", 7)])), ("other", ("300000", 5, []))):
        configs = {entry.name: entry for entry in described(world, CLIENT_METRICS, name).configs}
        assert list(configs) == ["interval.ms", "match", "metrics"]
        found = configs["interval.ms"]
        assert (found.value, found.config_source, [(one.name, one.value, one.source) for one in found.synonyms]) == interval
        assert (configs["metrics"].value, configs["match"].value, configs["match"].config_source) == ("", "", 5)


def test_an_unknown_group_has_the_defaults() -> None:
    world = AdminWorld()
    shown = {entry.name: entry.value for entry in described(world, GROUP, "g").configs}
    assert {name: shown[name] for name in shown if name.startswith("consumer.")} == {
        "consumer.assignment.interval.ms": "1000",
        "consumer.assignor.offload.enable": "true",
        "consumer.heartbeat.interval.ms": "5000",
        "consumer.session.timeout.ms": "45000",
    }
    assert (shown["share.auto.offset.reset"], shown["share.renew.acknowledge.enable"]) == ("latest", "true")
    set_config(world, GROUP, "g", "consumer.session.timeout.ms", "50000")
    (entry,) = described(world, GROUP, "g", "consumer.session.timeout.ms").configs
    assert (entry.value, entry.config_source) == ("50000", 8)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (99, "m", ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused(kind: int, name: str, code: ErrorCode) -> None:
    result = described(AdminWorld(), kind, name)
    assert (result.error_code, result.resource_name, result.configs) == (code, name, [])


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (BROKER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (CLIENT_METRICS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_rights(kind: int, code: ErrorCode) -> None:
    assert described(AdminWorld(authorizer=DenyAll()), kind, "0").error_code == code


def test_a_broker_says_its_number_whether_given_or_not() -> None:
    """Tools read the number from this answer; Kafka's brokers give it under both names."""
    for assignments, number in (((), "0"), (("node.id=4",), "4"), (("broker.id=4",), "4")):
        config, _ = load(assignments=assignments)
        world = AdminWorld(config)
        world.broker.broker_id = int(number)
        configs = {entry.name: entry.value for entry in described(world, BROKER, number, "broker.id", "node.id").configs}
        assert configs == {"broker.id": number, "node.id": number}


def test_what_is_for_tests_is_not_shown() -> None:
    names = [entry.name for entry in described(AdminWorld(), BROKER, "0").configs]
    assert names == sorted(name for name, setting in BROKER_SETTINGS.items() if not setting.is_internal)
    assert "group.consumer.regex.refresh.interval.ms" not in names
