"""Settings of logins by token: those of an issuer, and those that users make for others."""

from __future__ import annotations

from ottla.base.settings.delegation import DelegationSettings
from ottla.base.settings.oauthbearer import OAuthBearerSettings


class TokenSettings(OAuthBearerSettings, DelegationSettings):
    """Bearer tokens and delegation tokens."""
