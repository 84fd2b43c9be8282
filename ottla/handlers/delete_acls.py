"""DeleteAcls: remove access rules.

Behaviour: for a principal that may ALTER the cluster SECURITY_DISABLED for each filter, as any Kafka broker without an authorizer answers.

Version notes: 1 pattern types (KIP-290). 3 user resources (KIP-373).

Not done: access rules.
"""

from __future__ import annotations

from ottla.requests.acls import acl_refusal
from ottla.requests.context import Broker, RequestContext
from ottla.security.acl import AclOperation
from ottla.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(broker: Broker, request: RequestContext, body: DeleteAclsRequest) -> DeleteAclsResponse:
    code, message = acl_refusal(broker, request, AclOperation.ALTER)
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in body.filters])
