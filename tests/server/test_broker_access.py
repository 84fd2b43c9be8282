"""How a broker logs in to other brokers, with a password or a token, and what it logs when its settings have become invalid."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.config import BrokerConfig
from ottla.base.settings.jaas import OAUTHBEARER as MODULE
from ottla.client.core.sasl import BearerExchange, PlainExchange
from ottla.client.errors import KafkaError
from ottla.server.broker_access import BrokerAccess
from ottla.server.token_start import make_token_source
from tests.fakes import ManualClock, ManualTimers, SeededRandom
from tests.fakes.world import World

BASE = {"zookeeper.connect": "z:2181", "broker.id": "1", "listeners": "SASL_PLAINTEXT://:1"}
BETWEEN = {**BASE, "security.inter.broker.protocol": "SASL_PLAINTEXT"}
PLAIN = {
    **BETWEEN, "sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "ottla.sasl.plain.users": "broker=secret", "ottla.inter.broker.login": "broker=secret",
}  # fmt: skip
JAAS = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
TOKENS = {
    **BETWEEN, "sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "ottla.sasl.oauthbearer.unsecured.allowed": "true", JAAS: f'{MODULE} required unsecuredLoginStringClaim_sub="broker";',
}  # fmt: skip


class AccessWorld(World):
    """The access of a broker with these settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.config = BrokerConfig(settings)
        clock = ManualClock(wall_ms=0)
        self.timers = ManualTimers(clock)
        ports: Any = SimpleNamespace(
            random=SeededRandom(1), threads=self.threads, clock=clock, timers=self.timers, make_token_source=make_token_source
        )
        self.access = BrokerAccess(self.config, ports)
        self.begun: list[tuple[Any, Any]] = []

    def begin(self) -> tuple[Any, Any]:
        self.access.begin_login(lambda exchange, error: self.begun.append((exchange, error)))
        self.threads.run_all()
        return self.begun[-1]


def test_by_a_password() -> None:
    world = AccessWorld(PLAIN)
    exchange, error = world.begin()
    assert error is None and isinstance(exchange, PlainExchange) and exchange.first() == b"\0broker\0secret"
    assert world.access.logs_in and world.access.tls == "" and 0 <= world.access.share() <= 1
    world.access.close()


def test_a_broker_names_the_missing_user_with_which_brokers_log_in(caplog: pytest.LogCaptureFixture) -> None:
    access = AccessWorld({
        **BETWEEN, "sasl.enabled.mechanisms": "SCRAM-SHA-512", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "zookeeper.connect": "zoo:2181/kafka", "ottla.inter.broker.login": "broker=secret",
    }).access  # fmt: skip
    said = (
        "brokers log in to each other as user 'broker', who has no SCRAM-SHA-512 credential; create it: "
        "ottla user add broker --mechanism SCRAM-SHA-512 --zookeeper zoo:2181/kafka --password-file FILE"
    )
    access.review_user({"broker": {"SCRAM-SHA-256": "..."}})
    access.review_user({})
    assert caplog.messages == [said]
    access.review_user({"broker": {"SCRAM-SHA-512": "..."}})
    access.review_user({"alice": {}})  # the user was removed
    assert caplog.messages == [said, said]


@pytest.mark.parametrize("settings", [PLAIN, TOKENS, {**BETWEEN, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}])
def test_a_login_without_a_scram_user_misses_none(settings: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    AccessWorld(settings).access.review_user({})
    assert caplog.messages == []


def test_where_the_clusters_secret_is_all_there_is_no_login() -> None:
    assert not AccessWorld({**BETWEEN, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}).access.logs_in
    assert not AccessWorld({**BASE, "listeners": "PLAINTEXT://:1"}).access.logs_in


def test_by_one_token_for_all_connections_until_the_settings_change() -> None:
    world = AccessWorld(TOKENS)
    (first, _), (second, _) = world.begin(), world.begin()
    assert isinstance(first, BearerExchange) and first.first() == second.first() and first.first().startswith(b"n,,\x01auth=Bearer ")
    assert world.timers.pending() == 1
    world.config.set_dynamic({}, {JAAS: f'{MODULE} required unsecuredLoginStringClaim_sub="another";'})
    third, _ = world.begin()
    assert third.first() != first.first() and world.timers.pending() == 1, "what renewed the token before has ended"
    world.access.close()
    assert world.timers.pending() == 0


def test_the_first_token_is_there_before_it_is_needed() -> None:
    world = AccessWorld(TOKENS)
    world.access.prepare()
    world.threads.run_all()
    world.access.begin_login(lambda exchange, error: world.begun.append((exchange, error)))
    assert isinstance(world.begun[0][0], BearerExchange) and not world.threads.waiting
    world.access.close()
    AccessWorld(PLAIN).access.prepare()


@pytest.mark.parametrize("line", ["nonsense with a s3cret", f'{MODULE} required unsecuredLoginNumberClaim_a="s3cret";'])
def test_settings_that_become_nonsense_are_an_error_of_the_login(line: str) -> None:
    world = AccessWorld(TOKENS)
    world.begin()
    world.config.set_dynamic({}, {JAAS: line})
    exchange, error = world.begin()
    assert exchange is None and isinstance(error, KafkaError)
    assert "this broker cannot log in to others" in str(error) and "\n" not in str(error)
    world.config.set_dynamic({}, {})
    assert world.begin()[1] is None
