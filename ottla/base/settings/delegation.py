"""Settings of delegation tokens (KIP-48). They are disabled without a secret key, which must be the same on all brokers of a cluster."""

from __future__ import annotations

from ottla.base.settings.setting import at_least, long, maybe_password


class DelegationSettings:
    """Delegation tokens."""

    delegation_token_secret_key = maybe_password(
        "delegation.token.secret.key", "By it the secrets of delegation tokens are made, on all brokers alike; without it there are none."
    )
    delegation_token_master_key = maybe_password("delegation.token.master.key", "The old name of delegation.token.secret.key.")
    delegation_token_max_lifetime_ms = long(
        "delegation.token.max.lifetime.ms", 604_800_000, "A token ends so long after it was made, however often it is renewed.",
        valid=at_least(1),
    )  # fmt: skip
    delegation_token_expiry_time_ms = long(
        "delegation.token.expiry.time.ms", 86_400_000, "A token ends so long after it was made or renewed, unless it is renewed again.",
        valid=at_least(1),
    )  # fmt: skip
    delegation_token_expiry_check_interval_ms = long(
        "delegation.token.expiry.check.interval.ms", 3_600_000, "Tokens whose time is over are removed so often.", valid=at_least(1)
    )

    @property
    def delegation_token_key(self) -> str | None:
        """The secret key; None if delegation tokens are disabled."""
        return self.delegation_token_secret_key or self.delegation_token_master_key or None
