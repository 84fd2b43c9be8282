"""A broker whose session with ZooKeeper may be over: a controller stops acting, and once the session is over, a leader stops leading."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from tests.cluster.brokers import Brokers

TIMEOUT_MS = 6_000


def leased(count: int) -> Brokers:
    return Brokers(count, is_timed=True, session_timeout_ms=TIMEOUT_MS)


def test_a_controller_that_is_cut_off_stops_acting_when_its_session_may_be_over() -> None:
    """I38: the time is measured from the sending of the last answered request, so it ends before the next controller can be elected."""
    world = leased(2)
    old = world.members[0]
    old.store.disconnect()
    ends_ms = old.store.lease_ends_ms()
    world.timers.advance(int(ends_ms - world.timers.clock.monotonic_ms()) - 1)
    assert world.active() == [0], "its session certainly lives"
    waiting = old.create("waits")
    world.timers.advance(1)
    assert world.active() == [] and [answer.error for answer in waiting] == [ErrorCode.NOT_CONTROLLER]
    assert [answer.error for answer in old.create("late")] == [ErrorCode.NOT_CONTROLLER]


def test_it_goes_on_under_the_same_epoch_if_its_session_lived_on() -> None:
    world = leased(2)
    old = world.members[0]
    old.store.disconnect()
    world.timers.advance(2 * TIMEOUT_MS)
    assert world.active() == []
    old.store.reconnect()
    world.settle()
    assert world.active() == [0] and old.controller.state.controller_epoch == 1
    answers = old.create("a", replicas=2)
    world.settle()
    assert [answer.error for answer in answers] == [ErrorCode.NONE]


def test_after_a_pause_the_first_request_that_was_waiting_is_not_served() -> None:
    """The process was paused, so no timer has run and no event of the session has arrived."""
    world = leased(2)
    paused = world.members[0]
    world.timers.clock.advance(TIMEOUT_MS + 1)
    assert [answer.error for answer in paused.create("buffered")] == [ErrorCode.NOT_CONTROLLER]
    world.settle()
    assert world.active() == [0], "the session lives: its keeper was as late as the lease"
    assert "/brokers/topics/buffered" not in world.model.tree.nodes()


def test_an_answer_that_arrives_after_the_lease_ended_is_not_acted_upon() -> None:
    world = leased(2)
    old = world.members[0]
    answers = old.create("a")
    world.timers.advance(1)  # the write has reached the store
    world.timers.clock.advance(TIMEOUT_MS)
    world.settle()
    assert [answer.error for answer in answers] == [ErrorCode.NOT_CONTROLLER]
    topic = world.controller.controller.state.topic("a")
    assert topic is not None, "it was written, and the next one to act reads it"


def test_a_broker_whose_session_is_over_stops_leading_before_it_registers_anew() -> None:
    """I40."""
    world = leased(2)
    broker = world.members[1]
    broker.store.disconnect()
    world.settle()
    assert broker.replicas.expiries == 0, "cut off, but the session may live"
    broker.store.reconnect()
    world.settle()
    broker.store.expire()
    world.settle(100)
    assert broker.replicas.expiries == 1
