"""What a listener for bearer tokens needs, and what it refuses to start with."""

from __future__ import annotations

import pytest

from ottla.base.config import BrokerConfig, ConfigError

BASE = {"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "OAUTHBEARER"}
KEYS = {"sasl.oauthbearer.jwks.endpoint.url": "https://issuer.test/keys?v=1"}


def test_values_of_a_listener_come_first() -> None:
    own = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.expected"
    config = BrokerConfig({**BASE, **KEYS, f"{own}.audience": "a, b", "sasl.oauthbearer.expected.audience": "c", f"{own}.issuer": "i"})
    options = config.of_listeners.tokens("SASL_PLAINTEXT")
    assert (options.audiences, options.issuer, options.skew_ms) == (("a", "b"), "i", 30_000)
    assert (options.jwks_url, options.is_unsecured_allowed) == (*KEYS.values(), False)
    assert options.why_unusable() == ""


@pytest.mark.parametrize(("given", "reason"), [
    ({}, "needs sasl.oauthbearer.jwks.endpoint.url"),
    ({**KEYS, "ottla.sasl.oauthbearer.unsecured.allowed": "true"}, "exclude each other"),
    ({**KEYS, "sasl.oauthbearer.sub.claim.name": ""}, "must not be empty"),
    *(({"sasl.oauthbearer.jwks.endpoint.url": url}, "served are https") for url in (
        "http://issuer.test/keys", "https:///keys", "keys.json", "file://host/keys.json", "ftp://issuer.test/keys")),
])  # fmt: skip
def test_a_listener_that_could_check_no_token_refuses_the_start(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"listener SASL_PLAINTEXT: .*{reason}"):
        BrokerConfig({**BASE, **given})


def test_without_the_mechanism_nothing_is_needed() -> None:
    assert BrokerConfig({**BASE, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}).sasl_oauthbearer_jwks_endpoint_url is None
    assert BrokerConfig({**BASE, "ottla.sasl.oauthbearer.unsecured.allowed": "true"}).ottla_sasl_oauthbearer_unsecured_allowed
