"""The failure detector: a broker is taken for dead when it has closed an open connection and its address has then refused two connections.
Anything less proves nothing."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.cluster.failure_detector import LOOKS_MS, FailureDetector
from tests.fakes.peers import HeldNetwork
from tests.fakes.world import World


class DetectorWorld(World):
    """A detector that watches broker 2."""

    def __init__(self) -> None:
        self.network: Any = HeldNetwork()
        self.epochs: dict[int, int] = {2: 77}
        self.watched = [2]
        self.gone: list[tuple[int, int]] = []
        self.detector = FailureDetector(
            self.peers,
            self.network,
            self.timers,
            locate=lambda broker_id: (f"host-{broker_id}", 9092),
            epoch_of=self.epochs.get,
            watched=lambda: self.watched,
            on_gone=lambda broker_id, epoch: self.gone.append((broker_id, epoch)),
        )
        self.detector.review()


def test_a_hang_up_and_two_refusals() -> None:
    world = DetectorWorld()
    assert [asked.broker_id for asked in world.peers.asked] == [2]
    world.peers.hang_up(2)
    world.peers.hang_up(2)  # another connection to it
    world.network.fail()
    assert world.gone == [] and world.network.attempts == []
    world.epochs[2] = 78  # the broker registers again; the proof is about its former registration
    world.timers.advance(20)
    world.network.fail()
    assert world.gone == [(2, 77)]
    assert {*world.network.addresses} == {("host-2", 9092)}


def test_a_process_that_closes_its_connections_before_its_port() -> None:
    """The kernel closes them in this order when a process is killed."""
    world = DetectorWorld()
    began_ms = world.timers.clock.monotonic_ms()
    world.peers.hang_up(2)
    world.network.accept()
    world.timers.advance(LOOKS_MS[0])
    world.network.accept()
    world.timers.advance(LOOKS_MS[1])
    world.network.fail()
    assert world.gone == [], "two refusals are needed, as ever"
    world.timers.advance(20)
    world.network.fail()
    assert world.gone == [(2, 77)]
    assert world.timers.clock.monotonic_ms() - began_ms < 60, "and most ports are closed a few milliseconds later"


def test_what_proves_nothing() -> None:
    for reason in ("no answer", "no route to host"):
        world = DetectorWorld()
        world.peers.hang_up(2)
        world.network.fail(reason)
        world.timers.advance(400)
        assert world.network.attempts == [] and world.gone == []
    world = DetectorWorld()
    world.peers.hang_up(2)
    world.network.fail()
    world.timers.advance(20)
    for pause_ms in LOOKS_MS:
        world.network.accept()
        world.timers.advance(pause_ms)
    world.network.accept()
    world.timers.advance(LOOKS_MS[-1])
    assert world.network.attempts == [] and world.gone == [], "its port accepts"
    assert len(world.peers.asked) == 1
    world.timers.advance(500)
    assert len(world.peers.asked) == 2, "it is watched again"
    world.peers.hang_up(3)
    assert world.network.attempts == [], "another broker's end is not its concern"
    del world.epochs[2]
    world.peers.hang_up(2)
    assert world.network.attempts == [], "it is not registered"


def test_a_connection_that_cannot_be_opened_is_tried_again_and_an_open_one_is_kept() -> None:
    world = DetectorWorld()
    world.peers.asked.pop().done(None, ErrorCode.NETWORK_EXCEPTION)
    world.detector.review()
    world.peers.asked.pop().done(object(), 0)
    world.timers.advance(500)
    world.detector.review()
    assert world.peers.asked == [] and world.network.attempts == []


def test_nothing_is_found_after_the_end() -> None:
    world = DetectorWorld()
    world.peers.hang_up(2)
    world.detector.close()
    world.network.fail()
    world.timers.advance(1_000)
    assert world.gone == [] and world.network.attempts == []
