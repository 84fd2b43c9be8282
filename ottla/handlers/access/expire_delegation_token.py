"""ExpireDelegationToken: end a token, now or earlier than it would.

Behaviour: for its owner and its renewers, who name it by its HMAC, logged in by something else than a token. A negative time removes it at
once, and closes the connections of those who have logged in by it; another one is the time that it still lasts.

Version notes: 2 flexible.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ErrorCode
from ottla.handlers.access.delegation_token_requests import NO_TIME, change_token
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


def handle(broker: Broker, request: RequestContext, body: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse | Pending:
    period_ms, now_ms = body.expiry_time_period_ms, broker.clock.wall_ms()

    def expired(token: DelegationToken) -> DelegationToken | None:
        return None if period_ms < 0 else replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))

    def answer(code: ErrorCode, token: DelegationToken | None) -> ExpireDelegationTokenResponse:
        expiry_ms = NO_TIME if code else now_ms if token is None else token.expiry_ms
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms)

    return change_token(broker, request, bytes(body.hmac), expired, answer)
