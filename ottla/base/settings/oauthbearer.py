"""Settings of OAUTHBEARER on listeners: the accepted issuers of tokens, and the required claims (KIP-768).

Each setting may be set for one listener, as `listener.name.NAME.SETTING` or `listener.name.NAME.oauthbearer.SETTING`. As in Kafka 4.4, a
listener for signed tokens needs an expected audience and an expected issuer, unless the settings allow any. Tokens without a signature are
accepted only with `ottla.sasl.oauthbearer.unsecured.allowed`, which excludes signed tokens.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.base.settings.setting import Setting, Type, at_least, boolean, integer, long, maybe_string, settings_of, string, words

MECHANISM = "OAUTHBEARER"
HANDLER = "sasl.server.callback.handler.class"
ALLOW_ANY_AUDIENCE = "sasl.oauthbearer.allow.unverified.audience"
ALLOW_ANY_ISSUER = "sasl.oauthbearer.allow.unverified.issuer"


class OAuthBearerSettings:
    """Bearer tokens of clients."""

    sasl_oauthbearer_jwks_endpoint_url = maybe_string(
        "sasl.oauthbearer.jwks.endpoint.url", "URL of the issuer's public keys (JWKS): https://HOST/PATH or file:///PATH."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "Age at which the keys are read again.", valid=at_least(0)
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "Pause after a failure to read the keys. It doubles each time.",
        valid=at_least(0),
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000,
        "Longest pause after a failure, and the minimum time between two readings because of unknown keys.", valid=at_least(0),
    )  # fmt: skip
    sasl_oauthbearer_expected_issuer = maybe_string(
        "sasl.oauthbearer.expected.issuer", "A token must have this issuer (iss). Signed tokens need it or the setting that allows any."
    )
    sasl_oauthbearer_allow_unverified_issuer = boolean(
        ALLOW_ANY_ISSUER, False, "Accepts tokens of any issuer, if `sasl.oauthbearer.expected.issuer` is not set."
    )
    sasl_oauthbearer_expected_audience = words(
        "sasl.oauthbearer.expected.audience", (),
        "A token must have one of these audiences (aud). Signed tokens need them or the setting that allows any.",
    )  # fmt: skip
    sasl_oauthbearer_allow_unverified_audience = boolean(
        ALLOW_ANY_AUDIENCE, False, "Accepts tokens for any audience, if `sasl.oauthbearer.expected.audience` is empty."
    )
    sasl_oauthbearer_clock_skew_seconds = integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "Allowed difference between the clocks of the issuer and of this broker.",
        valid=at_least(0),
    )
    sasl_oauthbearer_scope_claim_name = string("sasl.oauthbearer.scope.claim.name", "scope", "Claim with the scopes of a token.")
    sasl_oauthbearer_sub_claim_name = string("sasl.oauthbearer.sub.claim.name", "sub", "Claim with the user's name.")
    ottla_sasl_oauthbearer_required_scope = words(
        "ottla.sasl.oauthbearer.required.scope", (), "Scopes that a token must have, all of them."
    )
    ottla_sasl_oauthbearer_jwks_ca_location = maybe_string(
        "ottla.sasl.oauthbearer.jwks.ca.location",
        "PEM file with the certificate authorities for the https URL of the keys, instead of the system's.",
    )
    ottla_sasl_oauthbearer_unsecured_allowed = boolean(
        "ottla.sasl.oauthbearer.unsecured.allowed", False,
        "Only for tests: accepts tokens without a signature, which may contain any user name, and no others.",
    )  # fmt: skip
    sasl_server_callback_handler_class: Setting[str | None] = Setting(
        HANDLER, Type.CLASS, None, "Only Kafka's handlers for OAUTHBEARER are accepted. They need not be set."
    )


OAUTHBEARER_SETTINGS = frozenset(setting.name for setting in settings_of(OAuthBearerSettings))


class TokenOptions(NamedTuple):
    """One listener's settings for checking bearer tokens."""

    jwks_url: str | None
    jwks_authorities: str | None
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    issuer: str | None
    audiences: tuple[str, ...]
    is_any_issuer_allowed: bool
    is_any_audience_allowed: bool
    scopes: tuple[str, ...]
    skew_ms: int
    scope_claim: str
    name_claim: str
    is_unsecured_allowed: bool

    def why_unusable(self) -> str:
        """Returns, in one sentence, why no token can be checked with these settings; empty if tokens can be checked."""
        if self.jwks_url is None:
            return "" if self.is_unsecured_allowed else "the mechanism OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url"
        if self.is_unsecured_allowed:
            return "ottla.sasl.oauthbearer.unsecured.allowed and sasl.oauthbearer.jwks.endpoint.url exclude each other"
        parts = urlsplit(self.jwks_url)
        if not (parts.scheme == "https" and parts.hostname) and not (parts.scheme == "file" and not parts.netloc and parts.path):
            return f"sasl.oauthbearer.jwks.endpoint.url is {self.jwks_url}; served are https://HOST/PATH and file:///PATH"
        if not self.name_claim or not self.scope_claim:
            return "sasl.oauthbearer.sub.claim.name and sasl.oauthbearer.scope.claim.name must not be empty"
        if not self.audiences and not self.is_any_audience_allowed:
            return _needs("sasl.oauthbearer.expected.audience", ALLOW_ANY_AUDIENCE, "for any audience")
        if self.issuer is None and not self.is_any_issuer_allowed:
            return _needs("sasl.oauthbearer.expected.issuer", ALLOW_ANY_ISSUER, "of any issuer")
        return ""

    def unverified(self) -> list[str]:
        """Returns the settings that make the listener accept signed tokens with any audience or of any issuer."""
        audience = [ALLOW_ANY_AUDIENCE] if self.is_any_audience_allowed and not self.audiences else []
        return audience + ([ALLOW_ANY_ISSUER] if self.is_any_issuer_allowed and self.issuer is None else [])


def _needs(expected: str, allowed: str, whose: str) -> str:
    return f"the mechanism OAUTHBEARER needs {expected}, or {allowed}=true to accept tokens {whose}"


def why_handler_unserved(handler: str, mechanism: str, *, is_unsecured_allowed: bool) -> str:
    """Returns, in one sentence, why a callback handler class of Kafka has no counterpart here; empty if it has one. `mechanism`: the
    mechanism that the handler is set for, empty for all."""
    served = ("OAuthBearerValidatorCallbackHandler", *(("OAuthBearerUnsecuredValidatorCallbackHandler",) if is_unsecured_allowed else ()))
    if mechanism.upper() in ("", MECHANISM) and handler.rpartition(".")[2] in served:
        return ""
    return f"{handler} is not served, and without it clients would be let in unchecked; remove it"
