"""A broker whose listener takes bearer tokens does not start if it cannot check their signatures. A broker that logs in with tokens does
not start if it cannot get one."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from ottla.base.config import BrokerConfig
from ottla.base.errors import StorageError
from ottla.base.settings.jaas import OAUTHBEARER as MODULE
from ottla.server.token_start import check_token_keys, check_token_login
from tests.fakes.issuer import AUDIENCE, ISSUER, jwks, public_jwk, rsa_key

EXPECTED = {"sasl.oauthbearer.expected.audience": AUDIENCE, "sasl.oauthbearer.expected.issuer": ISSUER}


def config(url: str) -> BrokerConfig:
    return BrokerConfig({
        "listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": url, **EXPECTED,
    })  # fmt: skip


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
    with pytest.raises(StorageError, match=r"OAUTHBEARER needs the package PyJWT; install it: pip install"):
        check_token_keys(config("https://127.0.0.1:1/keys"))
    check_token_keys(BrokerConfig({}))


URL = "sasl.oauthbearer.token.endpoint.url"


def between(given: dict[str, str]) -> BrokerConfig:
    """Brokers that log in to each other by tokens."""
    return BrokerConfig({
        "zookeeper.connect": "z:2181", "broker.id": "1", "listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "OAUTHBEARER",
        "security.inter.broker.protocol": "SASL_PLAINTEXT", "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "https://127.0.0.1:1/keys", **EXPECTED, **given,
    })  # fmt: skip


ASKED = {URL: "http://127.0.0.1:1/token"}
CLIENT = "sasl.oauthbearer.client.credentials.client"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (ASKED, "needs a client id"),
        ({**ASKED, f"{CLIENT}.id": "brokers"}, "needs a client secret"),
        ({**ASKED, "sasl.jaas.config": f'{MODULE} required clientId="a";'}, "needs a client secret"),
        ({URL: "ldap://issuer"}, "neither https://HOST/PATH"),
        ({**ASKED, "sasl.login.callback.handler.class": "org.example.Ours"}, "org.example.Ours is not served"),
        ({**ASKED, "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"},
         "JwtBearerJwtRetriever is not served"),
        ({URL: "https://i/", "sasl.jaas.config": f'{MODULE} required clientId="a" clientSecret="b" ssl.truststore.location="/absent";'},
         "/absent"),
        ({URL: "file:///absent/token"}, "cannot read the token in /absent/token: no such file or directory"),
    ],
)  # fmt: skip
def test_a_broker_that_could_get_no_token_does_not_start(given: dict[str, str], reason: str) -> None:
    with pytest.raises(StorageError, match=f"^listener SASL_PLAINTEXT: .*{reason}") as refusal:
        check_token_login(between(given))
    assert "\n" not in str(refusal.value)


def test_a_file_has_to_hold_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("two words")
    with pytest.raises(StorageError, match="there is no token in"):
        check_token_login(between({URL: f"file://{path}"}))
    path.write_text("opaque\n")
    check_token_login(between({URL: f"file://{path}"}))


def test_the_address_of_tokens_is_not_asked_at_the_start() -> None:
    check_token_login(between({**ASKED, f"{CLIENT}.id": "brokers", f"{CLIENT}.secret": "s3cret"}))
    check_token_login(BrokerConfig({}))
