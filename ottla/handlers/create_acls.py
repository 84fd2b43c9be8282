"""CreateAcls: add access rules.

Behaviour: SECURITY_DISABLED for each rule, as any Kafka broker without an authorizer answers. A rule that nobody enforces must not look
created.

Version notes: 1 pattern types (KIP-290). 3 user resources (KIP-373).

Not done: access rules.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.describe_acls import NO_AUTHORIZER
from ottla.requests.context import Broker, RequestContext
from ottla.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(broker: Broker, request: RequestContext, body: CreateAclsRequest) -> CreateAclsResponse:
    refusals = [AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER) for _ in body.creations]
    return CreateAclsResponse(results=refusals)
