"""DescribeDelegationToken: the tokens of the given owners.

Behaviour: refused for clients that are anonymous or have logged in with a token. Selects the tokens with one of the given principals as
owner, requester or renewer; null selects all tokens. The answer has a selected token if the client's principal is its owner, requester or
renewer, or has DESCRIBE on the token or DESCRIBE_TOKENS on the owner. Other selected tokens are omitted.

Version notes: 2 flexible. 3 adds the requester of a token (KIP-373).
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ApiError
from ottla.base.loop.turns import pieces_of
from ottla.handlers.access.delegation_token_requests import principal_of, secret_of, tokens_for
from ottla.handlers.context import Broker, RequestContext
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import split_principal
from ottla.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle(
    broker: Broker, request: RequestContext, body: DescribeDelegationTokenRequest
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    try:
        tokens = tokens_for(broker, request)
    except ApiError as refusal:
        return DescribeDelegationTokenResponse(error_code=refusal.code)
    wanted = None if body.owners is None else frozenset(map(principal_of, body.owners))
    found: list[DescribedDelegationToken] = []
    for piece in pieces_of(tokens.all(), 50):
        asked_for = piece if wanted is None else [token for token in piece if not wanted.isdisjoint(token.principals)]
        found += [_described(broker, token) for token in asked_for if _may_see(broker, request, token)]
        yield
    return DescribeDelegationTokenResponse(tokens=found)


def _may_see(broker: Broker, request: RequestContext, token: DelegationToken) -> bool:
    connection, permits = request.connection, broker.authorizer.permits
    return (
        token.is_of(connection.principal)
        or permits(connection, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or permits(connection, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(broker: Broker, token: DelegationToken) -> DescribedDelegationToken:
    owner, requester = split_principal(token.owner), split_principal(token.requester)
    renewers = [
        DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, name in map(split_principal, token.renewers)
    ]
    return DescribedDelegationToken(
        principal_type=owner[0], principal_name=owner[1], token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1], issue_timestamp=token.issue_ms, expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms, token_id=token.token_id, hmac=secret_of(broker, token), renewers=renewers,
    )  # fmt: skip
