"""Bearer tokens: their form on the wire, their end, and what cannot be sent."""

from __future__ import annotations

import pytest

from ottla.client.core.bearer_token import BearerToken, bearer_token, unsecured_token
from ottla.client.core.sasl import BearerExchange
from ottla.security.web_tokens import check_unsecured, read_token
from tests.fakes.issuer import claims_at, unsecured


def test_the_first_message() -> None:
    assert bearer_token("abc").first_message() == b"n,,\x01auth=Bearer abc\x01\x01"
    assert bearer_token("abc", extensions={"traceId": "7"}).first_message() == b"n,,\x01auth=Bearer abc\x01traceId=7\x01\x01"


def test_the_end_of_a_token() -> None:
    text = unsecured(claims_at(1000, exp=1600.5))
    assert bearer_token(text).ends_s == 1600.5
    assert bearer_token(text, 1500.0).ends_s == 1500.0
    assert bearer_token("opaque").ends_s is bearer_token(unsecured(claims_at(1000, exp="soon"))).ends_s is None


@pytest.mark.parametrize("text", ["", "a b", "a\x01b", "a\n", "ü"])
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(ValueError, match="the token is empty, or has characters"):
        bearer_token(text)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"Auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": "x\x01y"}])
def test_extensions_that_cannot_be_sent(extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="extension"):
        bearer_token("abc", extensions=extensions)


def test_a_token_without_a_signature() -> None:
    made = unsecured_token({"sub": "jürgen", "scope": ["a", "b"]}, 60, 1000.0)
    found = read_token(made.text)
    check_unsecured(found)
    assert found.claims == {"sub": "jürgen", "scope": ["a", "b"], "iat": 1000.0, "exp": 1060.0} and made.ends_s == 1060.0


def test_claims_do_not_replace_the_lifetime() -> None:
    made = unsecured_token({"sub": "a", "iat": 1.0, "exp": 5.0}, 60, 1000.0)
    assert read_token(made.text).claims == {"sub": "a", "iat": 1000.0, "exp": 1060.0} and made.ends_s == 1060.0


def test_a_token_is_not_shown() -> None:
    assert "abc" not in repr(BearerToken("abc", 1.0, (("secret", "abc"),)))


def test_a_refusal_is_confirmed_and_then_an_error() -> None:
    refusals: list[bool] = []
    exchange = BearerExchange(bearer_token("abc"), lambda: refusals.append(True))
    assert exchange.answer(b'{"status":"invalid_token"}') == b"\x01" and refusals == [True]
    with pytest.raises(ValueError, match=r"the token is refused \(invalid_token\)"):
        exchange.answer(b"")
    assert BearerExchange(bearer_token("abc")).answer(b"") is None


@pytest.mark.parametrize("challenge", [b"nonsense", b"[]", b'{"status":7}', b"\xff", b'{"status":"\\u001b[0m"}'])
def test_a_refusal_without_a_status(challenge: bytes) -> None:
    exchange = BearerExchange(bearer_token("abc"))
    exchange.answer(challenge)
    with pytest.raises(ValueError, match=r"\(no status\)"):
        exchange.answer(b"")
