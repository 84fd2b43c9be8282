"""RenewDelegationToken: let a token last longer.

Behaviour: for its owner and its renewers, who name it by its HMAC, logged in by something else than a token. It lasts so long from now on
(a negative time: `delegation.token.expiry.time.ms`), and in no case beyond its greatest age. A token whose time is over stays so.

Version notes: 2 flexible.

Not done: nothing.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ApiError, ErrorCode
from ottla.requests.context import Broker, Pending, RequestContext
from ottla.requests.delegation_tokens import NO_TIME, token_with, tokens_for, why_unchangeable
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def handle(broker: Broker, request: RequestContext, body: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse | Pending:
    try:
        tokens = tokens_for(broker, request)
        token = token_with(broker, tokens, bytes(body.hmac))
    except ApiError as refusal:
        return RenewDelegationTokenResponse(error_code=refusal.code, expiry_timestamp_ms=NO_TIME)
    pending, principal, now_ms = Pending(), request.connection.principal, broker.clock.wall_ms()
    period_ms = body.renew_period_ms if body.renew_period_ms >= 0 else broker.config.delegation_token_expiry_time_ms

    def decide(token: DelegationToken) -> DelegationToken | ErrorCode:
        return why_unchangeable(token, principal, now_ms) or replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))

    def done(code: ErrorCode, token: DelegationToken | None) -> None:
        expiry_ms = NO_TIME if code or token is None else token.expiry_ms
        pending.complete(RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms))

    tokens.update(token.token_id, decide, done)
    return pending
