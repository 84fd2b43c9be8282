"""ExpireDelegationToken: removes a token, or changes its expiry time.

Behaviour: allowed for its owner and renewers, unless they have logged in with a token. The request has the token's HMAC. A negative period
removes the token immediately and closes the connections that have logged in with it. Otherwise the token expires after the period, at the
latest at its maximum lifetime. A token that has expired gets DELEGATION_TOKEN_EXPIRED.

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
