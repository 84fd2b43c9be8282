"""DescribeUserScramCredentials: which users have SCRAM credentials.

Behaviour: this broker keeps no credentials, so all users (null or an empty list) are none, and each user that is named is
RESOURCE_NOT_FOUND. Kafka's tools ask this whenever they describe users, also those with nothing but quotas.

Version notes: KIP-554.

Not done: credentials, and AlterUserScramCredentials with them.
"""

from __future__ import annotations

from collections import Counter

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.requests.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(broker: Broker, request: RequestContext, body: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    if not is_allowed_on_cluster(broker, request, AclOperation.DESCRIBE):
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    counts = Counter(user.name for user in body.users or ())
    results = [_unknown(name) if count == 1 else _repeated(name) for name, count in counts.items()]
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _unknown(name: str) -> DescribeUserScramCredentialsResult:
    message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message)


def _repeated(name: str) -> DescribeUserScramCredentialsResult:
    message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    return DescribeUserScramCredentialsResult(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message)
