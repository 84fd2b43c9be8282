"""JSON web tokens: which texts can be read as tokens, and with which claims a client may log in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.base.settings.oauthbearer import TokenOptions
from ottla.security.web_tokens import INSUFFICIENT_SCOPE, TOKEN_BYTES_MAX, TokenError, WebToken, check_claims, check_unsecured, read_token
from tests.fakes.issuer import AUDIENCE, ISSUER, claims_at, part, signed, unsecured

NOW_S = 1_000_000_000
SKEW_S = 30
OPTIONS = TokenOptions(
    jwks_url="file:///keys", jwks_authorities=None, refresh_ms=1, retry_backoff_ms=1, retry_backoff_max_ms=1, issuer=ISSUER,
    audiences=(AUDIENCE, "others"), is_any_issuer_allowed=False, is_any_audience_allowed=False,
    scopes=("kafka",), skew_ms=SKEW_S * 1000, scope_claim="scope", name_claim="sub",
    is_unsecured_allowed=False,
)  # fmt: skip


def token(claims: dict[str, Any], **header: Any) -> WebToken:
    return read_token(signed(claims, **header))


def test_a_token_is_read_with_all_its_parts() -> None:
    found = token(claims_at(NOW_S))
    assert (found.algorithm, found.key_id, found.claims, len(found.signature)) == ("RS256", "first", claims_at(NOW_S), 256)


GOOD = part({"alg": "RS256"})
NAN = b'{"exp": NaN}'
NONSENSE = {
    "nothing": "", "one part": "a", "two parts": f"{GOOD}.{GOOD}", "four parts": f"{GOOD}.{GOOD}.a.b",
    "padding": f"{GOOD}.{GOOD}.YQ==", "another alphabet": f"{GOOD}.{GOOD}.a+/a", "a length that is none": f"{GOOD}.{GOOD}.a",
    "a header that is a list": f"{part([1])}.{GOOD}.", "claims that are no JSON": f"{GOOD}.{part(b'{')}.",
    "claims that are no text": f"{GOOD}.{part(bytes([255, 254]))}.", "NaN": f"{GOOD}.{part(NAN)}.",
    "depth": f"{GOOD}.{part(b'[' * 20_000)}.", "digits": f"{GOOD}.{part(b'9' * 5_000)}.",
    "critical extensions": f"{part({'alg': 'RS256', 'crit': ['exp']})}.{GOOD}.", "size": f"{GOOD}.{'a' * TOKEN_BYTES_MAX}.",
}  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(TokenError):
        read_token(text)


def test_right_claims_name_the_user_and_the_end() -> None:
    assert check_claims(token(claims_at(NOW_S)), OPTIONS, NOW_S * 1000) == ("alice", (NOW_S + 600) * 1000)
    listed = claims_at(NOW_S, aud=["x", "others"], scope=["read", "kafka"], exp=NOW_S + 1.5)
    assert check_claims(token(listed), OPTIONS, NOW_S * 1000) == ("alice", (NOW_S + 1) * 1000 + 500)


REFUSED = {
    "no expiry": ({"exp": None}, "expiry"), "no issue": ({"iat": None}, "expiry"), "expired": ({"exp": NOW_S - SKEW_S}, "expired"),
    "issued later": ({"iat": NOW_S + SKEW_S + 1}, "not valid yet"), "valid later": ({"nbf": NOW_S + SKEW_S + 1}, "not valid yet"),
    "another issuer": ({"iss": ISSUER + "/"}, "issuer"), "no issuer": ({"iss": None}, "issuer"),
    "a list of issuers": ({"iss": [ISSUER]}, "iss"),
    "another audience": ({"aud": "brokers2"}, "audience"), "no audience": ({"aud": None}, "audience"),
    "audience as an object": ({"aud": {AUDIENCE: 1}}, "audience"),
    "no user": ({"sub": None}, "no user"), "empty user": ({"sub": " "}, "no user"),
    "a user that is a number": ({"sub": 7}, "no user"), "no scope": ({"scope": None}, "scope kafka"),
    "part of a scope": ({"scope": "kafka2 kafk"}, "scope kafka"), "expiry as text": ({"exp": str(NOW_S + 9)}, "no time"),
    "expiry as truth": ({"exp": True}, "no time"), "endless expiry": ({"exp": 1e300}, "no time"), "negative": ({"exp": -1}, "no time"),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "reason"), REFUSED.values(), ids=REFUSED)
def test_wrong_claims_are_refused(changed: dict[str, Any], reason: str) -> None:
    text = f"{part({'alg': 'RS256'})}.{part(json.loads(json.dumps(claims_at(NOW_S, **changed))))}."
    with pytest.raises(TokenError, match=reason) as caught:
        check_claims(read_token(text), OPTIONS, NOW_S * 1000)
    assert (caught.value.status == INSUFFICIENT_SCOPE) == ("scope" in reason)


def test_clocks_may_differ_by_the_skew() -> None:
    late = check_claims(token(claims_at(NOW_S, exp=NOW_S - SKEW_S + 1)), OPTIONS, NOW_S * 1000)
    assert late.ends_ms == (NOW_S + 1) * 1000
    check_claims(token(claims_at(NOW_S, iat=NOW_S + SKEW_S, nbf=NOW_S + SKEW_S)), OPTIONS, NOW_S * 1000)


def test_what_is_not_set_is_not_asked_for() -> None:
    options = OPTIONS._replace(issuer=None, audiences=(), scopes=(), name_claim="email")
    found = check_claims(token(claims_at(NOW_S, iss=None, aud=None, scope=None, email="a@b")), options, NOW_S * 1000)
    assert found.name == "a@b"


def test_only_a_token_without_a_signature_is_an_unsecured_one() -> None:
    check_unsecured(read_token(unsecured(claims_at(NOW_S))))
    others = (f"{part({})}.{part({})}.", f"{part({'alg': 'None'})}.{part({})}.")
    for text in (unsecured(claims_at(NOW_S)) + "YQ", signed(claims_at(NOW_S)), *others):
        with pytest.raises(TokenError, match="without a signature"):
            check_unsecured(read_token(text))
