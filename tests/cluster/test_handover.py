"""The handover before a broker stops: it asks the controller until it leads no partition that others could lead, and gives up in time. A
broker that is alone stops at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.cluster.handover import Handover
from tests.fakes.world import World

Answer = Callable[[ErrorCode, list[tuple[str, int]]], None]


class HandoverWorld(World):
    """Broker 1 of three. It leads a partition that has a replica on broker 2."""

    def __init__(self, *assignments: str, others: tuple[int, ...] = (2, 3)) -> None:
        self.led: list[Any] = [SimpleNamespace(state=SimpleNamespace(replicas=(1, 2)))]
        self.asked: list[Answer] = []
        self.happened: list[str] = []
        self.announced: list[Callable[[], object]] = []
        self.is_registered = True
        self.controller = SimpleNamespace(call_when_announced=self.announced.append)
        self.metadata = SimpleNamespace(brokers=dict.fromkeys((1, *others)))
        config, _ = load(assignments=["broker.id=1", *assignments])
        member: Any = self
        self.handover = Handover(
            self, member, lambda: iter(self.led), config=config, timers=self.timers, done=lambda: self.happened.append("closed")
        )

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, done: Answer) -> None:
        assert (broker_id, broker_epoch) == (1, 7)
        self.asked.append(done)

    def broker_epoch(self) -> int:
        return 7

    def leave(self, done: Callable[[], object]) -> None:
        self.happened.append("left")
        done()

    def answer(self, error: ErrorCode = ErrorCode.NONE, *remaining: tuple[str, int]) -> None:
        self.asked.pop()(error, list(remaining))


def test_it_leaves_when_it_leads_nothing_that_others_could_lead_and_they_have_been_sent_it() -> None:
    world = HandoverWorld()
    world.handover.begin()
    world.answer(ErrorCode.NONE)
    assert world.announced == [] and world.asked == [], "what the controller decided has not arrived here"
    world.led = [SimpleNamespace(state=SimpleNamespace(replicas=(1,))), SimpleNamespace(state=SimpleNamespace(replicas=(1, 9)))]
    world.timers.advance(10)
    world.answer(ErrorCode.NONE)
    assert world.happened == []
    world.announced.pop()()
    assert world.happened == ["left", "closed"]
    world.timers.advance(60_000)
    assert world.happened == ["left", "closed"]


def test_it_asks_again_while_something_remains_and_after_another_controller_was_elected() -> None:
    world = HandoverWorld()
    world.led = []
    world.handover.begin()
    for answer in ((ErrorCode.NONE, ("t", 0)), (ErrorCode.NOT_CONTROLLER,), (ErrorCode.NETWORK_EXCEPTION,)):
        world.answer(*answer)
        assert world.asked == [] and world.announced == []
        world.timers.advance(500)
        assert len(world.asked) == 1
    world.answer()
    world.timers.advance(1_000)
    assert world.happened == ["left", "closed"], "a controller waits a moment for the others, no longer"


def test_what_is_not_handed_over_in_time_is_given_up() -> None:
    world = HandoverWorld("controlled.shutdown.max.retries=2", "controlled.shutdown.retry.backoff.ms=400")
    world.handover.begin()
    late = world.asked[0]
    world.timers.advance(799)
    assert world.happened == []
    world.timers.advance(1)
    assert world.happened == ["left", "closed"]
    late(ErrorCode.NONE, [])
    world.timers.advance(60_000)
    assert world.happened == ["left", "closed"] and len(world.asked) == 1


def test_a_store_that_does_not_answer_holds_up_no_stop() -> None:
    world = HandoverWorld()
    world.led = []
    unanswered: list[Callable[[], object]] = []
    world.leave = unanswered.append  # type: ignore[method-assign]
    world.handover.begin()
    world.answer()
    world.announced.pop()()
    world.timers.advance(1_999)
    assert world.happened == [] and len(unanswered) == 1
    world.timers.advance(1)
    assert world.happened == ["closed"]
    unanswered[0]()
    assert world.happened == ["closed"]


def test_one_that_is_alone_or_not_registered_stops_at_once() -> None:
    unregistered = HandoverWorld()
    unregistered.is_registered = False
    for world in (HandoverWorld(others=()), HandoverWorld("controlled.shutdown.enable=false"), unregistered):
        world.handover.begin()
        assert world.happened == ["closed"] and world.asked == [] and world.timers.pending() == 0
