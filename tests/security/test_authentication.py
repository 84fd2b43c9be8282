"""The authentication of one connection: the choice of a mechanism, its exchange of messages, and the end, after which no further step is
accepted."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.security.authentication import ALLOWED, Authentication, AuthenticationState, StepResult
from tests.fakes.sasl import FakeExchange


def begin(exchange: FakeExchange | None = None) -> Authentication:
    return Authentication({"FAKE": lambda: exchange or FakeExchange()})


def step(authentication: Authentication, token: bytes) -> tuple[ErrorCode, StepResult]:
    answers: list[tuple[ErrorCode, StepResult]] = []
    authentication.step(token, lambda code, outcome: answers.append((code, outcome)))
    (answer,) = answers
    return answer


def test_tokens_go_to_and_fro_until_there_is_a_principal() -> None:
    authentication = begin()
    assert authentication.choose("FAKE") is ErrorCode.NONE
    assert step(authentication, b"hello") == (ErrorCode.NONE, StepResult(token=b"who are you?"))
    assert authentication.state is AuthenticationState.EXCHANGING
    assert step(authentication, b"alice") == (ErrorCode.NONE, StepResult(token=b"welcome", principal="User:alice"))
    assert authentication.state is AuthenticationState.AUTHENTICATED and not authentication.is_refused


def test_an_unknown_mechanism_and_a_second_choice_end_it() -> None:
    unknown, twice = begin(), begin()
    assert unknown.choose("PLAIN") is ErrorCode.UNSUPPORTED_SASL_MECHANISM and unknown.is_refused
    twice.choose("FAKE")
    assert twice.choose("FAKE") is ErrorCode.ILLEGAL_SASL_STATE and twice.is_refused


def test_a_token_without_a_mechanism_ends_it() -> None:
    authentication = begin()
    code, outcome = step(authentication, b"alice")
    assert code is ErrorCode.ILLEGAL_SASL_STATE and outcome.error and authentication.is_refused


def test_a_refusal_ends_it() -> None:
    authentication = begin()
    authentication.choose("FAKE")
    step(authentication, b"hello")
    code, outcome = step(authentication, b"mallory")
    assert code is ErrorCode.SASL_AUTHENTICATION_FAILED and outcome.principal is None and authentication.is_refused


def test_nothing_follows_the_end() -> None:
    assert not ALLOWED[AuthenticationState.REFUSED]
    exchange = FakeExchange(is_slow=True)
    authentication = begin(exchange)
    authentication.choose("FAKE")
    authentication.step(b"mallory", lambda code, outcome: None)
    exchange.finish()
    with pytest.raises(AssertionError):
        authentication.choose("FAKE")
