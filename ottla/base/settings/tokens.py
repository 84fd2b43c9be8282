"""Settings of logins by token: those of an issuer, and those that users make for others."""

from __future__ import annotations

from ottla.base.settings.delegation import DelegationSettings
from ottla.base.settings.oauthbearer import OAuthBearerSettings
from ottla.base.settings.token_login import TokenLoginSettings


class TokenSettings(OAuthBearerSettings, TokenLoginSettings, DelegationSettings):
    """Bearer tokens and delegation tokens."""
