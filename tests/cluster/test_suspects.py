"""Suspects: a broker that may have just died is suspected until its address has accepted some connections, or until a time has passed. The
time is longer if the address has refused a connection."""

from __future__ import annotations

from ottla.cluster.suspects import AGAIN_MS, LOOKS_MS, REFUSED_MS, SUSPECTED_MS, WAITING_MAX, Suspects
from tests.fakes.peers import HeldNetwork
from tests.fakes.world import World


class SuspectsWorld(World):
    """The suspects of one broker. The test answers the connections."""

    def __init__(self) -> None:
        self.network = HeldNetwork()
        self.leader = 2
        self.called: list[str] = []
        self.suspects = Suspects(self.network, self.timers, {2: ("two", 1)}.get)  # type: ignore[arg-type]

    def wait(self, name: str) -> None:
        self.suspects.call_when_over(lambda brokers: self.leader not in brokers, lambda: self.called.append(name))


def test_what_waits_goes_on_when_others_lead() -> None:
    world = SuspectsWorld()
    world.suspects.on_hang_up(2)
    assert list(world.suspects.brokers) == [2]
    world.network.fail()
    world.wait("a")
    world.suspects.review()
    assert world.called == []
    world.leader = 3
    world.suspects.review()
    world.suspects.review()
    assert world.called == ["a"]


def test_no_more_than_so_many_wait() -> None:
    world = SuspectsWorld()
    world.suspects.on_hang_up(2)
    for _ in range(WAITING_MAX):
        world.wait("early")
    world.wait("late")
    assert world.called == ["late"]
    world.leader = 3
    world.suspects.review()
    assert len(world.called) == 1 + WAITING_MAX


def test_a_broker_that_accepts_each_time_is_not_suspected_any_more() -> None:
    world = SuspectsWorld()
    world.suspects.on_hang_up(2)
    world.wait("a")
    for pause in LOOKS_MS:
        world.network.accept()
        assert world.called == []
        world.timers.advance(pause)
    world.network.accept()
    assert list(world.suspects.brokers) == [] and world.called == ["a"]
    world.timers.advance(SUSPECTED_MS)
    assert world.network.attempts == []


def test_a_broker_whose_port_closes_after_its_connections_stays_suspected() -> None:
    world = SuspectsWorld()
    world.suspects.on_hang_up(2)
    world.wait("a")
    world.network.accept()
    world.timers.advance(LOOKS_MS[0])
    world.network.fail()
    assert list(world.suspects.brokers) == [2] and world.called == []
    world.leader = 3
    world.suspects.review()
    assert world.called == ["a"]


def test_an_election_that_takes_longer_is_waited_for_if_the_address_refuses() -> None:
    """After an answer that names the dead leader, librdkafka asks again only a second later. So a delayed answer costs the client no more
    time."""
    world = SuspectsWorld()
    world.suspects.on_hang_up(2)
    world.wait("a")
    world.network.fail()
    passed = 0
    while passed + AGAIN_MS < REFUSED_MS:
        world.timers.advance(AGAIN_MS)
        passed += AGAIN_MS
        world.network.fail()
    assert passed > 2 * SUSPECTED_MS and world.called == []
    world.timers.advance(AGAIN_MS)
    assert world.called == ["a"] and not world.network.attempts


def test_a_broker_that_is_started_again_at_once_is_suspected_no_longer() -> None:
    world = SuspectsWorld()
    world.suspects.on_hang_up(2)
    world.wait("a")
    world.network.fail()
    world.timers.advance(AGAIN_MS)
    world.network.accept()
    assert list(world.suspects.brokers) == [] and world.called == ["a"]
    world.timers.advance(REFUSED_MS)
    assert not world.network.attempts


def test_no_suspicion_lasts_and_a_new_one_has_its_own_time() -> None:
    world = SuspectsWorld()
    world.suspects.on_hang_up(2)
    world.wait("a")
    world.timers.advance(SUSPECTED_MS - 1)
    world.suspects.on_hang_up(2)
    world.timers.advance(1)
    assert world.called == [], "the first time is over, the second is not"
    world.timers.advance(SUSPECTED_MS)
    assert list(world.suspects.brokers) == [] and world.called == ["a"]


def test_a_broker_that_has_gone_from_the_metadata_is_not_suspected() -> None:
    world = SuspectsWorld()
    world.suspects.on_hang_up(3)
    assert not world.suspects.brokers and not world.network.attempts
