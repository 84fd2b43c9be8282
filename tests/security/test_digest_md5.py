"""DIGEST-MD5: a server written after RFC 2831 and checked by the RFC's example, and servers that violate the RFC."""

from __future__ import annotations

import hashlib
import re

import pytest

from ottla.security.digest_md5 import DigestLogin

CHALLENGE = b'realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def value(token: bytes, name: str) -> str:
    found = re.search(rf'(?:^|,){name}="?((?:[^",\\]|\\.)*)"?', token.decode())
    assert found is not None
    return found[1]


def expected(identity: bytes, what: str) -> str:
    """Returns the response of RFC 2831, 2.1.2.1."""
    md5 = hashlib.md5
    session = md5(md5(identity).digest() + b":OA6MG9tEQGm2hh:OA6MHXh6VqTrRk").hexdigest()
    other = md5(f"{what}:zookeeper/zk-sasl-md5".encode()).hexdigest()
    return md5(f"{session}:OA6MG9tEQGm2hh:00000001:OA6MHXh6VqTrRk:auth:{other}".encode()).hexdigest()


@pytest.mark.parametrize(
    ("user", "password", "identity"),
    [
        ("chris", "secret", b"chris:zk-sasl-md5:secret"),
        ("j\u00fcrgen", "pa:ss", "j\u00fcrgen:zk-sasl-md5:pa:ss".encode("latin-1")),
        ("\u0142", "hidden", "\u0142:zk-sasl-md5:hidden".encode()),
    ],
)
def test_a_login_and_the_servers_proof(user: str, password: str, identity: bytes) -> None:
    login = DigestLogin(user, password, "OA6MHXh6VqTrRk")
    token = login.answer(CHALLENGE)
    assert value(token, "response") == expected(identity, "AUTHENTICATE") and value(token, "username") == user
    assert not login.is_complete and password.encode() not in token
    assert login.answer(f"rspauth={expected(identity, '')}".encode()) == b"" and login.is_complete


def test_quotes_in_a_name() -> None:
    token = DigestLogin('a"b\\c', "p", "n").answer(CHALLENGE)
    assert b'username="a\\"b\\\\c"' in token


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"", "a challenge of 0 bytes"),
        (b"x" * 4096, "a challenge of 4096 bytes"),
        (b"nonsense", "cannot be read"),
        (b"\xff", "codec"),
        (CHALLENGE.replace(b"md5-sess", b"md5"), "something else"),
        (CHALLENGE.replace(b'"auth"', b'"auth-conf"'), "something else"),
        (b'realm="x",algorithm=md5-sess', "something else"),
    ],
)
def test_challenges_that_are_none(challenge: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DigestLogin("a", "p", "n").answer(challenge)


@pytest.mark.parametrize("proof", [b"rspauth=00000000000000000000000000000000", b"nonce=x"])
def test_a_server_that_does_not_know_the_password(proof: bytes) -> None:
    login = DigestLogin("a", "p", "n")
    login.answer(CHALLENGE)
    with pytest.raises(ValueError, match="does not know the password"):
        login.answer(proof)
    assert not login.is_complete
