"""A delegation token (KIP-48). Clients log in with the token as its owner, until the token expires. The secret of a token is not stored: it
is computed from the token's id (`security/delegation_token_logins.py`)."""

from __future__ import annotations

from ottla.base.immutable import immutable


@immutable(kw_only=True)
class DelegationToken:
    """A token as it is stored. Principals are texts like `User:alice`; times are wall times."""

    token_id: str
    owner: str
    requester: str
    """The principal that created the token: its owner, or a principal that may create tokens for the owner (KIP-373)."""
    renewers: tuple[str, ...] = ()
    issue_ms: int
    expiry_ms: int
    """The time when the token expires, unless it is renewed before."""
    max_ms: int
    """The token cannot be renewed beyond this time."""

    def may_be_renewed_by(self, principal: str) -> bool:
        return principal == self.owner or principal in self.renewers

    def is_of(self, principal: str) -> bool:
        """Whether the principal is the token's owner or requester, or may renew it."""
        return principal in self.principals

    @property
    def principals(self) -> tuple[str, ...]:
        """Returns the owner, the requester, and the principals that may renew the token."""
        return (self.owner, self.requester, *self.renewers)

    def is_expired(self, now_ms: int) -> bool:
        return now_ms > min(self.expiry_ms, self.max_ms)
