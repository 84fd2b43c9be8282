"""Who counts as gone: a connection that was open and is closed by the other side, then two refusals; everything less proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ottla.base.errors import ErrorCode
from ottla.base.ports import REFUSED, Channel, Network
from ottla.cluster.failure_detector import LOOKS_MS, FailureDetector
from tests.fakes.peers import HeldPeers
from tests.fakes.timers import ManualTimers


class Closable:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class World:
    """A detector that watches broker 2; `attempts` are its connections that wait to be answered."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.peers = HeldPeers()
        self.attempts: list[tuple[Callable[[Channel], None], Callable[[str], None]]] = []
        self.epochs: dict[int, int] = {2: 77}
        self.watched = [2]
        self.gone: list[tuple[int, int]] = []
        self.detector = FailureDetector(
            self.peers,
            cast("Network", self),
            self.timers,
            locate=lambda broker_id: (f"host-{broker_id}", 9092),
            epoch_of=self.epochs.get,
            watched=lambda: self.watched,
            on_gone=lambda broker_id, epoch: self.gone.append((broker_id, epoch)),
        )
        self.detector.review()

    def connect(self, host: str, port: int, connected: Callable[[Channel], None], failed: Callable[[str], None]) -> None:
        assert (host, port) == ("host-2", 9092)
        self.attempts.append((connected, failed))

    def fail(self, reason: str = REFUSED) -> None:
        self.attempts.pop(0)[1](reason)

    def accept(self) -> None:
        channel: Any = Closable()
        self.attempts.pop(0)[0](channel)
        assert channel.is_closed


def test_a_hang_up_and_two_refusals() -> None:
    world = World()
    assert [asked.broker_id for asked in world.peers.asked] == [2]
    world.peers.hang_up(2)
    world.peers.hang_up(2)  # another connection to it
    world.fail()
    assert world.gone == [] and world.attempts == []
    world.epochs[2] = 78  # it registers anew meanwhile: what is proved is proved of the former registration
    world.timers.advance(20)
    world.fail()
    assert world.gone == [(2, 77)]


def test_a_process_that_closes_its_connections_before_its_port() -> None:
    """As the kernel does when a process is killed."""
    world = World()
    began_ms = world.timers.clock.monotonic_ms()
    world.peers.hang_up(2)
    world.accept()
    world.timers.advance(LOOKS_MS[0])
    world.accept()
    world.timers.advance(LOOKS_MS[1])
    world.fail()
    assert world.gone == [], "two refusals are needed, as ever"
    world.timers.advance(20)
    world.fail()
    assert world.gone == [(2, 77)]
    assert world.timers.clock.monotonic_ms() - began_ms < 60, "and most ports are closed a few milliseconds later"


def test_what_proves_nothing() -> None:
    for reason in ("no answer", "no route to host"):
        world = World()
        world.peers.hang_up(2)
        world.fail(reason)
        world.timers.advance(400)
        assert world.attempts == [] and world.gone == []
    world = World()
    world.peers.hang_up(2)
    world.fail()
    world.timers.advance(20)
    for pause_ms in LOOKS_MS:
        world.accept()
        world.timers.advance(pause_ms)
    world.accept()
    world.timers.advance(LOOKS_MS[-1])
    assert world.attempts == [] and world.gone == [], "its port accepts"
    assert len(world.peers.asked) == 1
    world.timers.advance(500)
    assert len(world.peers.asked) == 2, "it is watched again"
    world.peers.hang_up(3)
    assert world.attempts == [], "another broker's end is not its concern"
    del world.epochs[2]
    world.peers.hang_up(2)
    assert world.attempts == [], "it is not registered"


def test_a_connection_that_cannot_be_opened_is_tried_again_and_an_open_one_is_kept() -> None:
    world = World()
    world.peers.asked.pop().done(None, ErrorCode.NETWORK_EXCEPTION)
    world.detector.review()
    world.peers.asked.pop().done(object(), 0)
    world.timers.advance(500)
    world.detector.review()
    assert world.peers.asked == [] and world.attempts == []


def test_nothing_is_found_after_the_end() -> None:
    world = World()
    world.peers.hang_up(2)
    world.detector.close()
    world.fail()
    world.timers.advance(1_000)
    assert world.gone == [] and world.attempts == []
