"""RenewDelegationToken: extends the expiry time of a token.

Behaviour: allowed for its owner and renewers, unless they have logged in with a token. The request has the token's HMAC. The token expires
after the requested period from now (negative: `delegation.token.expiry.time.ms`), at the latest at its maximum lifetime. An expired token
cannot be renewed.

Version notes: 2 flexible.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ErrorCode
from ottla.handlers.access.delegation_token_requests import NO_TIME, change_token
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def handle(broker: Broker, request: RequestContext, body: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse | Pending:
    period_ms = body.renew_period_ms if body.renew_period_ms >= 0 else broker.config.delegation_token_expiry_time_ms
    now_ms = broker.clock.wall_ms()

    def renewed(token: DelegationToken) -> DelegationToken:
        return replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))

    def answer(code: ErrorCode, token: DelegationToken | None) -> RenewDelegationTokenResponse:
        expiry_ms = NO_TIME if code or token is None else token.expiry_ms
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms)

    return change_token(broker, request, bytes(body.hmac), renewed, answer)
