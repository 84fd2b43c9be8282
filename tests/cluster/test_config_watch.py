"""The watch over settings and quotas: every broker gets them at its start, after a change, and after a lost connection. A damaged node
affects only its own settings."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.cluster_metadata import CONFIG_BROKER, CONFIG_CLIENT_METRICS, CONFIG_GROUP, CONFIG_TOPIC
from ottla.base.ports import Create, Set, StoreResult
from ottla.cluster.change_watch import PURGE_MS
from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest, ConfigResult, QuotaRequest, QuotaResult
from ottla.metadata_store import znodes
from ottla.telemetry.subscriptions import Subscriptions
from tests.cluster.nodes import Nodes
from tests.telemetry.test_subscriptions import CLIENT

USER = (("user", "u"),)
BOTH = (("client-id", None), ("user", "u 2"))


def cluster(count: int = 2) -> Nodes:
    return Nodes(count)


def alter(nodes: Nodes, resource_type: int, name: str, settings: Mapping[str, str | None]) -> None:
    operations = {True: ConfigOperation.DELETE, False: ConfigOperation.SET}
    entries = [ConfigEntry(name=key, operation=operations[value is None], value=value) for key, value in settings.items()]
    answers: list[ConfigResult] = []
    request = ConfigRequest(resource_type=resource_type, name=name, entries=entries)
    nodes.nodes[nodes.controller_id].controller.alter_configs([request], False, answers.extend)
    nodes.until(lambda: answers)
    assert answers[0].error == 0, answers


def set_quota(nodes: Nodes, entity: tuple[tuple[str, str | None], ...], value: float | None) -> None:
    answers: list[QuotaResult] = []
    request = QuotaRequest(entity=entity, values={"producer_byte_rate": value})
    nodes.nodes[nodes.controller_id].controller.alter_quotas([request], False, answers.extend)
    nodes.until(lambda: answers)
    assert answers[0].error == 0, answers


def changes(nodes: Nodes) -> list[str]:
    return [path for path in nodes.model.tree.nodes() if path.startswith(znodes.CONFIG_CHANGE_PREFIX)]


def test_changes_reach_the_brokers_that_are_not_the_controller() -> None:
    nodes = cluster()
    other = nodes.nodes[2]
    alter(nodes, CONFIG_BROKER, "", {"log.retention.ms": "77000"})
    alter(nodes, CONFIG_BROKER, "2", {"message.max.bytes": "50000"})
    alter(nodes, CONFIG_GROUP, "a/b", {"consumer.heartbeat.interval.ms": "6000"})
    set_quota(nodes, USER, 5.0)
    set_quota(nodes, BOTH, 6.0)
    nodes.until(lambda: len(other.metadata.quotas) >= 2)
    assert other.metadata.configs(CONFIG_BROKER, "") == {"log.retention.ms": "77000"}
    assert other.metadata.configs(CONFIG_GROUP, "a/b") == {"consumer.heartbeat.interval.ms": "6000"}
    assert other.config.value("log.retention.ms") == 77_000 and other.config.value("message.max.bytes") == 50_000
    assert nodes.nodes[1].config.value("message.max.bytes") != 50_000
    assert {entity: dict(quotas) for entity, quotas in other.metadata.quotas.items() if quotas} == {
        USER: {"producer_byte_rate": 5.0}, BOTH: {"producer_byte_rate": 6.0},
    }  # fmt: skip
    alter(nodes, CONFIG_BROKER, "", {"log.retention.ms": None})
    set_quota(nodes, USER, None)
    nodes.until(lambda: USER not in other.metadata.quotas)
    assert other.metadata.configs(CONFIG_BROKER, "") == {}
    assert other.metadata.quotas == nodes.nodes[1].metadata.quotas
    assert len(changes(nodes)) == 7, "one for each change"


def test_every_broker_asks_clients_for_the_same_metrics() -> None:
    nodes = cluster()
    asked = [Subscriptions(nodes.nodes[broker].metadata) for broker in (1, 2)]
    assert [one.of(CLIENT).metrics for one in asked] == [(), ()]
    for settings, metrics in (({"metrics": "a.", "interval.ms": "5000"}, ("a.",)), ({"metrics": None, "interval.ms": None}, ())):
        alter(nodes, CONFIG_CLIENT_METRICS, "mine", settings)
        nodes.until(lambda metrics=metrics: [one.of(CLIENT).metrics for one in asked] == [metrics] * 2)
        assert len({one.of(CLIENT).subscription_id(bytes(16)) for one in asked}) == 1


def test_settings_of_topics_come_with_their_metadata_and_reach_the_logs() -> None:
    nodes = cluster()
    nodes.create("t", [1, 2])
    alter(nodes, CONFIG_TOPIC, "t", {"retention.ms": "99000"})
    nodes.until(lambda: nodes.replica(2).log.config.retention_ms == 99_000)
    assert nodes.replica(1).log.config.retention_ms == 99_000 and not changes(nodes)


def test_a_broker_that_starts_reads_what_is_set() -> None:
    nodes = cluster()
    alter(nodes, CONFIG_BROKER, "", {"log.retention.ms": "77000"})
    set_quota(nodes, BOTH, 6.0)
    nodes.kill(2)
    set_quota(nodes, USER, 5.0)
    other = nodes.start(2)
    nodes.until(lambda: USER in other.metadata.quotas)
    assert other.config.value("log.retention.ms") == 77_000 and other.metadata.quotas[BOTH] == {"producer_byte_rate": 6.0}


def test_what_changed_while_the_connection_was_lost_is_read_afterwards() -> None:
    nodes = cluster()
    other = nodes.nodes[2]
    store = other.ports.store
    set_quota(nodes, USER, 1.0)
    store.disconnect()  # type: ignore[attr-defined]
    set_quota(nodes, USER, 2.0)
    assert other.metadata.quotas[USER] == {"producer_byte_rate": 1.0}
    store.reconnect()  # type: ignore[attr-defined]
    nodes.until(lambda: other.metadata.quotas[USER] == {"producer_byte_rate": 2.0})
    store.fail_next_read(StoreResult.CONNECTION_LOST)  # type: ignore[attr-defined]
    set_quota(nodes, USER, 3.0)
    nodes.until(lambda: other.metadata.quotas[USER] == {"producer_byte_rate": 3.0})


def test_garbage_costs_what_it_damages_and_no_more() -> None:
    nodes = cluster()
    set_quota(nodes, USER, 1.0)
    tool = nodes.model.session()
    for data in (b"", b"{", b'{"entity_path":7}', b'{"entity_path":"../x"}', b'{"entity_path":"users"}', b'{"entity_path":"users/%zz/"}'):
        tool.multi([Create(znodes.CONFIG_CHANGE_PREFIX, data, is_sequential=True)], lambda outcome: None)
    path = znodes.quota_path(USER)
    announced = Create(znodes.CONFIG_CHANGE_PREFIX, znodes.change_bytes(path), is_sequential=True)
    tool.multi([Set(path, b"garbage"), announced], lambda outcome: None)
    nodes.settle()
    assert all(USER not in node.metadata.quotas for node in nodes.nodes.values())
    set_quota(nodes, BOTH, 2.0)
    assert all(node.metadata.quotas[BOTH] == {"producer_byte_rate": 2.0} for node in nodes.nodes.values())


def test_the_controller_removes_old_changes() -> None:
    nodes = cluster()
    set_quota(nodes, USER, 1.0)
    nodes.settle(PURGE_MS // 2)
    set_quota(nodes, USER, 2.0)
    assert len(changes(nodes)) == 2
    nodes.settle(PURGE_MS // 2 + 10)
    assert len(changes(nodes)) == 1
    nodes.kill(1)
    nodes.until(lambda: nodes.nodes[2].controller.is_active)
    nodes.settle(PURGE_MS // 2)
    assert not changes(nodes), "the next controller goes on with it"
