"""A listener for bearer tokens: the settings that it needs, and those with which the broker refuses to start."""

from __future__ import annotations

import pytest

from ottla.base.config import BrokerConfig, ConfigError

BASE = {"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "OAUTHBEARER"}
KEYS = {"sasl.oauthbearer.jwks.endpoint.url": "https://issuer.test/keys?v=1"}
EXPECTED = {"sasl.oauthbearer.expected.audience": "kafka", "sasl.oauthbearer.expected.issuer": "https://issuer.test"}


def test_values_of_a_listener_come_first() -> None:
    own = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.expected"
    config = BrokerConfig({**BASE, **KEYS, f"{own}.audience": "a, b", "sasl.oauthbearer.expected.audience": "c", f"{own}.issuer": "i"})
    options = config.of_listeners.tokens("SASL_PLAINTEXT")
    assert (options.audiences, options.issuer, options.skew_ms) == (("a", "b"), "i", 30_000)
    assert (options.jwks_url, options.is_unsecured_allowed) == (*KEYS.values(), False)
    assert options.why_unusable() == "" and not options.unverified()


@pytest.mark.parametrize(("given", "reason"), [
    ({}, "needs sasl.oauthbearer.jwks.endpoint.url"),
    ({**KEYS, "ottla.sasl.oauthbearer.unsecured.allowed": "true"}, "exclude each other"),
    ({**KEYS, **EXPECTED, "sasl.oauthbearer.sub.claim.name": ""}, "must not be empty"),
    *(({"sasl.oauthbearer.jwks.endpoint.url": url}, "served are https") for url in (
        "http://issuer.test/keys", "https:///keys", "keys.json", "file://host/keys.json", "ftp://issuer.test/keys")),
])  # fmt: skip
def test_a_listener_that_could_check_no_token_refuses_the_start(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"listener SASL_PLAINTEXT: .*{reason}"):
        BrokerConfig({**BASE, **given})


@pytest.mark.parametrize("claim", ["audience", "issuer"])
def test_a_claim_without_an_expected_value_is_accepted_only_where_a_setting_says_so(claim: str) -> None:
    """As in Apache Kafka 4.4, the start fails unless a setting says that any audience or any issuer is accepted."""
    expected, allowed = f"sasl.oauthbearer.expected.{claim}", f"sasl.oauthbearer.allow.unverified.{claim}"
    given = {**BASE, **KEYS, **{name: value for name, value in EXPECTED.items() if name != expected}}
    for unset in ({}, {expected: ""}, {allowed: "false"}):
        with pytest.raises(ConfigError, match=f"^listener SASL_PLAINTEXT: .* needs {expected}, or {allowed}=true ") as refusal:
            BrokerConfig({**given, **unset})
        assert "\n" not in str(refusal.value)
    own = f"listener.name.sasl_plaintext.oauthbearer.{allowed}"
    options = BrokerConfig({**given, own: "true"}).of_listeners.tokens("SASL_PLAINTEXT")
    assert options.unverified() == [allowed]
    assert BrokerConfig({**given, expected: "one", allowed: "true"}).of_listeners.tokens("SASL_PLAINTEXT").unverified() == []


def test_without_the_mechanism_nothing_is_needed() -> None:
    assert BrokerConfig({**BASE, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}).sasl_oauthbearer_jwks_endpoint_url is None
    assert BrokerConfig({**BASE, "ottla.sasl.oauthbearer.unsecured.allowed": "true"}).ottla_sasl_oauthbearer_unsecured_allowed
