"""Settings of logins with tokens: an issuer's tokens (OAUTHBEARER) and delegation tokens."""

from __future__ import annotations

from ottla.base.settings.delegation import DelegationSettings
from ottla.base.settings.oauthbearer import OAuthBearerSettings
from ottla.base.settings.token_login import TokenLoginSettings


class TokenSettings(OAuthBearerSettings, TokenLoginSettings, DelegationSettings):
    """Bearer tokens and delegation tokens."""
