"""CreateDelegationToken: make a token for others to act as its owner.

Behaviour: refused for clients that are anonymous or have logged in with a token. A token for another owner needs CREATE_TOKENS on that
user. When the answer is sent, the token is stored and valid on this broker. It expires after `delegation.token.expiry.time.ms` unless it is
renewed, and at the latest after the requested lifetime or `delegation.token.max.lifetime.ms`, whichever is shorter. Every broker creates
tokens itself; the request is not forwarded to the controller.

Version notes: 2 flexible. 3 another owner (KIP-373).
"""

from __future__ import annotations

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.handlers.access.delegation_token_requests import NO_TIME, check_may_ask, principal_of, secret_of, tokens_for
from ottla.handlers.context import Broker, Pending, RequestContext, StoredTokens
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import join_principal, split_principal
from ottla.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

RENEWERS_MAX = 1_000
"""Maximum number of renewers of a token. A token is stored in one node of the metadata store, whose size is limited."""


def handle(broker: Broker, request: RequestContext, body: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse | Pending:
    requester = request.connection.principal
    owner = join_principal(body.owner_principal_type or "", body.owner_principal_name) if body.owner_principal_name else requester
    try:
        tokens = _allowed(broker, request, body, owner)
    except ApiError as refusal:
        return _answer(refusal.code, owner, requester)
    pending = Pending()

    def done(code: ErrorCode, _stored: DelegationToken | None) -> None:
        answer = _answer(code, owner, requester)
        if not code:
            answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms = token.issue_ms, token.expiry_ms, token.max_ms
            answer.token_id, answer.hmac = token.token_id, secret_of(broker, token)
        pending.complete(answer)

    token_id = uuid_to_text(fresh_uuid(broker.random.token_bytes(16)))
    token = _token(broker, body, owner, requester, token_id)
    tokens.create(token, done)
    return pending


def _allowed(broker: Broker, request: RequestContext, body: CreateDelegationTokenRequest, owner: str) -> StoredTokens:
    """Makes the checks in Kafka's order. Raises `ApiError`."""
    connection, is_allowed = request.connection, broker.authorizer.is_allowed
    check_may_ask(connection)
    if owner != connection.principal and not is_allowed(connection, AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "CREATE_TOKENS on the owner is needed")
    if len(body.renewers) > RENEWERS_MAX:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"a token has {RENEWERS_MAX} renewers at most")
    if any(renewer.principal_type != "User" for renewer in body.renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, "renewers are users")
    return tokens_for(broker, request)


def _token(broker: Broker, body: CreateDelegationTokenRequest, owner: str, requester: str, token_id: str) -> DelegationToken:
    now_ms, longest = broker.clock.wall_ms(), broker.config.delegation_token_max_lifetime_ms
    max_ms = now_ms + (min(body.max_lifetime_ms, longest) if body.max_lifetime_ms > 0 else longest)
    expiry_ms = min(max_ms, now_ms + broker.config.delegation_token_expiry_time_ms)
    return DelegationToken(
        token_id=token_id, owner=owner, requester=requester, renewers=tuple(map(principal_of, body.renewers)), issue_ms=now_ms,
        expiry_ms=expiry_ms, max_ms=max_ms,
    )  # fmt: skip


def _answer(code: ErrorCode, owner: str, requester: str) -> CreateDelegationTokenResponse:
    owner_type, owner_name = split_principal(owner)
    requester_type, requester_name = split_principal(requester)
    return CreateDelegationTokenResponse(
        error_code=code, principal_type=owner_type, principal_name=owner_name, token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name, issue_timestamp_ms=NO_TIME, expiry_timestamp_ms=NO_TIME, max_timestamp_ms=NO_TIME,
    )  # fmt: skip
