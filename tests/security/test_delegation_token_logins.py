"""Logins by delegation token: the principal, the end of the session, and refusals of wrong tokens, which look like those of wrong
passwords."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.delegation_token import DelegationToken
from ottla.security import delegation_token_logins
from ottla.security.authentication import StepResult
from ottla.security.credentials import ScramUsers
from ottla.security.delegation_token_logins import TokenLogins, token_hmac, token_password
from ottla.security.scram import HASHES, ScramClient
from ottla.security.scram_server import ScramServer
from tests.fakes.world import World

KEY = b"the cluster's"
TOKEN = DelegationToken(token_id="Sb0F5mSbQ0C6JdSBqkIK9A", owner="User:alice", requester="User:bob", issue_ms=1, expiry_ms=900, max_ms=999)
PASSWORD = token_password(token_hmac(KEY, TOKEN.token_id))


class TokenLoginWorld(World):
    def __init__(self) -> None:
        self.tokens = {TOKEN.token_id: TOKEN}
        self.logins = TokenLogins(KEY, self.tokens.get, self.threads)

    def login(
        self, token_id: str = TOKEN.token_id, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256", *, by_token: bool = True
    ) -> StepResult:
        """Logs in, and returns the result of the last step."""
        users = ScramUsers(mechanism, dict, lambda: b"secret")
        server = ScramServer(mechanism, users.find, users.decoy, "server", self.logins.find if by_token else None)
        client = ScramClient(token_id, password, mechanism, "client", is_by_token=True)
        challenge = self._step(server, client.first())
        last = self._step(server, client.final(challenge.token))
        if last.error is None:
            client.check(last.token)
        return last

    def _step(self, server: ScramServer, message: bytes) -> StepResult:
        outcomes: list[StepResult] = []
        server.step(message, outcomes.append)
        self.threads.run_all()
        (outcome,) = outcomes
        return outcome


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_token_logs_in_as_its_owner_until_it_ends(mechanism: str) -> None:
    world = TokenLoginWorld()
    outcome = world.login(mechanism=mechanism)
    assert (outcome.principal, outcome.ends_ms, outcome.is_by_token) == ("User:alice", 900, True)
    world.tokens[TOKEN.token_id] = replace(TOKEN, expiry_ms=2000)
    assert world.login(mechanism=mechanism).ends_ms == 999
    assert outcome.is_valid is not None and outcome.is_valid()
    world.tokens.clear()
    assert not outcome.is_valid()


def test_a_session_ends_when_its_tokens_end_is_brought_forward() -> None:
    """The session's timer is set at the login, so it does not know a later change of the token's expiry."""
    world = TokenLoginWorld()
    outcome = world.login()
    assert outcome.is_valid is not None and outcome.ends_ms == 900
    world.tokens[TOKEN.token_id] = replace(TOKEN, expiry_ms=950)
    assert outcome.is_valid(), "it was renewed"
    world.tokens[TOKEN.token_id] = replace(TOKEN, expiry_ms=500)
    assert not outcome.is_valid()
    assert world.login().ends_ms == 500


def test_wrong_tokens_are_refused_like_wrong_passwords() -> None:
    world = TokenLoginWorld()
    right = world.login()
    wrong = [world.login(password="wrong"), world.login("Sb0F5mSbQ0C6JdSBqkIK9B"), world.login(by_token=False), world.login("alice")]
    assert right.error is None and {outcome.error for outcome in wrong} == {wrong[0].error} and wrong[0].error
    assert {outcome.principal for outcome in wrong} == {None}


def test_a_removed_token_is_refused_even_with_its_secret() -> None:
    world = TokenLoginWorld()
    assert world.login().error is None
    world.tokens.clear()
    assert world.login().error


def test_a_tokens_keys_are_made_once_and_off_the_loop() -> None:
    world = TokenLoginWorld()
    for _ in range(3):
        world.login()
    assert len(world.logins._kept) == 1
    world.logins.find("SCRAM-SHA-512", TOKEN.token_id, lambda _login: None)
    assert len(world.threads.waiting) == 1


def test_no_more_keys_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_token_logins, "CREDENTIALS_MAX", 2)
    world = TokenLoginWorld()
    for mechanism in HASHES:
        world.login(mechanism=mechanism)
    world.tokens["other"] = replace(TOKEN, token_id="other")
    assert world.login("other", token_password(token_hmac(KEY, "other"))).principal == "User:alice"
    assert len(world.logins._kept) == 2
    for number in range(5):
        assert world.login(f"unknown-{number}").error
    assert len(world.logins._kept) == 2
