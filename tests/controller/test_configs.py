"""Changes of settings and quotas: the written operations, the refusals, the values in force afterwards, and the same values after a
restart."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import (
    ALL_BROKERS,
    CONFIG_BROKER,
    CONFIG_CLIENT_METRICS,
    CONFIG_GROUP,
    CONFIG_TOPIC,
    BrokerMetadata,
    ConfigPut,
    QuotaEntity,
)
from ottla.base.config import BrokerConfig, load
from ottla.base.errors import ErrorCode
from ottla.base.ports import Set, StoreNode
from ottla.controller import configs, settings_memory
from ottla.controller.api import (
    ConfigEntry,
    ConfigOperation,
    ConfigRequest,
    ConfigResult,
    NewTopic,
    QuotaRequest,
    QuotaResult,
    ScramRequest,
    ScramResult,
)
from ottla.controller.configs import decide_alter_configs
from ottla.controller.loading import build_state
from ottla.controller.state import RESOURCE_BYTES
from ottla.metadata_store import znodes
from tests.controller.cluster import Cluster

SET, DELETE, APPEND, SUBTRACT = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND, ConfigOperation.SUBTRACT
Row = tuple[str, ConfigOperation, str | None]


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.create("t")
    return made


def alter(
    cluster: Cluster, kind: int, name: str, *rows: Row, is_replacing: bool = False, validate_only: bool = False
) -> tuple[ErrorCode, str]:
    entries = [ConfigEntry(name=key, operation=operation, value=value) for key, operation, value in rows]
    answers: list[list[ConfigResult]] = []
    request = ConfigRequest(resource_type=kind, name=name, entries=entries, is_replacing=is_replacing)
    cluster.loop.alter_configs([request], validate_only, answers.append)
    ((result,),) = answers
    return result.error, result.message or ""


STEPS: list[tuple[list[Row], dict[str, str]]] = [
    ([("retention.ms", SET, "5")], {"retention.ms": "5"}),
    ([("segment.ms", SET, "9")], {"retention.ms": "5", "segment.ms": "9"}),
    ([("retention.ms", DELETE, None)], {"segment.ms": "9"}),
    ([("cleanup.policy", APPEND, "compact")], {"segment.ms": "9", "cleanup.policy": "delete,compact"}),
    ([("cleanup.policy", APPEND, "compact")], {"segment.ms": "9", "cleanup.policy": "delete,compact"}),
    ([("cleanup.policy", SUBTRACT, "delete")], {"segment.ms": "9", "cleanup.policy": "compact"}),
    ([("segment.ms", DELETE, None), ("cleanup.policy", DELETE, None)], {}),
    ([("never.set", DELETE, None)], {}),
]


def test_a_list_grows_only_as_long_as_an_answer_can_show_it(cluster: Cluster) -> None:
    name = "leader.replication.throttled.replicas"
    pieces = [",".join(f"{number}:0" for number in range(start, start + 4_000)) for start in (10_000, 20_000)]
    assert alter(cluster, CONFIG_TOPIC, "t", (name, SET, pieces[0])) == (ErrorCode.NONE, "")
    assert alter(cluster, CONFIG_TOPIC, "t", (name, APPEND, pieces[0])) == (ErrorCode.NONE, "")
    error, message = alter(cluster, CONFIG_TOPIC, "t", (name, APPEND, pieces[1]))
    assert error is ErrorCode.INVALID_CONFIG and name in message
    assert cluster.metadata.configs(CONFIG_TOPIC, "t") == {name: pieces[0]}
    assert alter(cluster, CONFIG_TOPIC, "t", (name, SUBTRACT, pieces[0])) == (ErrorCode.NONE, "")
    assert cluster.metadata.configs(CONFIG_TOPIC, "t") == {name: ""}


def test_settings_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.create("t")
    list_name, group_name = "leader.replication.throttled.replicas", "consumer.session.timeout.ms"
    monkeypatch.setattr(settings_memory, "MEMORY_PARTS", cluster.config.ottla_memory_max_bytes // (10 * RESOURCE_BYTES))
    long = ",".join(f"{number}:0" for number in range(10, 70))
    assert alter(cluster, CONFIG_TOPIC, "t", (list_name, SET, long)) == (ErrorCode.NONE, "")
    made = [alter(cluster, CONFIG_GROUP, f"g{number}", (group_name, SET, "50000"))[0] for number in range(8)]
    assert made.count(ErrorCode.NONE) == 2 and made[2:] == [ErrorCode.POLICY_VIOLATION] * 6
    assert alter(cluster, CONFIG_TOPIC, "t", (list_name, APPEND, "70:0"))[0] is ErrorCode.POLICY_VIOLATION
    assert cluster.create(NewTopic(name="u", configs={list_name: long}))[0].error is ErrorCode.POLICY_VIOLATION
    assert alter(cluster, CONFIG_TOPIC, "t", (list_name, SET, "10:0")) == (ErrorCode.NONE, "")
    assert alter(cluster, CONFIG_GROUP, "g3", (group_name, SET, "50000")) == (ErrorCode.NONE, "")
    assert Cluster(cluster.store.reopened()).metadata.settings_bytes == cluster.metadata.settings_bytes
    cluster.delete("t")
    assert cluster.metadata.settings_bytes == 3 * (RESOURCE_BYTES + len("50000"))


def test_incremental_steps(cluster: Cluster) -> None:
    for rows, expected in STEPS:
        assert alter(cluster, CONFIG_TOPIC, "t", *rows) == (ErrorCode.NONE, "")
        assert cluster.metadata.configs(CONFIG_TOPIC, "t") == expected
        assert Cluster(cluster.store.reopened()).metadata.configs(CONFIG_TOPIC, "t") == expected


def test_replacing_forgets_what_is_not_named(cluster: Cluster) -> None:
    alter(cluster, CONFIG_TOPIC, "t", ("retention.ms", SET, "5"))
    alter(cluster, CONFIG_TOPIC, "t", ("segment.ms", SET, "9"), is_replacing=True)
    assert cluster.metadata.configs(CONFIG_TOPIC, "t") == {"segment.ms": "9"}


def test_the_broker_is_sent_which_topic_changed(cluster: Cluster) -> None:
    cluster.replicas.configs.clear()
    alter(cluster, CONFIG_TOPIC, "t", ("retention.ms", SET, "5"))
    assert cluster.replicas.configs == [(CONFIG_TOPIC, "t")]


def test_validate_only(cluster: Cluster) -> None:
    assert alter(cluster, CONFIG_TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True)[0] is ErrorCode.NONE
    assert alter(cluster, CONFIG_TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True)[0] is ErrorCode.INVALID_CONFIG
    assert cluster.metadata.configs(CONFIG_TOPIC, "t") == {}


REFUSED: list[tuple[int, str, list[Row], ErrorCode]] = [
    (CONFIG_TOPIC, "no", [("retention.ms", SET, "5")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (CONFIG_TOPIC, "a/b", [], ErrorCode.INVALID_TOPIC_EXCEPTION),
    (CONFIG_TOPIC, "t", [("made.up", SET, "5")], ErrorCode.INVALID_CONFIG),
    (CONFIG_TOPIC, "t", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
    (CONFIG_TOPIC, "t", [("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
    (CONFIG_TOPIC, "t", [("cleanup.policy", APPEND, "shrink")], ErrorCode.INVALID_CONFIG),
    (CONFIG_TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, "0", [("num.partitions", SET, "5")], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, "0", [("num.partitions", DELETE, None)], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, "0", [("ottla.sasl.plain.users.alice", SET, "secret")], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, "0", [("cordoned.log.dirs", SET, "/none")], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, "0", [("cordoned.log.dirs", SET, "*,/none")], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, ALL_BROKERS, [("cordoned.log.dirs", SET, "*")], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, "0", [("message.max.bytes", SET, "x")], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, "9", [("message.max.bytes", SET, "1")], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, "x", [("message.max.bytes", SET, "1")], ErrorCode.INVALID_REQUEST),
    (CONFIG_GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], ErrorCode.INVALID_REQUEST),
    (CONFIG_GROUP, "g", [("consumer.session.timeout.ms", SET, "1")], ErrorCode.INVALID_CONFIG),
    (CONFIG_BROKER, ALL_BROKERS, [("ssl.keystore.location", SET, "/x.pem")], ErrorCode.INVALID_REQUEST),
    (CONFIG_BROKER, ALL_BROKERS, [("listener.name.a.ssl.keystore.location", SET, "/x.pem")], ErrorCode.INVALID_REQUEST),
    (8, "0", [], ErrorCode.INVALID_REQUEST),
    (CONFIG_CLIENT_METRICS, "", [("interval.ms", SET, "1000")], ErrorCode.INVALID_REQUEST),
    (CONFIG_CLIENT_METRICS, "m", [("interval.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
    (CONFIG_CLIENT_METRICS, "m", [("metrics", APPEND, "a")], ErrorCode.INVALID_CONFIG),
]


@pytest.mark.parametrize(("kind", "name", "rows", "error"), REFUSED)
def test_refused(cluster: Cluster, kind: int, name: str, rows: list[Row], error: ErrorCode) -> None:
    before = cluster.store.nodes()
    code, message = alter(cluster, kind, name, *rows)
    assert code is error
    assert message
    assert cluster.store.nodes() == before


@pytest.mark.parametrize(
    "name",
    [
        "ssl.truststore.location", "ssl.truststore.certificates", "listener.name.clients.ssl.truststore.certificates",
        "listener.name.clients.plain.sasl.jaas.config", "ottla.sasl.plain.users", "sasl.oauthbearer.jwks.endpoint.url",
    ],
)  # fmt: skip
def test_settings_that_say_who_may_log_in_can_be_kept_from_clients(name: str) -> None:
    """A client with the right ALTER on the cluster could otherwise set a trust store of its own, and log in as a super user."""
    cluster = Cluster(config=load(assignments=["ottla.login.settings.alterable=false"])[0])
    for operation in (SET, DELETE):
        error, message = alter(cluster, CONFIG_BROKER, "0", (name, operation, "x" if operation is SET else None))
        assert error is ErrorCode.INVALID_REQUEST and "ottla.login.settings.alterable" in message
    assert alter(cluster, CONFIG_BROKER, "0", ("message.max.bytes", SET, "7000"))[0] is ErrorCode.NONE
    assert "ottla.login.settings.alterable" not in alter(Cluster(), CONFIG_BROKER, "0", (name, SET, "x"))[1]


def test_a_broker_setting_takes_effect_and_survives(cluster: Cluster) -> None:
    assert alter(cluster, CONFIG_BROKER, ALL_BROKERS, ("message.max.bytes", SET, "7000"))[0] is ErrorCode.NONE
    assert cluster.config.message_max_bytes == 7000
    alter(cluster, CONFIG_BROKER, "0", ("message.max.bytes", SET, "8000"))
    assert cluster.config.message_max_bytes == 8000
    assert Cluster(cluster.store.reopened()).config.message_max_bytes == 8000
    alter(cluster, CONFIG_BROKER, "0", ("message.max.bytes", DELETE, None))
    assert cluster.config.message_max_bytes == 7000


def test_a_group_setting_survives(cluster: Cluster) -> None:
    assert alter(cluster, CONFIG_GROUP, "my/group", ("consumer.session.timeout.ms", SET, "50000"))[0] is ErrorCode.NONE
    again = Cluster(cluster.store.reopened())
    assert again.metadata.configs(CONFIG_GROUP, "my/group") == {"consumer.session.timeout.ms": "50000"}
    assert again.metadata.config_names(CONFIG_GROUP) == ["my/group"]


def test_a_subscription_to_client_metrics_survives_until_nothing_of_it_is_set(cluster: Cluster) -> None:
    assert alter(cluster, CONFIG_CLIENT_METRICS, "my/own", ("interval.ms", SET, "1000"))[0] is ErrorCode.NONE
    alter(cluster, CONFIG_CLIENT_METRICS, "never", ("interval.ms", DELETE, None))
    again = Cluster(cluster.store.reopened())
    assert again.metadata.configs(CONFIG_CLIENT_METRICS, "my/own") == {"interval.ms": "1000"}
    assert again.metadata.config_names(CONFIG_CLIENT_METRICS) == ["my/own"]
    alter(again, CONFIG_CLIENT_METRICS, "my/own", ("interval.ms", DELETE, None))
    assert again.metadata.config_names(CONFIG_CLIENT_METRICS) == []


def test_one_resource_twice_in_a_request(cluster: Cluster) -> None:
    """Both entries are refused, because it would be unknown which of them is in force."""
    request = ConfigRequest(resource_type=CONFIG_TOPIC, name="t", entries=[ConfigEntry(name="retention.ms", operation=SET, value="5")])
    answers: list[list[ConfigResult]] = []
    cluster.loop.alter_configs([request, request], False, answers.append)
    assert [result.error for result in answers[0]] == [ErrorCode.INVALID_REQUEST] * 2
    assert cluster.metadata.configs(CONFIG_TOPIC, "t") == {}


USER: QuotaEntity = (("user", "bob"),)
USER_AND_CLIENT: QuotaEntity = (("client-id", None), ("user", "bob"))


def alter_quota(cluster: Cluster, entity: QuotaEntity, **values: float | None) -> ErrorCode:
    answers: list[list[QuotaResult]] = []
    cluster.loop.alter_quotas([QuotaRequest(entity=entity, values=values)], False, answers.append)
    return answers[0][0].error


def test_quotas_are_kept(cluster: Cluster) -> None:
    assert alter_quota(cluster, USER_AND_CLIENT, producer_byte_rate=10.0) is ErrorCode.NONE
    assert alter_quota(cluster, USER, consumer_byte_rate=5.0) is ErrorCode.NONE
    assert alter_quota(cluster, (("ip", "1.1.1.1"),), connection_creation_rate=5.0) is ErrorCode.NONE
    assert alter_quota(cluster, (("client-id", "c"),), request_percentage=50.0) is ErrorCode.NONE
    expected = {
        USER_AND_CLIENT: {"producer_byte_rate": 10.0},
        USER: {"consumer_byte_rate": 5.0},
        (("ip", "1.1.1.1"),): {"connection_creation_rate": 5.0},
        (("client-id", "c"),): {"request_percentage": 50.0},
    }
    assert cluster.metadata.quotas == expected
    assert Cluster(cluster.store.reopened()).metadata.quotas == expected


def test_no_more_entities_have_quotas_than_may(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is bounded because anybody can invent names of clients."""
    monkeypatch.setattr(configs, "QUOTA_ENTITIES_MAX", 2)
    first, second, third = ((("client-id", name),) for name in "abc")
    assert alter_quota(cluster, first, request_percentage=1.0) is ErrorCode.NONE
    answers: list[list[QuotaResult]] = []
    both = [QuotaRequest(entity=entity, values={"request_percentage": 1.0}) for entity in (second, third)]
    cluster.loop.alter_quotas(both, False, answers.append)
    assert [result.error for result in answers[0]] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert alter_quota(cluster, first, request_percentage=2.0) is ErrorCode.NONE, "a known one may change"


def test_no_more_users_have_credentials_than_may(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "QUOTA_ENTITIES_MAX", 1)

    def alter_scram(user: str) -> ErrorCode:
        answers: list[list[ScramResult]] = []
        cluster.loop.alter_scram([ScramRequest(user=user, mechanism="SCRAM-SHA-256", credential="stored")], answers.append)
        return answers[0][0].error

    found = [alter_scram(name) for name in ("a", "b", "a")]
    assert found == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]


def test_a_removed_quota_is_gone(cluster: Cluster) -> None:
    alter_quota(cluster, USER, producer_byte_rate=10.0)
    alter_quota(cluster, USER, producer_byte_rate=None)
    assert cluster.metadata.quotas == {}
    assert alter_quota(cluster, USER, producer_byte_rate=11.0) is ErrorCode.NONE


def quota_paths(cluster: Cluster) -> list[str]:
    """Returns the paths of the quota nodes in the metadata store."""
    folders = (znodes.USERS, znodes.CLIENTS, znodes.IPS)
    return sorted(path for path in cluster.store.model.lasting_nodes() if path.startswith(tuple(f"{folder}/" for folder in folders)))


def test_the_node_of_a_removed_quota_is_removed(cluster: Cluster) -> None:
    """Formerly empty nodes stayed for ever, and were included in the bounded number of entities."""
    eve: QuotaEntity = (("client-id", "c"), ("user", "eve"))
    entities: list[QuotaEntity] = [(("ip", "1.1.1.1"),), (("client-id", "c"),), USER, (("user", None),), eve]
    for entity in entities:
        name = "connection_creation_rate" if entity[0][0] == "ip" else "producer_byte_rate"
        assert alter_quota(cluster, entity, **{name: 10.0}) is ErrorCode.NONE
        assert quota_paths(cluster)
        assert alter_quota(cluster, entity, **{name: None}) is ErrorCode.NONE
        assert not quota_paths(cluster) and not cluster.loop.state.quota_nodes and not cluster.loop.state.clients_of
        assert alter_quota(cluster, entity, **{name: None}) is ErrorCode.NONE, "there is nothing to remove"
        assert not quota_paths(cluster)


def test_the_node_of_a_user_stays_while_it_has_clients(cluster: Cluster) -> None:
    other: QuotaEntity = (("client-id", "c"), ("user", "bob"))
    for entity in (USER, USER_AND_CLIENT, other):
        alter_quota(cluster, entity, producer_byte_rate=10.0)
    alter_quota(cluster, USER, producer_byte_rate=None)
    alter_quota(cluster, other, producer_byte_rate=None)
    assert cluster.metadata.quotas == Cluster(cluster.store.reopened()).metadata.quotas == {USER_AND_CLIENT: {"producer_byte_rate": 10.0}}
    alter_quota(cluster, USER_AND_CLIENT, producer_byte_rate=None)
    assert not quota_paths(cluster)


def test_the_node_of_a_user_stays_while_it_has_credentials(cluster: Cluster) -> None:
    def alter_credential(credential: str | None) -> ErrorCode:
        answers: list[list[ScramResult]] = []
        cluster.loop.alter_scram([ScramRequest(user="bob", mechanism="SCRAM-SHA-256", credential=credential)], answers.append)
        return answers[0][0].error

    assert alter_credential("stored") is ErrorCode.NONE
    alter_quota(cluster, USER, producer_byte_rate=10.0)
    alter_quota(cluster, USER, producer_byte_rate=None)
    assert Cluster(cluster.store.reopened()).loop.state.scram == {"bob": {"SCRAM-SHA-256": "stored"}}
    assert alter_credential(None) is ErrorCode.NONE
    assert not quota_paths(cluster) and not cluster.loop.state.scram and not cluster.loop.state.quota_nodes


def test_an_entity_that_is_named_twice_in_a_request_has_what_the_last_says(cluster: Cluster) -> None:
    def ask(*values: float | None) -> list[ErrorCode]:
        answers: list[list[QuotaResult]] = []
        requests = [QuotaRequest(entity=USER_AND_CLIENT, values={"producer_byte_rate": value}) for value in values]
        cluster.loop.alter_quotas(requests, False, answers.append)
        return [result.error for result in answers[0]]

    assert ask(1.0, None) == [ErrorCode.NONE] * 2 and not quota_paths(cluster)
    assert ask(1.0, None, 2.0) == [ErrorCode.NONE] * 3
    assert cluster.metadata.quotas == {USER_AND_CLIENT: {"producer_byte_rate": 2.0}}
    assert ask(None, 3.0) == [ErrorCode.NONE] * 2
    assert cluster.metadata.quotas == Cluster(cluster.store.reopened()).metadata.quotas == {USER_AND_CLIENT: {"producer_byte_rate": 3.0}}


def test_shares_may_be_fractions(cluster: Cluster) -> None:
    assert alter_quota(cluster, USER, request_percentage=1.5, controller_mutation_rate=0.5) is ErrorCode.NONE
    assert cluster.metadata.quotas == {USER: {"request_percentage": 1.5, "controller_mutation_rate": 0.5}}


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ((), {"producer_byte_rate": 1.0}),
        ((("tribe", "x"),), {"producer_byte_rate": 1.0}),
        ((("ip", "1.1.1.1"), ("user", "u")), {"connection_creation_rate": 1.0}),
        ((("user", ""),), {"producer_byte_rate": 1.0}),
        (USER, {"made_up": 1.0}),
        (USER, {"producer_byte_rate": 0.0}),
        (USER, {"producer_byte_rate": float("nan")}),
        ((("ip", "1.1.1.1"),), {"producer_byte_rate": 1.0}),
        (USER, {"connection_creation_rate": 1.0}),
        (USER, {"consumer_byte_rate": 1.5}),
        (USER, {"consumer_byte_rate": 1e300}),
        ((("ip", "1.1.1.1"),), {"connection_creation_rate": 2.0**31}),
        ((("ip", "no address!"),), {"connection_creation_rate": 1.0}),
        ((("ip", "1.2.3.400"),), {"connection_creation_rate": 1.0}),
    ],
)
def test_quotas_that_are_refused(cluster: Cluster, entity: QuotaEntity, values: dict[str, float | None]) -> None:
    before = cluster.store.nodes()
    assert alter_quota(cluster, entity, **values) is ErrorCode.INVALID_REQUEST
    assert cluster.store.nodes() == before


LONG_NAMES = {"letters": "u" * 1_000_000, "quoted": "%" * 3_334, "unicode": "ü" * 1_700}


@pytest.mark.parametrize("name", LONG_NAMES.values(), ids=LONG_NAMES.keys())
@pytest.mark.parametrize("kinds", [("user",), ("client-id",), ("client-id", "user")])
def test_no_quota_is_kept_for_a_name_with_which_a_node_fits_into_no_write(cluster: Cluster, kinds: tuple[str, ...], name: str) -> None:
    assert alter_quota(cluster, tuple((kind, name) for kind in kinds), request_percentage=1.0) is ErrorCode.INVALID_REQUEST
    shorter = tuple((kind, name[: len(name) // 100]) for kind in kinds)
    assert alter_quota(cluster, shorter, request_percentage=50.0) is ErrorCode.NONE
    assert list(cluster.metadata.quotas) == [shorter]


@pytest.mark.parametrize("name", LONG_NAMES.values(), ids=LONG_NAMES.keys())
@pytest.mark.parametrize(
    ("resource_type", "setting"), [(CONFIG_GROUP, "consumer.session.timeout.ms"), (CONFIG_CLIENT_METRICS, "interval.ms")]
)
def test_no_settings_are_kept_for_such_a_name(cluster: Cluster, resource_type: int, setting: str, name: str) -> None:
    answers: list[list[ConfigResult]] = []
    entry = ConfigEntry(name=setting, operation=ConfigOperation.SET, value="50000")
    cluster.loop.alter_configs([ConfigRequest(resource_type=resource_type, name=name, entries=[entry])], False, answers.append)
    ((result,),) = answers
    assert result.error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("garbage", [b"\xff", b'{"version":', b'{"version":1,"config":[]}'])
def test_nothing_is_written_over_damaged_settings_quotas_and_credentials(garbage: bytes) -> None:
    """A change of damaged data is refused with the path of the node; other changes are carried out."""
    cluster = Cluster()
    cluster.create("t")
    paths = ["/config/topics/t", "/config/users/bob", "/config/clients/c"]
    for path in paths[1:]:
        cluster.store.put(path, b"")
    for path in paths:
        cluster.store.multi([Set(path, garbage)], lambda outcome: None)
    cluster = Cluster(cluster.store.reopened())
    answers: list[list[ConfigResult]] = []
    entry = ConfigEntry(name="retention.ms", operation=SET, value="5000")
    cluster.loop.alter_configs([ConfigRequest(resource_type=CONFIG_TOPIC, name="t", entries=[entry])], False, answers.append)
    assert answers[0][0].error is ErrorCode.UNKNOWN_SERVER_ERROR and paths[0] in (answers[0][0].message or "")
    for entity in (USER, USER_AND_CLIENT, (("client-id", "c"),)):
        assert alter_quota(cluster, entity, request_percentage=1.0) is ErrorCode.UNKNOWN_SERVER_ERROR
    scram: list[list[ScramResult]] = []
    wanted = [ScramRequest(user=user, mechanism="SCRAM-SHA-256", credential="salt=x") for user in ("bob", "carol")]
    cluster.loop.alter_scram(wanted, scram.append)
    assert [result.error for result in scram[0]] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert alter_quota(cluster, (("client-id", "d"),), request_percentage=1.0) is ErrorCode.NONE
    assert [cluster.store.nodes()[path].data for path in paths] == [garbage] * 3


@pytest.mark.parametrize(
    ("name", "setting", "stored", "operation", "expected"),
    [
        ("1", "log.cleanup.policy", {}, APPEND, "compact"),
        ("2", "log.cleanup.policy", {}, APPEND, "delete,compact"),
        (ALL_BROKERS, "log.cleanup.policy", {}, APPEND, "delete,compact"),
        ("2", "log.cleanup.policy", {(CONFIG_BROKER, ALL_BROKERS): {"log.cleanup.policy": "compact"}}, APPEND, "compact"),
        ("2", "cordoned.log.dirs", {}, APPEND, "/two,/three"),
        ("2", "cordoned.log.dirs", {}, SUBTRACT, "/two"),
        ("2", "cordoned.log.dirs", {(CONFIG_BROKER, "2"): {"cordoned.log.dirs": ""}}, APPEND, "/three"),
    ],
)
def test_a_list_of_another_broker_does_not_start_from_the_controllers_own_value(
    name: str, setting: str, stored: dict[tuple[int, str], dict[str, str]], operation: ConfigOperation, expected: str
) -> None:
    cordons = {"/two": True, "/three": False}
    brokers = [BrokerMetadata(broker_id=1, endpoints={}), BrokerMetadata(broker_id=2, endpoints={}, cordons=cordons)]
    nodes = {znodes.broker_path(one.broker_id): StoreNode(data=znodes.broker_bytes(one, {}, 0), version=0, czxid=1) for one in brokers}
    nodes |= {znodes.config_path(*key): StoreNode(data=znodes.config_bytes(values), version=0, czxid=1) for key, values in stored.items()}
    state, _ = build_state(nodes)
    given = {"broker.id": "1", "log.cleanup.policy": "compact", "cordoned.log.dirs": "/one", "log.dirs": "/one"}
    config = BrokerConfig({**given, "zookeeper.connect": "z:2181"})
    entry = ConfigEntry(name=setting, operation=operation, value="compact" if setting == "log.cleanup.policy" else "/three")
    request = ConfigRequest(resource_type=CONFIG_BROKER, name=name, entries=[entry], is_replacing=False)
    plan = decide_alter_configs(state, config, [request], validate_only=False)
    assert plan.changes == (ConfigPut(CONFIG_BROKER, name, {setting: expected}),)
