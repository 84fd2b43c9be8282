"""Helpers for requests about delegation tokens: check the client, find a token by its HMAC, and convert principals."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ApiError, ErrorCode
from ottla.handlers.context import Broker, ConnectionInfo, Pending, RequestContext, StoredTokens
from ottla.security.delegation_token_logins import token_hmac
from ottla.security.principal import ANONYMOUS, join_principal

NO_TIME = -1

Answer = TypeVar("Answer")
Change = Callable[[DelegationToken], DelegationToken | None]
"""Returns the changed token, or None to remove it."""


def tokens_for(broker: Broker, request: RequestContext) -> StoredTokens:
    """Returns the tokens if the client may send such requests and tokens are enabled. Raises `ApiError`."""
    check_may_ask(request.connection)
    if broker.delegation_tokens is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set")
    return broker.delegation_tokens


def check_may_ask(connection: ConnectionInfo) -> None:
    """Raises `ApiError` if the client is anonymous or has logged in with a token. A stolen token must not create others that expire later.
    """
    authentication = connection.authentication
    is_known = connection.principal != ANONYMOUS if authentication is None else not authentication.is_by_token
    if not is_known:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "only clients that have logged in, and not by a token")


def secret_of(broker: Broker, token: DelegationToken) -> bytes:
    key = broker.config.delegation_token_key
    assert key is not None, "a token without a key to make its secret"
    return token_hmac(key.encode(), token.token_id)


def token_with(broker: Broker, tokens: StoredTokens, secret: bytes) -> DelegationToken:
    """Returns the token with this HMAC, which identifies a token in requests. Raises `ApiError`."""
    for token in tokens.all():
        if hmac.compare_digest(secret_of(broker, token), secret):
            return token
    raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "no token has this HMAC")


def change_token(
    broker: Broker, request: RequestContext, secret: bytes, change: Change, answer: Callable[[ErrorCode, DelegationToken | None], Answer]
) -> Answer | Pending:
    """Changes the token with this HMAC if it has not expired and the principal may renew it. `answer` makes the response from the error
    code and the changed token (None if it was removed)."""
    try:
        tokens = tokens_for(broker, request)
        token = token_with(broker, tokens, secret)
    except ApiError as refusal:
        return answer(refusal.code, None)
    pending, principal, now_ms = Pending(), request.connection.principal, broker.clock.wall_ms()

    def decided(token: DelegationToken) -> DelegationToken | ErrorCode | None:
        return why_unchangeable(token, principal, now_ms) or change(token)

    tokens.update(token.token_id, decided, lambda code, changed: pending.complete(answer(code, changed)))
    return pending


def principal_of(entry: Any) -> str:
    return join_principal(entry.principal_type, entry.principal_name)


def why_unchangeable(token: DelegationToken, principal: str, now_ms: int) -> ErrorCode:
    """Returns the error for a principal that cannot renew or expire the token, or NONE."""
    if not token.may_be_renewed_by(principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    return ErrorCode.DELEGATION_TOKEN_EXPIRED if token.is_expired(now_ms) else ErrorCode.NONE
