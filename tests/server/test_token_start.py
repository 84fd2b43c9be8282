"""A broker for bearer tokens does not start without what checks their signatures."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from ottla.base.config import BrokerConfig
from ottla.base.errors import StorageError
from ottla.server.token_start import check_token_keys
from tests.fakes.issuer import jwks, public_jwk, rsa_key


def config(url: str) -> BrokerConfig:
    given = {"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": url}
    return BrokerConfig(given)


def test_a_file_has_to_hold_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys and more.json"
    with pytest.raises(StorageError, match=r"listener SASL_PLAINTEXT: .*No such file"):
        check_token_keys(config(f"file://{path}"))
    path.write_bytes(b"{}")
    with pytest.raises(StorageError, match="no JWKS"):
        check_token_keys(config(f"file://{path}"))
    path.write_bytes(jwks(public_jwk(rsa_key(), "first")))
    for written in (str(path), str(path).replace(" ", "%20")):
        check_token_keys(config(f"file://{written}"))


def test_an_address_is_not_asked_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "open", lambda *_: pytest.fail("it was read"))
    check_token_keys(config("https://127.0.0.1:1/keys"))


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.token_start.find_spec", lambda name: None if name == "jwt" else object())
    with pytest.raises(StorageError, match=r"OAUTHBEARER needs the package PyJWT; install ottla\[security\]"):
        check_token_keys(config("https://127.0.0.1:1/keys"))
    check_token_keys(BrokerConfig({}))
