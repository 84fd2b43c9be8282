"""Which metrics a client shall push: the metrics of all subscriptions that match the client."""

from __future__ import annotations

import logging

import pytest

from ottla.base.cluster_metadata import CONFIG_CLIENT_METRICS, ConfigPut
from ottla.base.control_messages import UpdateConfigs
from ottla.cluster.metadata_cache import MetadataCache
from ottla.telemetry.subscriptions import Client, Subscriptions, Wanted

ID = bytes(range(16))
CLIENT = Client("app-1", "AAECAwQFBgcICQoLDA0ODw", "apache-kafka-java", "4.3.0", "10.0.0.7", "40123")


class World:
    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.cache = MetadataCache()
        self.subscriptions = Subscriptions(self.cache)
        self.put(**subscriptions)

    def put(self, **subscriptions: dict[str, str]) -> None:
        changes = [ConfigPut(CONFIG_CLIENT_METRICS, name, values) for name, values in subscriptions.items()]
        self.cache.update_configs(UpdateConfigs(controller_id=-1, controller_epoch=-1, broker_epoch=-1, changes=changes, is_complete=False))

    def wanted(self, client: Client = CLIENT) -> Wanted:
        return self.subscriptions.of(client)


def test_without_a_subscription_nothing_is_wanted() -> None:
    wanted = World().wanted()
    assert wanted == Wanted((), 300_000)
    assert not wanted.covers("a")


def test_several_subscriptions_count_together() -> None:
    world = World(a={"metrics": "x., y.", "interval.ms": "5000"}, b={"metrics": "y.,z."}, c={"metrics": "w", "match": "client_id=b"})
    wanted = world.wanted()
    assert wanted == Wanted(("x.", "y.", "z."), 5_000)
    assert wanted.covers("z.a") and not wanted.covers("w")


def test_an_interval_above_the_default_does_not_slow_a_client_down() -> None:
    """As in Kafka: the default is the upper bound."""
    assert World(a={"interval.ms": "3600000"}).wanted().interval_ms == 300_000


def test_all_metrics() -> None:
    wanted = World(a={"metrics": "x."}, b={"metrics": "*"}).wanted()
    assert wanted.metrics == ("*",) and wanted.covers("anything")


@pytest.mark.parametrize(
    ("match", "is_match"),
    [
        ("client_id=app-.*", True),
        ("client_id=app", False),  # a pattern matches whole names
        ("client_instance_id=AAEC.*", True),
        ("client_software_name=apache.*, client_software_version=4\\.3\\..", True),
        ("client_software_name=apache.*,client_software_version=3.*", False),
        ("client_source_address=10\\.0\\.0\\.7", True),
        ("client_source_port=4012[0-9]", True),
    ],
)
def test_match(match: str, is_match: bool) -> None:
    assert World(a={"metrics": "*", "match": match}).wanted().metrics == (("*",) if is_match else ())


def test_a_client_without_an_id_or_with_any_letters() -> None:
    world = World(a={"metrics": "*", "match": "client_id=.*"})
    assert world.wanted(CLIENT._replace(client_id=None)).metrics == ()
    assert world.wanted(CLIENT._replace(client_id="ä" * 200)).metrics == ("*",)


def test_a_change_is_noticed() -> None:
    world = World(a={"metrics": "x"})
    version = world.subscriptions.version
    world.put(a={"metrics": "x"})
    assert world.subscriptions.version == version
    world.put(a={"metrics": "y"})
    assert world.subscriptions.version > version and world.wanted().metrics == ("y",)
    world.put(a={})
    assert world.wanted().metrics == ()


def test_invalid_settings_in_the_store_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert World(a={"metrics": "x", "interval.ms": "soon"}, b={"metrics": "y"}).wanted().metrics == ("y",)
    assert 'subscription "a"' in caplog.text


def test_subscription_ids() -> None:
    """The id is the same on every broker. It differs for other metrics, another interval and another client."""
    ids = [
        Wanted(("x",), 1_000).subscription_id(ID), Wanted(("y",), 1_000).subscription_id(ID),
        Wanted(("x",), 2_000).subscription_id(ID), Wanted(("x",), 1_000).subscription_id(ID[::-1]),
    ]  # fmt: skip
    assert len(set(ids)) == 4
    assert Wanted(("x",), 1_000).subscription_id(ID) == ids[0] and all(-(1 << 31) <= one < 1 << 31 for one in ids)
