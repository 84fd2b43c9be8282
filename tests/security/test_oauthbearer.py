"""The exchange of OAUTHBEARER: a valid token logs in. For an invalid one the server sends the status, the client confirms it, and the
server refuses the login."""

from __future__ import annotations

import json

import pytest

from ottla.security.authentication import StepResult
from ottla.security.oauthbearer import CONFIRMATION, OAuthBearerServer, Verify
from ottla.security.web_tokens import TOKEN_BYTES_MAX
from tests.fakes.issuer import claims_at, first_message, signed, unsecured
from tests.security.test_web_tokens import NOW_S, OPTIONS

UNSECURED = OPTIONS._replace(jwks_url=None, is_unsecured_allowed=True)


def server(verify: Verify | None = lambda _token, done: done("")) -> OAuthBearerServer:
    return OAuthBearerServer(OPTIONS if verify else UNSECURED, verify, lambda: NOW_S * 1000)


def step(exchange: OAuthBearerServer, message: bytes) -> StepResult:
    outcomes: list[StepResult] = []
    exchange.step(message, outcomes.append)
    (outcome,) = outcomes
    return outcome


def test_a_right_token_logs_in_until_it_ends() -> None:
    for message in (first_message(signed(claims_at(NOW_S))), first_message(signed(claims_at(NOW_S)), "alice")):
        assert step(server(), message) == StepResult(principal="User:alice", ends_ms=(NOW_S + 600) * 1000)
    with_extensions = first_message(signed(claims_at(NOW_S)))[:-1] + b"traceId=7\x01\x01"
    assert step(server(), with_extensions).principal == "User:alice"


def test_the_answer_may_come_later() -> None:
    waiting = []
    outcomes: list[StepResult] = []
    server(lambda _token, done: waiting.append(done)).step(first_message(signed(claims_at(NOW_S))), outcomes.append)
    assert outcomes == []
    waiting[0]("")
    assert outcomes[0].principal == "User:alice"


@pytest.mark.parametrize("confirmation", [CONFIRMATION, b"n,,\x01auth=Bearer a.b.c\x01\x01", b""])
def test_a_wrong_token_is_refused_after_its_status(confirmation: bytes) -> None:
    exchange = server(lambda _token, done: done("the token's signature is wrong"))
    status = step(exchange, first_message(signed(claims_at(NOW_S))))
    assert status == StepResult(token=b'{"status":"invalid_token"}')
    refusal = step(exchange, confirmation)
    assert (refusal.error, refusal.reason) == ('{"status":"invalid_token"}', "the token's signature is wrong")
    assert refusal.principal is None


def test_a_missing_scope_is_named() -> None:
    status = step(server(), first_message(signed(claims_at(NOW_S, scope="read"))))
    assert json.loads(status.token) == {"status": "insufficient_scope", "scope": "kafka"}


def test_an_oversized_token_is_refused_unread() -> None:
    exchange = server(lambda _token, _done: pytest.fail("it was looked at"))
    assert step(exchange, first_message("a." * TOKEN_BYTES_MAX)).token == b'{"status":"invalid_token"}'


def test_acting_for_another_is_refused() -> None:
    outcome = step(server(), first_message(signed(claims_at(NOW_S)), "root"))
    assert outcome.principal is None and "authorization id" in (outcome.error or "")


@pytest.mark.parametrize("message", [
    b"", b"n,,", b"n,,\x01\x01", b"y,,\x01auth=Bearer a.b.c\x01\x01", b"p=tls-unique,,\x01auth=Bearer a.b.c\x01\x01",
    b"n,,\x01auth=Basic a.b.c\x01\x01", b"n,,\x01auth=Bearer a.b.c\x01", b"n,,\x01Auth=Bearer a.b.c\x01\x01",
    b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Bearer a b\x01\x01", b"n,,\x01auth=Bearer a\xff.b.c\x01\x01", b"\0" * 1000,
])  # fmt: skip
def test_another_message_is_refused_at_once(message: bytes) -> None:
    assert step(server(), message) == StepResult(error="Invalid OAUTHBEARER client first message")


def test_unsecured_tokens_where_they_are_allowed() -> None:
    assert step(server(None), first_message(unsecured(claims_at(NOW_S)))).principal == "User:alice"
    for text in (signed(claims_at(NOW_S)), unsecured(claims_at(NOW_S, exp=1)), unsecured(claims_at(NOW_S, iss="other"))):
        assert step(server(None), first_message(text)).token == b'{"status":"invalid_token"}'
