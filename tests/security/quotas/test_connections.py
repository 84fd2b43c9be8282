"""Limits on the rate of new connections: of the broker, of a listener, of an address."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import QuotaEntity
from ottla.security.quotas import connections
from ottla.security.quotas.connections import AT_ONCE, HOSTS_MAX, UNLIMITED, ConnectionRates, Delay
from ottla.security.quotas.rates import Windows
from tests.fakes.world import World
from tests.security.quotas.unwalked import Unwalked


class ConnectionsWorld(World):
    def __init__(self) -> None:
        self.rates = ConnectionRates(self.clock.monotonic_ms, Windows(11, 1000))

    def set(
        self, broker_rate: int = UNLIMITED, listeners: dict[str, int] | None = None, protected: str = "", **hosts: float | None
    ) -> None:
        quotas: dict[QuotaEntity, dict[str, float]] = {}
        for name, rate in hosts.items():
            quotas[(("ip", None if name == "default" else name),)] = {"connection_creation_rate": rate or 0}
        self.rates.update(broker_rate=broker_rate, listener_rates=listeners or {}, protected_listener=protected, quotas=quotas)

    def open(self, count: int, listener: str = "A", host: str = "h") -> Delay:
        """Opens `count` connections and returns the delay of the last one."""
        delay = AT_ONCE
        for _ in range(count):
            delay = self.rates.note(listener, host)
        return delay


def test_nothing_is_set_at_first() -> None:
    world = ConnectionsWorld()
    world.set()
    assert not world.rates.is_set
    assert world.open(1000) == AT_ONCE


def test_connections_over_the_brokers_rate_wait_for_a_window_at_most() -> None:
    world = ConnectionsWorld()
    world.set(10)
    assert world.open(100) == AT_ONCE
    assert world.open(1) == Delay(100)
    assert world.open(100) == Delay(1000)


def test_a_listener_has_a_rate_of_its_own() -> None:
    world = ConnectionsWorld()
    world.set(listeners={"A": 1})
    assert world.open(11) == Delay(1000)
    assert world.open(100, "B") == AT_ONCE


def test_clients_cannot_hold_up_the_brokers() -> None:
    world = ConnectionsWorld()
    world.set(10, protected="INTERNAL")
    assert world.open(500).ms > 0
    assert world.open(500, "INTERNAL") == AT_ONCE


def test_an_address_over_its_rate_is_refused_and_does_not_count_for_the_others() -> None:
    world = ConnectionsWorld()
    world.set(10, h=1)
    assert world.open(10) == AT_ONCE
    assert world.open(200) == Delay(1000, is_refused=True)
    assert world.open(90, host="other") == AT_ONCE
    world.clock.advance(11_000)
    assert world.open(1) == AT_ONCE


def test_refused_connections_do_not_lengthen_the_wait_of_an_address() -> None:
    world = ConnectionsWorld()
    world.set(h=1)
    world.open(10)
    world.open(10_000)
    world.clock.advance(1000)
    assert world.open(1).is_refused, "the windows are not over"
    world.clock.advance(10_000)
    assert world.open(1) == AT_ONCE


def test_an_address_may_have_more_than_the_default() -> None:
    world = ConnectionsWorld()
    world.set(default=1, h=1000)
    assert world.open(500) == AT_ONCE
    assert world.open(20, host="other").is_refused


def test_addresses_are_compared_in_one_form() -> None:
    world = ConnectionsWorld()
    world.rates.update(
        broker_rate=UNLIMITED,
        listener_rates={},
        protected_listener="",
        quotas={(("ip", "0:0:0:0:0:0:0:1"),): {"connection_creation_rate": 1}},
    )
    assert world.open(20, host="::1").is_refused


def test_a_change_looks_at_what_it_changes_only() -> None:
    world = ConnectionsWorld()
    short, long, other = (("ip", "::1"),), (("ip", "0:0:0:0:0:0:0:1"),), (("ip", "h"),)
    quotas = Unwalked({short: {"connection_creation_rate": 1000.0}, long: {"connection_creation_rate": 1.0}})

    def change(*changed: QuotaEntity) -> None:
        world.rates.update(broker_rate=UNLIMITED, listener_rates={}, protected_listener="", quotas=quotas, changed=changed)

    change(short, long)
    assert world.open(20, host="::1").is_refused and world.open(20) == AT_ONCE
    del quotas[long]
    quotas[other] = {"connection_creation_rate": 1.0}
    change(long, other)
    assert world.open(100, host="::1") == AT_ONCE and world.open(20).is_refused
    quotas.clear()
    change(short, other)
    assert not world.rates.is_set and world.open(100) == AT_ONCE


def test_addresses_without_end_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HOSTS_MAX <= 10_000
    monkeypatch.setattr(connections, "HOSTS_MAX", 10)
    world = ConnectionsWorld()
    world.set(default=1)
    for number in range(100):
        world.open(1, host=f"host-{number}")
    assert len(world.rates._hosts) == 10
    world.set()
    assert len(world.rates._hosts) == 0
