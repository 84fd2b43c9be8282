"""The keys of a token issuer: which keys are accepted, when they are read, and which signatures they confirm."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ottla.security.signing_keys import KEYS_MAX, NOT_READ, UNKNOWN, WRONG, SigningKeys, read_key_set
from ottla.security.web_tokens import read_token
from tests.fakes import ManualClock
from tests.fakes.issuer import claims_at, ec_key, jwks, part, public_jwk, rsa_key, signed, unsecured
from tests.fakes.threads import ManualThreads
from tests.fakes.world import World
from tests.security.test_web_tokens import NOW_S, OPTIONS

FIRST = public_jwk(rsa_key(), "first")
CLAIMS = claims_at(NOW_S)


class Source:
    """Stands for the server that has the keys."""

    def __init__(self, *documents: bytes | OSError) -> None:
        self.documents = list(documents)
        self.count = 0

    def read(self, url: str, authorities: str | None) -> bytes:
        assert (url, authorities) == (OPTIONS.jwks_url, OPTIONS.jwks_authorities)
        self.count += 1
        found = self.documents[min(self.count, len(self.documents)) - 1]
        if isinstance(found, OSError):
            raise found
        return found


class SigningKeysWorld(World):
    def __init__(self, *documents: bytes | OSError, **options: Any) -> None:
        self.source, self.clock, self.threads = Source(*documents), ManualClock(), ManualThreads()
        limits = {"refresh_ms": 60_000, "retry_backoff_ms": 100, "retry_backoff_max_ms": 1_000, **options}
        self.keys = SigningKeys(OPTIONS._replace(**limits), self.source.read, self.clock, self.threads)

    def begin(self, text: str) -> list[str]:
        """Begins the check of a token. Returns a list that gets the answer."""
        answers: list[str] = []
        self.keys.verify(read_token(text), answers.append)
        return answers

    def verify(self, text: str) -> str:
        answers = self.begin(text)
        self.threads.run_all()
        (answer,) = answers
        return answer


def test_right_signatures_are_confirmed_by_each_kind_of_key() -> None:
    world = SigningKeysWorld(jwks(FIRST, public_jwk(ec_key(), "curve")))
    assert [world.verify(signed(CLAIMS, algorithm=name)) for name in ("RS256", "RS512", "PS384")] == ["", "", ""]
    assert world.verify(signed(CLAIMS, ec_key(), "curve", "ES256")) == ""
    assert world.source.count == 1


def confused() -> str:
    """Returns a token that is signed with the public key as if it were a shared secret."""
    begun = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(CLAIMS)}"
    secret = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return f"{begun}.{part(hmac.digest(secret, begun.encode(), hashlib.sha256))}"


def swapped() -> str:
    """Returns a token with a valid signature of other claims."""
    header, _, signature = signed(CLAIMS).split(".")
    return f"{header}.{part({**CLAIMS, 'sub': 'root'})}.{signature}"


WRONG_TOKENS: dict[str, tuple[Callable[[], str], str]] = {
    "another key of the same id": (lambda: signed(CLAIMS, rsa_key("other")), WRONG),
    "an unknown id": (lambda: signed(CLAIMS, key_id="second"), UNKNOWN),
    "no algorithm": (lambda: unsecured(CLAIMS), UNKNOWN),
    "the public key as a secret": (confused, UNKNOWN),
    "other claims": (swapped, WRONG),
    "an empty signature": (lambda: signed(CLAIMS).rpartition(".")[0] + ".", WRONG),
    "an algorithm of other keys": (lambda: signed(CLAIMS, ec_key(), "first", "ES256"), UNKNOWN),
    "a key of its own in the header": (lambda: signed(CLAIMS, rsa_key("other"), jwk=public_jwk(rsa_key("other"), "first")), WRONG),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_wrong_signatures_are_refused(name: str) -> None:
    make, reason = WRONG_TOKENS[name]
    assert SigningKeysWorld(jwks(FIRST)).verify(make()) == reason


def test_a_token_without_a_key_id_needs_a_single_key() -> None:
    assert SigningKeysWorld(jwks(FIRST)).verify(signed(CLAIMS, key_id=None)) == ""
    assert SigningKeysWorld(jwks(FIRST, public_jwk(rsa_key("other"), "second"))).verify(signed(CLAIMS, key_id=None)) == UNKNOWN


def test_only_keys_for_signatures_are_read() -> None:
    for members in ({"use": "enc"}, {"key_ops": ["encrypt"]}, {"alg": "HS256"}, {"kty": "oct", "k": "YWFh"}, {"n": "AQAB"}):
        with pytest.raises(ValueError, match="no public key"):
            read_key_set(jwks({**FIRST, **members}))
    with pytest.raises(ValueError, match="no public key"):
        read_key_set(jwks(public_jwk(rsa_key("small", 1024), "small")))
    assert list(read_key_set(jwks({**FIRST, "alg": "PS256"})).by_algorithm) == ["PS256"]
    many = read_key_set(jwks(*({**FIRST, "kid": str(number), "alg": "RS256"} for number in range(KEYS_MAX + 10))))
    assert len(many.by_id) == KEYS_MAX


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": 7}', b'{"keys": [7, null]}', b"[" * 50_000, b"\xff"])
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_key_set(data)


def test_a_new_key_is_found_and_unknown_ids_read_the_keys_no_more_than_so_often() -> None:
    world = SigningKeysWorld(jwks(FIRST), jwks(public_jwk(rsa_key("other"), "second")))
    assert world.verify(signed(CLAIMS)) == ""
    rotated = signed(CLAIMS, rsa_key("other"), "second")
    assert [world.verify(rotated) for _ in range(3)] == [UNKNOWN] * 3 and world.source.count == 1
    world.clock.advance(1_000)
    assert world.verify(rotated) == "" and world.source.count == 2
    assert world.verify(signed(CLAIMS)) == UNKNOWN


def test_old_keys_are_read_again_and_stay_if_that_fails() -> None:
    world = SigningKeysWorld(jwks(FIRST), OSError("the host is down"))
    for _ in range(2):
        assert world.verify(signed(CLAIMS)) == ""
    world.clock.advance(60_000)
    assert world.verify(signed(CLAIMS)) == "" and world.source.count == 2


def test_failures_are_retried_after_a_growing_wait() -> None:
    world = SigningKeysWorld(OSError("the host is down"))
    tries = []
    for _ in range(40):
        assert world.verify(signed(CLAIMS)) == NOT_READ
        tries.append(world.source.count)
        world.clock.advance(100)
    waits = [tries.count(number) for number in range(1, max(tries))]
    assert waits == [1, 2, 4, 8, 10, 10]


def test_tokens_wait_together_for_the_keys() -> None:
    world = SigningKeysWorld(jwks(FIRST))
    world.keys.prepare()
    waiting = [world.begin(signed(CLAIMS)) for _ in range(5)]
    assert waiting == [[]] * 5
    world.threads.run_all()
    assert waiting == [[""]] * 5 and world.source.count == 1
