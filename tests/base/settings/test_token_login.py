"""The settings with which a broker gets its own bearer tokens, as in Apache Kafka, and the values that it refuses."""

from __future__ import annotations

import pytest

from ottla.base.config import BrokerConfig, ConfigError
from ottla.base.settings.jaas import OAUTHBEARER as MODULE
from ottla.base.settings.jaas import PLAIN
from ottla.base.settings.token_login import TokenLogin

URL = "sasl.oauthbearer.token.endpoint.url"
OWN = "listener.name.sasl_plaintext.oauthbearer."
KAFKAS = "org.apache.kafka.common.security.oauthbearer"
BASE = {
    "zookeeper.connect": "z:2181", "broker.id": "1", "listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "OAUTHBEARER",
    "security.inter.broker.protocol": "SASL_PLAINTEXT", "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.test/keys", "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "https://issuer.test",
}  # fmt: skip
UNSECURED = {"ottla.sasl.oauthbearer.unsecured.allowed": "true", "sasl.oauthbearer.jwks.endpoint.url": ""}


def login(given: dict[str, str]) -> TokenLogin:
    config = BrokerConfig({**BASE, **given})
    (endpoint,) = config.endpoints
    found = config.of_listeners.broker_login(endpoint)
    assert isinstance(found, TokenLogin)
    return found


def test_the_listeners_own_come_first_and_secrets_are_not_shown() -> None:
    jaas = f'{MODULE} required clientId="a" clientSecret="s3cret";'
    found = login({
        URL: "https://issuer.test/other", f"{OWN}{URL}": "https://issuer.test/token", f"{OWN}sasl.jaas.config": jaas,
        f"{OWN}sasl.login.callback.handler.class": f"{KAFKAS}.OAuthBearerLoginCallbackHandler",
        "sasl.login.connect.timeout.ms": "700", "listener.name.sasl_plaintext.sasl.oauthbearer.scope": "kafka",
    })  # fmt: skip
    assert found.mechanism == "OAUTHBEARER" and not found.is_by_file and "s3cret" not in repr(found)
    assert found.properties == {
        URL: "https://issuer.test/token", "sasl.jaas.config": jaas, "sasl.oauthbearer.scope": "kafka",
        "sasl.login.callback.handler.class": f"{KAFKAS}.OAuthBearerLoginCallbackHandler", "sasl.login.connect.timeout.ms": "700",
        "sasl.oauthbearer.header.urlencode": "false", "sasl.oauthbearer.jwt.retriever.class": f"{KAFKAS}.DefaultJwtRetriever",
        "sasl.login.retry.backoff.ms": "100", "sasl.login.retry.backoff.max.ms": "10000", "sasl.login.refresh.window.factor": "0.8",
    }  # fmt: skip
    assert login({URL: "file:///run/token"}).is_by_file


def test_tokens_without_a_signature_are_for_listeners_that_take_them() -> None:
    line = {"sasl.jaas.config": f'{MODULE} required unsecuredLoginStringClaim_sub="broker";'}
    assert URL not in login({**UNSECURED, **line}).properties
    with pytest.raises(ConfigError, match=f"listener SASL_PLAINTEXT: .*=OAUTHBEARER needs {URL}; .*unsecured.allowed"):
        login(line)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, f"needs {URL}"),
        ({URL: ""}, f"needs {URL}"),
        ({URL: "https://i/", "sasl.jaas.config": f'{PLAIN} required username="a" password="s3cret";'}, "needs the OAuthBearerLoginModule"),
        ({URL: "https://i/", "sasl.jaas.config": f'{MODULE} required clientSecret="s3cret"'}, "semicolon"),
        ({URL: "https://i/", "sasl.login.refresh.window.factor": "0.4"}, "window.factor"),
        ({URL: "https://i/", f"{OWN}sasl.login.read.timeout.ms": "soon"}, "read.timeout.ms"),
        ({URL: "https://i/", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}, "OAUTHBEARER is not in sasl.enabled.mechanisms"),
    ],
)
def test_what_could_give_no_token_stops_the_start(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refusal:
        login(given)
    assert "s3cret" not in str(refusal.value) and "\n" not in str(refusal.value)


HANDLER = "sasl.server.callback.handler.class"
VALIDATOR, UNSECURED_VALIDATOR = "OAuthBearerValidatorCallbackHandler", "OAuthBearerUnsecuredValidatorCallbackHandler"


@pytest.mark.parametrize(
    "given",
    [
        {f"{OWN}{HANDLER}": f"{KAFKAS}.{VALIDATOR}"},
        {f"{OWN}{HANDLER}": f"{KAFKAS}.secured.{VALIDATOR}"},
        {f"{OWN}{HANDLER}": f"{KAFKAS}.internals.unsecured.{UNSECURED_VALIDATOR}", **UNSECURED},
        {HANDLER: f"{KAFKAS}.{VALIDATOR}"},
        {HANDLER: ""},
    ],
)
def test_kafkas_class_that_checks_tokens_may_be_named(given: dict[str, str]) -> None:
    assert login({URL: "https://i/", **given})


@pytest.mark.parametrize(
    "given",
    [
        {f"{OWN}{HANDLER}": "org.example.Ours"},
        {f"{OWN}{HANDLER}": f"{KAFKAS}.internals.unsecured.{UNSECURED_VALIDATOR}"},
        {f"listener.name.sasl_plaintext.scram-sha-256.{HANDLER}": f"{KAFKAS}.{VALIDATOR}"},
        {HANDLER: "org.example.Ours"},
    ],
)
def test_another_class_that_checks_clients_stops_the_start(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="is not served, and without it clients would be let in unchecked"):
        login({URL: "https://i/", **given})
