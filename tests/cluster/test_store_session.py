"""A broker's session with the metadata store: after each event, which broker epoch it has, and when it registers again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.loop.procedure import Procedure
from ottla.base.loop.store_retries import RETRY_MS, RETRY_MS_MAX
from ottla.cluster.registration import RegistrationRefused
from ottla.cluster.store_session import NO_EPOCH, REFUSED_RETRY_MS, BrokerSession, SessionState
from tests.fakes.world import World


class HeldRegistrar:
    """A registrar whose registrations end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[..., None]] = []

    def register(self) -> Procedure[tuple[int, str]]:
        answer = yield self.asked.append
        if isinstance(answer, RegistrationRefused):
            raise answer
        registered: tuple[int, str] = answer
        return registered


class SessionWorld(World):
    """A session with a metadata store. `events` has the session's calls to its owner."""

    def __init__(self) -> None:
        self.registrar: Any = HeldRegistrar()
        self.session = BrokerSession(
            store=self.store,
            retries=self.retries,
            registrar=self.registrar,
            on_registered=self.recorder("registered"),
            on_expired=lambda _epoch: self.events.append("expired"),
        )

    def begin(self) -> None:
        self.session.begin(lambda reason: self.events.append(f"refused: {reason}"))

    def answer(self, epoch: int) -> None:
        self.registrar.asked.pop()(epoch, "c")

    def refuse(self) -> None:
        self.registrar.asked.pop()(RegistrationRefused("in use"))

    def registered(self) -> SessionWorld:
        self.begin()
        self.answer(11)
        return self


def test_a_session_is_registered_with_the_registrars_answer() -> None:
    world = SessionWorld()
    assert (world.session.state, world.session.broker_epoch, world.events) == (SessionState.NEW, NO_EPOCH, [])
    world.begin()
    assert world.session.broker_epoch == NO_EPOCH
    world.answer(11)
    assert (world.session.state, world.session.broker_epoch, world.session.cluster_id) == (SessionState.REGISTERED, 11, "c")
    assert world.events == ["registered"]


def test_the_first_refusal_is_the_callers() -> None:
    world = SessionWorld()
    world.begin()
    world.refuse()
    world.timers.advance(10 * RETRY_MS)
    assert world.events == ["refused: in use"] and not world.registrar.asked


def test_a_session_that_is_cut_off_keeps_its_epoch() -> None:
    """The session may be alive, and other brokers know the broker by this epoch."""
    world = SessionWorld().registered()
    world.store.disconnect()
    assert (world.session.state, world.session.broker_epoch) == (SessionState.SUSPENDED, 11)
    world.store.reconnect()
    assert (world.session.state, world.session.broker_epoch, world.events) == (SessionState.REGISTERED, 11, ["registered"])
    assert not world.registrar.asked


def test_a_break_before_the_registration_changes_nothing() -> None:
    world = SessionWorld()
    world.begin()
    world.store.disconnect()
    world.store.reconnect()
    assert world.session.state is SessionState.NEW
    world.answer(11)
    assert world.session.state is SessionState.REGISTERED


def test_an_expired_session_has_no_epoch_and_the_next_one_registers() -> None:
    world = SessionWorld().registered()
    world.store.expire()
    assert (world.session.state, world.session.broker_epoch) == (SessionState.EXPIRED, NO_EPOCH)
    assert world.events == ["registered", "expired"] and not world.registrar.asked
    world.store.renew()
    world.answer(12)
    assert (world.session.state, world.session.broker_epoch) == (SessionState.REGISTERED, 12)
    assert world.events == ["registered", "expired", "registered"]


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_session_that_expires_before_it_is_registered_is_no_loss(is_begun: bool) -> None:
    world = SessionWorld()
    if is_begun:
        world.begin()
    world.store.expire()
    assert world.events == [] and world.session.state is SessionState.EXPIRED


def test_a_session_that_expired_while_it_was_cut_off() -> None:
    world = SessionWorld().registered()
    world.store.disconnect()
    world.store.expire()
    assert world.session.state is SessionState.SUSPENDED, "the broker cannot know it yet"
    world.store.reconnect()
    assert world.events == ["registered", "expired"]


def test_a_later_refusal_is_tried_again() -> None:
    """The other holder of the id may be the broker's own former session."""
    world = SessionWorld().registered()
    world.store.expire()
    world.store.renew()
    world.refuse()
    assert not world.registrar.asked
    world.timers.advance(REFUSED_RETRY_MS)
    world.answer(13)
    assert world.session.broker_epoch == 13 and world.events[-1] == "registered"


def test_a_broker_whose_id_was_taken_over_tries_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    world = SessionWorld().registered()
    world.store.expire()
    world.store.renew()
    for _ in range(600):
        if world.registrar.asked:
            world.refuse()
        world.timers.advance(1_000)
    lines = [record.getMessage() for record in caplog.records if "in use" in record.getMessage()]
    assert lines[0] == "in use; this broker leads nothing until it is registered, and tries again in 1 s"
    assert [line.split()[-2] for line in lines[:7]] == ["1", "2", "4", "8", "16", "30", "30"] and len(lines) < 27
    world.timers.advance(RETRY_MS_MAX)
    world.answer(14)
    world.store.expire()
    world.store.renew()
    world.refuse()
    assert caplog.records[-1].getMessage().endswith("tries again in 1 s"), "it was registered in between"


def test_a_retry_ends_with_the_session_that_it_was_for() -> None:
    world = SessionWorld().registered()
    world.store.expire()
    world.store.renew()
    world.refuse()
    world.store.expire()
    world.timers.advance(10 * RETRY_MS)
    assert not world.registrar.asked
    world.store.renew()
    assert len(world.registrar.asked) == 1
