"""CreateAcls: add access rules.

Behaviour: for a principal that may ALTER the cluster SECURITY_DISABLED for each rule, as any Kafka broker without an authorizer answers. A
rule that is not enforced must not look created.

Version notes: 1 pattern types (KIP-290). 3 user resources (KIP-373).

Not done: access rules.
"""

from __future__ import annotations

from ottla.requests.acls import acl_refusal
from ottla.requests.context import Broker, RequestContext
from ottla.security.acl import AclOperation
from ottla.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(broker: Broker, request: RequestContext, body: CreateAclsRequest) -> CreateAclsResponse:
    code, message = acl_refusal(broker, request, AclOperation.ALTER)
    return CreateAclsResponse(results=[AclCreationResult(error_code=code, error_message=message) for _ in body.creations])
