"""New connections above a rate: above the rate of a listener they wait in order; above the rate of an address they are closed after a
delay."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.security.quotas.connections import UNLIMITED, ConnectionRates
from ottla.security.quotas.rates import Windows
from ottla.server.quotas import connection_gate
from ottla.server.quotas.connection_gate import WAITING_MAX, ConnectionGate
from tests.fakes.world import World


class FakeChannel:
    def __init__(self, host: str) -> None:
        self.peer_host = host
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class GateWorld(World):
    """Ten connections a second for the broker, and two for the host `few`; the windows hold one second."""

    def __init__(self) -> None:
        rates = ConnectionRates(self.clock.monotonic_ms, Windows(2, 1000))
        quotas = {(("ip", "few"),): {"connection_creation_rate": 2.0}}
        rates.update(broker_rate=10, listener_rates={"slow": 1, "free": UNLIMITED}, protected_listener="free", quotas=quotas)
        self.admitted: list[Any] = []
        self.gate = ConnectionGate(rates, self.timers, lambda listener, channel: self.admitted.append((listener, channel)))

    def open(self, count: int, listener: str = "A", host: str = "h") -> list[FakeChannel]:
        channels = [FakeChannel(host) for _ in range(count)]
        for channel in channels:
            self.gate.pass_through(listener, channel)  # type: ignore[arg-type]
        return channels


def test_connections_over_the_rate_are_admitted_later_and_in_order() -> None:
    world = GateWorld()
    channels = world.open(25)
    assert len(world.admitted) == 10
    world.timers.advance(10_000)
    assert [channel for _, channel in world.admitted] == channels
    assert world.gate.held_count == 0


def test_they_come_at_the_rate() -> None:
    world = GateWorld()
    world.open(200)
    world.timers.advance(10_000)
    assert len(world.admitted) == pytest.approx(110, rel=0.1)


def test_one_listener_does_not_wait_for_another() -> None:
    world = GateWorld()
    world.open(5, "slow")
    assert len(world.admitted) == 1
    world.open(5, "free")
    assert len(world.admitted) == 6


def test_an_address_over_its_rate_is_closed_after_a_delay_and_holds_up_no_other() -> None:
    world = GateWorld()
    channels = world.open(3, host="few")
    assert [channel.is_closed for channel in channels] == [False] * 3
    assert len(world.admitted) == 2
    world.open(1)
    assert len(world.admitted) == 3
    world.timers.advance(1000)
    assert [channel.is_closed for channel in channels] == [False, False, True]
    assert world.gate.held_count == 0


def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WAITING_MAX <= 1024
    monkeypatch.setattr(connection_gate, "WAITING_MAX", 5)
    world = GateWorld()
    refused = world.open(10, host="few")
    assert sum(channel.is_closed for channel in refused) == 3
    later = world.open(100)
    assert world.gate.held_count == 5
    assert later[-1].is_closed


def test_a_stop_closes_what_waits() -> None:
    world = GateWorld()
    channels = world.open(15) + world.open(3, host="few")
    world.gate.close()
    assert world.timers.pending() == 0
    assert sum(channel.is_closed for channel in channels) + len(world.admitted) == 18
