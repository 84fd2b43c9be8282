"""DeleteAcls: remove access rules.

Behaviour: SECURITY_DISABLED for each filter, as any Kafka broker without an authorizer answers.

Version notes: 1 pattern types (KIP-290). 3 user resources (KIP-373).

Not done: access rules.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.handlers.describe_acls import NO_AUTHORIZER
from ottla.requests.context import Broker, RequestContext
from ottla.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(broker: Broker, request: RequestContext, body: DeleteAclsRequest) -> DeleteAclsResponse:
    refusals = [DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER) for _ in body.filters]
    return DeleteAclsResponse(filter_results=refusals)
