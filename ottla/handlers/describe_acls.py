"""DescribeAcls: access rules that match a filter.

Behaviour: SECURITY_DISABLED, as any Kafka broker without an authorizer answers: there are no access rules to describe.

Version notes: 1 pattern types (KIP-290). 3 user resources (KIP-373).

Not done: access rules.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


def handle(broker: Broker, request: RequestContext, body: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
