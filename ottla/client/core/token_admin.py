"""Administration of delegation tokens (KIP-48), as conversations (`conversation.py`) on a `ClusterCore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.client.core.admin import checked
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation

ABOUT = "delegation tokens"


class Token(NamedTuple):
    """A token. Principals are texts like `User:alice`; times are milliseconds since 1970. `hmac` is the secret."""

    token_id: str
    owner: str
    requester: str
    renewers: list[str]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes


@operation
def describe_tokens(cluster: ClusterCore, owners: Sequence[str] | None = None) -> Conversation[list[Token]]:
    """Returns the tokens that have one of `owners` as owner, requester or renewer, or all tokens (None). The broker omits tokens that the
    caller may not see."""
    from ottla.wire.messages import describe_delegation_token as wire

    wanted = None
    if owners is not None:
        wanted = [wire.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in map(_split, owners)]
    answer = yield from checked(cluster.ask_any(wire.DescribeDelegationTokenRequest(owners=wanted)), ABOUT)
    return [
        Token(
            token.token_id, _principal(token, "principal"), _principal(token, "token_requester_principal"),
            [_principal(renewer, "principal") for renewer in token.renewers], token.issue_timestamp, token.expiry_timestamp,
            token.max_timestamp, bytes(token.hmac),
        )
        for token in answer.tokens
    ]  # fmt: skip


@operation
def create_token(
    cluster: ClusterCore, *, owner: str | None = None, renewers: Sequence[str] = (), lifetime_ms: int = -1
) -> Conversation[Token]:
    """Creates a token for `owner`, by default for the caller. A negative `lifetime_ms` means the broker's maximum. Raises `KafkaError`."""
    from ottla.wire.messages import create_delegation_token as wire

    kind, name = (None, None) if owner is None else _split(owner)
    listed = [wire.CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_split, renewers)]
    request = wire.CreateDelegationTokenRequest(
        owner_principal_type=kind, owner_principal_name=name, renewers=listed, max_lifetime_ms=lifetime_ms
    )
    made = yield from checked(cluster.ask_any(request), ABOUT)
    return Token(
        made.token_id, _principal(made, "principal"), _principal(made, "token_requester_principal"), list(renewers),
        made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms, bytes(made.hmac),
    )  # fmt: skip


@operation
def renew_token(cluster: ClusterCore, hmac: bytes, period_ms: int = -1) -> Conversation[int]:
    """Renews a token and returns its new expiry time. A negative `period_ms` means the broker's default. Raises `KafkaError`."""
    from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

    answer = yield from checked(cluster.ask_any(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)), ABOUT)
    return int(answer.expiry_timestamp_ms)


@operation
def expire_token(cluster: ClusterCore, hmac: bytes, period_ms: int = -1) -> Conversation[int]:
    """Sets the expiry time of a token and returns it. A negative `period_ms` removes the token at once. Raises `KafkaError`."""
    from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest

    answer = yield from checked(cluster.ask_any(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)), ABOUT)
    return int(answer.expiry_timestamp_ms)


def _split(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _principal(entry: Any, prefix: str) -> str:
    return f"{getattr(entry, f'{prefix}_type')}:{getattr(entry, f'{prefix}_name')}"
