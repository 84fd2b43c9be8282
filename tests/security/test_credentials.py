"""Stored SCRAM credentials: Kafka's text form, and decoys for unknown users, which look like credentials of real users."""

from __future__ import annotations

import hashlib

import pytest

from ottla.security.credentials import ScramUsers, credential_of, credential_text, read_credential
from ottla.security.scram_server import make_credential

SHA256 = "SCRAM-SHA-256"
MADE = make_credential(SHA256, "pencil", b"salt" * 4, 4096)


def test_text_and_back() -> None:
    text = credential_text(MADE)
    assert read_credential(text) == MADE and text.startswith("salt=") and text.endswith(",iterations=4096")
    assert "pencil" not in text


def test_kafkas_own_text_is_read() -> None:
    """The text is that of a user's node in ZooKeeper, as Kafka's tools write it."""
    found = read_credential("salt=MWx2NHBkbnczenBweXI=,stored_key=aGk=,server_key=aG8=,iterations=8192")
    assert found is not None and tuple(found) == (b"1lv4pdnw3zppyr", b"hi", b"ho", 8192)


@pytest.mark.parametrize("text", ["", "salt=", "salt=%,stored_key=aGk=,server_key=aG8=,iterations=8192", credential_text(MADE)[:-3] + "95"])
def test_what_is_no_credential(text: str) -> None:
    assert read_credential(text) is None


def test_keys_from_a_salted_password_are_those_of_the_password() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", MADE.salt, 4096)
    assert credential_of(SHA256, MADE.salt, salted, 4096) == MADE


def users(stored: dict[str, dict[str, str]], secret: bytes | None = b"secret") -> ScramUsers:
    return ScramUsers(SHA256, lambda: stored, lambda: secret)


def test_only_a_credential_of_the_mechanism_counts() -> None:
    found = users({"alice": {SHA256: credential_text(MADE)}, "bob": {"SCRAM-SHA-512": credential_text(MADE)}})
    assert found.find("alice") == MADE and found.find("bob") is None and found.find("eve") is None


def test_decoys_are_stable_and_look_like_the_real_ones() -> None:
    known = users({name: {SHA256: credential_text(make_credential(SHA256, "p", b"x" * 24, 8192))} for name in "abc"})
    eve = known.decoy("eve")
    assert eve == known.decoy("eve") and eve.salt != known.decoy("mallory").salt
    assert (len(eve.salt), eve.iterations) == (24, 8192)
    other = users({}, b"another cluster").decoy("eve")
    assert other.salt != eve.salt[:16] and (len(other.salt), other.iterations) == (16, 4096)


def test_without_the_secret_there_is_no_decoy() -> None:
    with pytest.raises(ValueError, match="secret"):
        users({}, None).decoy("eve")
