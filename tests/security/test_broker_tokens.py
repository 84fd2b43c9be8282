"""The times at which a broker fetches its token: once for all callers that wait, again before the token expires, and with pauses if no
token can be fetched."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import OttlaError
from ottla.client.core.bearer_token import BearerToken
from ottla.client.errors import ConnectError
from ottla.client.token_source import TokenKeeper
from ottla.security.broker_tokens import PAUSE_MS, BrokerTokens
from tests.fakes.world import World

LIFE_S = 100


class BrokerTokensWorld(World):
    """A broker's tokens. Their source belongs to the test."""

    def __init__(self) -> None:
        self.error: OttlaError | None = None
        self.fetches = 0
        keeper = TokenKeeper(self._fetch, now=lambda: self.clock.wall_ms() / 1000)
        self.tokens = BrokerTokens(keeper, self.threads, self.clock, self.timers)
        self.got: list[Any] = []

    def _fetch(self) -> BearerToken:
        self.fetches += 1
        if self.error is not None:
            raise self.error
        return BearerToken(f"t{self.fetches}", self.clock.wall_ms() / 1000 + LIFE_S)

    def ask(self) -> Any:
        """Asks for a token. Returns it if it came before the call returned, otherwise None."""
        before = len(self.got)
        self.tokens.get(lambda token, error: self.got.append(error if token is None else token))
        return self.got[-1] if len(self.got) > before else None

    def texts(self) -> list[str]:
        return [str(found) if isinstance(found, OttlaError) else found.text for found in self.got]

    def advance(self, seconds: float) -> None:
        """Lets time pass, and lets threads finish in every tenth of a second."""
        for _ in range(int(seconds * 10)):
            self.timers.advance(100)
            self.threads.run_all()


def test_those_who_wait_share_one_fetch_in_a_thread() -> None:
    world = BrokerTokensWorld()
    assert [world.ask() for _ in range(3)] == [None] * 3 and world.fetches == 0, "never on the loop"
    assert len(world.threads.waiting) == 1
    world.threads.run_all()
    assert world.texts() == ["t1", "t1", "t1"] and world.ask().text == "t1"


def test_another_one_is_there_before_the_token_ends_and_no_login_waits_for_it() -> None:
    world = BrokerTokensWorld()
    world.ask()
    world.threads.run_all()
    world.advance(LIFE_S * 0.79)
    for number in range(5):
        assert world.ask().text == f"t{number + 1}"
        world.advance(LIFE_S * 0.02)
        assert world.ask().text == f"t{number + 2}", "fetched in the last fifth of the time, without being asked for"
        world.advance(LIFE_S * 0.78)
    assert world.fetches == 6


def test_while_no_other_can_be_had_the_old_one_serves_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerTokensWorld()
    world.ask()
    world.threads.run_all()
    world.error = ConnectError("the issuer is away")
    with caplog.at_level("INFO"):
        world.advance(LIFE_S - 1)
        assert world.ask().text == "t1" and 5 < world.fetches < 40
        assert caplog.text.count("the issuer is away; the current token is used until it expires") == 1
        world.advance(1.1)
        world.ask()
        world.threads.run_all()
        assert world.texts()[-1] == "the issuer is away"
        world.error = None
        world.advance(PAUSE_MS / 1000)
        world.ask()
        world.threads.run_all()
        assert world.texts()[-1] == f"t{world.fetches}" and caplog.text.count("tokens for logins to other brokers are available again") == 1


def test_after_a_failure_logins_fail_at_once_for_a_while() -> None:
    world = BrokerTokensWorld()
    world.error = ConnectError("the issuer is away")
    world.ask()
    world.threads.run_all()
    for _ in range(100):
        assert str(world.ask()) == "the issuer is away"
    assert world.fetches == 1
    world.timers.advance(PAUSE_MS)
    assert world.ask() is None
    world.threads.run_all()
    assert world.fetches == 2


def test_a_refused_token_is_not_sent_again_and_another_one_not_fetched_without_pause() -> None:
    world = BrokerTokensWorld()
    world.ask()
    world.threads.run_all()
    (first,) = world.got
    world.tokens.refused(first)
    assert "was refused" in str(world.ask()) and world.fetches == 1
    world.timers.advance(PAUSE_MS)
    assert world.ask() is None
    world.threads.run_all()
    world.tokens.refused(first)
    assert world.ask().text == "t2", "the refusal of a token that is gone says nothing about another one"


def test_nothing_goes_on_after_the_end() -> None:
    world = BrokerTokensWorld()
    world.ask()
    world.threads.run_all()
    world.tokens.close()
    assert world.timers.pending() == 0
    world.advance(LIFE_S)
    assert "does not log in any more" in str(world.ask()) and not world.threads.waiting and world.fetches == 1
    late = BrokerTokensWorld()
    late.ask()
    late.tokens.close()
    assert len(late.got) == 1 and "does not log in any more" in str(late.got[0]), "what waits is answered"
    late.threads.run_all()
    assert len(late.got) == 1 and late.timers.pending() == 0, "a fetch that was under way ends in nothing"
