"""Fair slots: which item gives way to a new one. It is the oldest item of the connection that has the most items at the address that has
the most."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.loop.fair_slots import FairSlots
from tests.fakes.randomness import SeededRandom

SLOTS = 12


class Peer(NamedTuple):
    host: str
    identity: str


def peer(host: str, port: int = 1) -> Peer:
    return Peer(host, f"{host}:{port}")


def slots(*items: tuple[str, Peer, int]) -> FairSlots[str]:
    known = FairSlots[str]()
    for name, origin, weight in items:
        known.add(name, origin, weight)
    return known


def test_nothing_gives_way_where_there_is_nothing() -> None:
    known = slots()
    assert known.victim_for("a") is None and known.victim_elsewhere("a") is None and known.victim_beside(peer("a")) is None


def test_the_least_recently_used_item_of_the_address_that_holds_the_most_gives_way() -> None:
    known = slots(("a1", peer("a", 1), 0), ("b1", peer("b", 1), 0), ("b2", peer("b", 2), 0), ("b3", peer("b", 3), 0))
    assert known.victim_for("a") == known.victim_elsewhere("a") == "b1"
    known.use("b1")
    assert known.victim_for("a") == known.victim_for("c") == "b2"
    known.remove("b2")
    assert known.victim_elsewhere("a") is None, "an address would then hold fewer than this one"
    assert (known.victim_for("a"), known.victim_for("b"), len(known)) == ("a1", "b3", 3)


def test_a_connection_that_holds_many_gives_way_before_others_of_its_address() -> None:
    known = slots(("a1", peer("a", 1), 0), ("many1", peer("a", 2), 0), ("many2", peer("a", 2), 0))
    assert known.victim_for("a") == known.victim_beside(peer("a", 3)) == "many1"
    assert known.victim_beside(peer("a", 1)) is None and known.victim_beside(peer("a", 2)) is None


def test_weights_are_of_all_items_together() -> None:
    known = slots(("a1", peer("a"), 5), ("b1", peer("b"), 20), ("b2", peer("b", 2), 20))
    known.weigh("a1", 15)
    assert known.weight == 55
    assert known.heavy_victim_elsewhere("a1") == known.heavy_victim_for("a1") == "b1"
    known.weigh("a1", 30)
    assert known.heavy_victim_elsewhere("a1") is None
    assert (known.heavy_victim_for("a1"), known.heavy_victim_for("b1"), known.heavy_victim_for("b2")) == ("b1", "b2", "b1")
    known.remove("b1")
    assert known.weight == 50 and len(known) == 2


def test_no_order_of_arrivals_takes_the_fair_share_of_an_address() -> None:
    """The expectation comes from a slow and obvious rule: if all of n addresses ask for slots, each has at least an n-th part of them,
    rounded down."""
    hosts = ["a", "b", "c", "d", "e"]
    for seed in range(5):
        random, known = SeededRandom(seed), slots()
        names: dict[str, str] = {}
        for step in range(200):
            greedy = random.randrange(2)
            host = "a" if greedy else hosts[random.randrange(len(hosts))]
            if len(known) >= SLOTS:
                gone = known.victim_for(host)
                assert gone is not None
                known.remove(gone)
                del names[gone]
            known.add(f"{step}", peer(host, step), 1)
            names[f"{step}"] = host
        held = {host: sum(one == host for one in names.values()) for host in hosts}
        assert sum(held.values()) == known.weight == SLOTS
        assert min(held.values()) >= SLOTS // len(hosts) and max(held.values()) <= SLOTS // len(hosts) + 2, held
