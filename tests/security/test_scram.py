"""The client's half of SCRAM: the exchange of RFC 7677, and servers that violate it."""

from __future__ import annotations

import pytest

from ottla.security.scram import ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def _client() -> ScramClient:
    return ScramClient("user", "pencil", "SCRAM-SHA-256", NONCE)


def test_the_exchange_of_the_rfc() -> None:
    client = _client()
    assert client.first() == b"n,,n=user,r=" + NONCE.encode()
    assert client.final(SERVER_FIRST).endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client.check(SERVER_FINAL)


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = _client()
    client.final(SERVER_FIRST)
    with pytest.raises(ValueError, match="could not prove"):
        client.check(b"v=AAAA")


@pytest.mark.parametrize("message", [b"", b"r=other,s=AA==,i=4096", b"r=" + NONCE.encode() + b",s=AA==,i=4096", SERVER_FIRST[:-4] + b"1"])
def test_a_first_message_that_makes_no_sense(message: bytes) -> None:
    with pytest.raises(ValueError, match="SCRAM"):
        _client().final(message)


def test_commas_and_equals_in_a_name_are_escaped() -> None:
    assert b"n=a=2Cb=3D" in ScramClient("a,b=", "p", "SCRAM-SHA-512", "x").first()
