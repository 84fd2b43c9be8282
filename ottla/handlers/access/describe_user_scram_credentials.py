"""DescribeUserScramCredentials: the SCRAM mechanisms of users, and their numbers of iterations.

Behaviour: the principal needs DESCRIBE on the cluster. Null or an empty list selects all users. A named user without credentials gets
RESOURCE_NOT_FOUND. A user that is named twice gets DUPLICATE_RESOURCE. An answer never has salts or keys.

Version notes: KIP-554.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from ottla.base.errors import ErrorCode, shortened
from ottla.base.loop.turns import pieces_of
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.security.credentials import read_credential
from ottla.security.scram import MECHANISM_NUMBERS
from ottla.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    broker: Broker, request: RequestContext, body: DescribeUserScramCredentialsRequest
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    if not is_allowed_on_cluster(broker, request, AclOperation.DESCRIBE):
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    counts = Counter(user.name for user in body.users or ())
    names = counts or dict.fromkeys(broker.metadata.scram, 1)
    results: list[DescribeUserScramCredentialsResult] = []
    for piece in pieces_of(names.items()):
        results += [_described(broker, name) if count == 1 else _repeated(name) for name, count in piece]
        yield
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _described(broker: Broker, name: str) -> DescribeUserScramCredentialsResult:
    stored = broker.metadata.scram.get(name, {})
    found = {mechanism: read_credential(stored.get(mechanism, "")) for mechanism in MECHANISM_NUMBERS}
    infos = [
        CredentialInfo(mechanism=MECHANISM_NUMBERS[mechanism], iterations=credential.iterations)
        for mechanism, credential in found.items()
        if credential is not None
    ]
    if not infos:
        message = shortened(f"Attempt to describe a user credential that does not exist: {name}")
        return DescribeUserScramCredentialsResult(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message)
    return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)


def _repeated(name: str) -> DescribeUserScramCredentialsResult:
    message = shortened(f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}")
    return DescribeUserScramCredentialsResult(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message)
