"""The settings of each broker of a service."""

from __future__ import annotations

import pytest

from ottla.base.config import BrokerConfig, ConfigError
from ottla.server.cores.members import Member, members_of


def members(count: int = 3, **given: str) -> list[Member]:
    return members_of(configured(count, **given), "127.0.0.1:2181")


def configured(count: int, **given: str) -> BrokerConfig:
    return BrokerConfig({"ottla.cores": str(count), **{name.replace("_", "."): value for name, value in given.items()}})


def test_ids_ports_and_folders_are_consecutive() -> None:
    found = members(listeners="PLAINTEXT://localhost:9092,SSL://:9093", log_dirs="/a,/b")
    assert [member.broker_id for member in found] == [1, 2, 3]
    assert [member.settings["listeners"] for member in found] == [
        "PLAINTEXT://localhost:9092,SSL://:9093",
        "PLAINTEXT://localhost:9094,SSL://:9095",
        "PLAINTEXT://localhost:9096,SSL://:9097",
    ]
    assert found[1].settings["log.dirs"] == "/a/broker.2,/b/broker.2"
    assert {member.settings["zookeeper.connect"] for member in found} == {"127.0.0.1:2181"}


def test_addresses_for_clients_move_with_the_listeners() -> None:
    found = members(2, broker_id="7", listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://[2001:db8::1]:9192")
    assert [member.settings["advertised.listeners"] for member in found] == [
        "PLAINTEXT://[2001:db8::1]:9192",
        "PLAINTEXT://[2001:db8::1]:9193",
    ]
    assert [member.broker_id for member in found] == [7, 8]


def test_free_ports_are_different() -> None:
    ports = {member.settings["listeners"].rpartition(":")[2] for member in members(4, listeners="PLAINTEXT://127.0.0.1:0")}
    assert len(ports) == 4 and "0" not in ports


def test_free_ports_are_different_among_listeners_and_metrics() -> None:
    """The system may offer a released port again. Among so many ports, it would offer some twice."""
    for _ in range(200):
        found = members(16, listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", ottla_metrics_listen="127.0.0.1:0")
        ports = [endpoint.rpartition(":")[2] for member in found for endpoint in member.settings["listeners"].split(",")]
        assert len({*ports, *(str(member.http_port) for member in found)}) == 3 * 16


def test_metrics_are_beside_those_of_the_service_and_only_for_it() -> None:
    given = {"ottla_metrics_listen": "0.0.0.0:9404", "ottla_metrics_ssl_certificate": "/a.pem", "ottla_metrics_credentials": "a:b"}
    found = members(2, **given)
    assert [member.http_port for member in found] == [9405, 9406]
    assert found[0].settings["ottla.metrics.listen"] == "127.0.0.1:9405"
    assert found[0].settings["ottla.metrics.ssl.certificate"] == ""
    assert [member.http_port for member in members(2)] == [0, 0]


def test_the_defaults_are_those_of_a_single_broker_unless_there_is_a_zookeeper() -> None:
    assert members()[0].settings["offsets.topic.replication.factor"] == "1"
    assert "offsets.topic.replication.factor" not in members(offsets_topic_replication_factor="2")[0].settings
    assert "offsets.topic.replication.factor" not in members(broker_id="1", zookeeper_connect="zoo:2181")[0].settings


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"listeners": "A://:9092,B://:9094", "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT"},
            "port 9094 would be taken twice",
        ),
        ({"listeners": "PLAINTEXT://:9092", "ottla_metrics_listen": "127.0.0.1:9094"}, "port 9094 would be taken twice"),
        ({"listeners": "PLAINTEXT://:65534"}, "a broker would have port 65536"),
    ],
)
def test_ports_that_cannot_be_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        members(**given)
