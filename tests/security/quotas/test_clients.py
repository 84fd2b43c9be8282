"""The usage that quotas charge to clients, measured while the clock stands still, and the bound on what is remembered of clients."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import QuotaEntity
from ottla.security.quotas import clients
from ottla.security.quotas.clients import IDLE_MS_MAX, METERS_MAX, ClientQuotas
from ottla.security.quotas.limits import FETCH, MUTATION, PRODUCE, REQUEST, QuotaShare
from ottla.security.quotas.rates import Windows
from tests.fakes.world import World
from tests.security.quotas.unwalked import Unwalked

ALICE, BOB = "User:alice", "User:bob"
OF_ALICE: QuotaEntity = (("user", "alice"),)
OF_EACH_CLIENT: QuotaEntity = (("client-id", None),)


class ClientsWorld(World):
    def __init__(self, **rates: float) -> None:
        self.quotas = ClientQuotas(self.clock.monotonic_ms, Windows(11, 1000), Windows(11, 1000))
        self.set(OF_ALICE, **rates)

    def set(self, entity: QuotaEntity, **rates: float) -> None:
        self.quotas.update({entity: rates})

    def shares(self) -> list[QuotaShare]:
        return [share for share, _ in self.quotas.meters()]


def test_bytes_beyond_the_rate_throttle_and_others_are_not_charged() -> None:
    world = ClientsWorld(producer_byte_rate=100)
    assert world.quotas.charge_produce(ALICE, "a", 1000) == 0
    assert world.quotas.charge_produce(ALICE, "b", 100) == 1000
    assert world.quotas.charge_produce(BOB, "a", 10_000) == 0
    assert world.shares() == [QuotaShare(PRODUCE, "alice", "")]


def test_a_change_looks_at_what_it_changes_only() -> None:
    world = ClientsWorld(producer_byte_rate=100)
    quotas = Unwalked({OF_ALICE: {PRODUCE: 100.0}, OF_EACH_CLIENT: {PRODUCE: 200.0, FETCH: 5.0}})
    world.quotas.update(quotas, [OF_EACH_CLIENT])
    assert world.quotas.charge_produce(BOB, "b", 2000) == 0 < world.quotas.charge_produce(BOB, "b", 200)
    assert world.quotas.charge_produce(ALICE, "a", 1000) == 0 < world.quotas.charge_produce(ALICE, "a", 200)
    del quotas[OF_EACH_CLIENT]
    quotas[OF_ALICE] = {}
    world.quotas.update(quotas, [OF_EACH_CLIENT, OF_ALICE])
    assert not world.quotas.is_set and world.quotas.charge_produce(ALICE, "a", 10_000) == 0


def test_request_time_is_a_share_of_one_thread_and_throttles_for_a_window_at_most() -> None:
    world = ClientsWorld(request_percentage=10)
    assert world.quotas.charge_time(ALICE, "a", 1_000_000_000) == 0
    assert world.quotas.charge_time(ALICE, "a", 50_000_000) == 500
    assert world.quotas.charge_time(ALICE, "a", 10_000_000_000) == 1000


def test_a_fetch_that_is_not_answered_is_not_charged() -> None:
    world = ClientsWorld(consumer_byte_rate=100)
    assert world.quotas.charge_fetch(ALICE, None, 1000) == 0
    first = world.quotas.charge_fetch(ALICE, None, 500)
    assert first == 250, "until there is room for a part of it"
    assert world.quotas.charge_fetch(ALICE, None, 500) == first
    world.clock.advance(first)
    assert world.quotas.charge_fetch(ALICE, None, 500) == 0


def test_what_an_answer_holds_beyond_its_part_is_owed() -> None:
    world = ClientsWorld(consumer_byte_rate=100)
    assert world.quotas.charge_fetch(ALICE, None, 3000) == 0, "one batch may be larger than all windows"
    world.clock.advance(11_000)
    assert world.quotas.charge_fetch(ALICE, None, 1) == 8010, "the windows have forgotten it by now"
    world.clock.advance(8010)
    assert world.quotas.charge_fetch(ALICE, None, 1) == 0


def test_records_that_are_sent_all_the_same_are_charged() -> None:
    world = ClientsWorld(consumer_byte_rate=100)
    assert world.quotas.charge_fetch(ALICE, None, 1500, is_sent=True) == 5000
    assert world.quotas.charge_fetch(ALICE, None, 1) == 5010


def test_a_fetch_may_read_what_there_is_room_for() -> None:
    world = ClientsWorld(consumer_byte_rate=100)
    assert world.quotas.fetch_bytes_max(ALICE, None) == 1000
    assert world.quotas.fetch_bytes_max(BOB, None) == 2**31 - 1
    assert world.quotas.charge_fetch(ALICE, None, 600) == 0
    assert world.quotas.fetch_bytes_max(ALICE, None) == 400
    assert world.quotas.charge_fetch(ALICE, None, 400) == 0
    assert world.quotas.fetch_bytes_max(ALICE, None) == 25, "a client that has to wait reads a part at least"


def test_a_fetch_may_always_read_something() -> None:
    assert ClientsWorld(consumer_byte_rate=0.01).quotas.fetch_bytes_max(ALICE, None) == 1


def test_another_value_counts_at_once_and_what_was_measured_stays() -> None:
    world = ClientsWorld(producer_byte_rate=100)
    world.quotas.charge_produce(ALICE, None, 2000)
    world.set(OF_ALICE, producer_byte_rate=1000)
    assert world.quotas.charge_produce(ALICE, None, 0) == 0
    world.set(OF_ALICE, producer_byte_rate=50)
    assert world.quotas.charge_produce(ALICE, None, 0) == 30_000


def test_without_quotas_nothing_is_kept() -> None:
    world = ClientsWorld(producer_byte_rate=100)
    world.quotas.charge_produce(ALICE, None, 1)
    world.quotas.update({})
    assert not world.quotas.is_set
    assert world.shares() == []
    assert world.quotas.charge_produce(ALICE, None, 1 << 40) == 0


def test_a_null_client_id_is_the_empty_one() -> None:
    world = ClientsWorld()
    world.set(OF_EACH_CLIENT, producer_byte_rate=1)
    world.quotas.charge_produce(ALICE, None, 1)
    world.quotas.charge_produce(BOB, "", 1)
    assert world.shares() == [QuotaShare(PRODUCE, "", "")]


def test_idle_shares_are_forgotten() -> None:
    world = ClientsWorld()
    world.set(OF_EACH_CLIENT, producer_byte_rate=1)
    world.quotas.charge_produce(ALICE, "idle", 1)
    world.quotas.charge_produce(ALICE, "busy", 1)
    world.clock.advance(IDLE_MS_MAX - 1)
    world.quotas.charge_produce(ALICE, "busy", 1)
    assert len(world.shares()) == 2
    world.clock.advance(1)
    assert world.shares() == [QuotaShare(PRODUCE, "", "busy")]


def test_client_ids_without_end_take_bounded_memory_and_the_busy_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert METERS_MAX <= 10_000
    monkeypatch.setattr(clients, "METERS_MAX", 20)
    world = ClientsWorld()
    world.set(OF_EACH_CLIENT, producer_byte_rate=1)
    for number in range(100):
        world.clock.advance(1000)
        world.quotas.charge_produce(ALICE, "busy", 1000)
        world.quotas.charge_produce(ALICE, f"client-{number}", 1)
    assert len(world.shares()) == 20
    assert QuotaShare(PRODUCE, "", "busy") in world.shares()
    assert sum(found.bytes_kept for found in world.quotas._found.values()) <= 101 * 1_000
    assert world.quotas.charge_produce(ALICE, "busy", 0) > 0


def test_each_kind_is_measured_by_itself() -> None:
    world = ClientsWorld(producer_byte_rate=1, consumer_byte_rate=1, request_percentage=1, controller_mutation_rate=1)
    world.quotas.charge_produce(ALICE, "a", 1)
    world.quotas.charge_fetch(ALICE, "a", 1)
    world.quotas.charge_time(ALICE, "a", 1)
    world.quotas.mutations(ALICE, "a", is_strict=True).take(1)
    assert [share.kind for share in world.shares()] == [PRODUCE, FETCH, REQUEST, MUTATION]
