"""Settings of delegation tokens (KIP-48). They are disabled without a secret key, which must be the same on all brokers of a cluster."""

from __future__ import annotations

from ottla.base.settings.setting import at_least, long, maybe_password


class DelegationSettings:
    """Delegation tokens."""

    delegation_token_secret_key = maybe_password(
        "delegation.token.secret.key", "Secret key of delegation tokens, the same on all brokers. Not set: there are no delegation tokens."
    )
    delegation_token_master_key = maybe_password("delegation.token.master.key", "Old name of delegation.token.secret.key.")
    delegation_token_max_lifetime_ms = long(
        "delegation.token.max.lifetime.ms", 604_800_000, "Maximum lifetime of a token, even if it is renewed.",
        valid=at_least(1),
    )  # fmt: skip
    delegation_token_expiry_time_ms = long(
        "delegation.token.expiry.time.ms", 86_400_000, "A token expires this long after its creation or last renewal.",
        valid=at_least(1),
    )  # fmt: skip
    delegation_token_expiry_check_interval_ms = long(
        "delegation.token.expiry.check.interval.ms", 3_600_000, "How often expired tokens are removed.", valid=at_least(1)
    )

    @property
    def delegation_token_key(self) -> str | None:
        """The secret key; None if delegation tokens are disabled."""
        return self.delegation_token_secret_key or self.delegation_token_master_key or None
