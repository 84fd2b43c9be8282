"""DescribeAcls: access rules that match a filter.

Behaviour: for a principal that may DESCRIBE the cluster SECURITY_DISABLED, as any Kafka broker without an authorizer answers: there are no
access rules to describe.

Version notes: 1 pattern types (KIP-290). 3 user resources (KIP-373).

Not done: access rules.
"""

from __future__ import annotations

from ottla.requests.acls import acl_refusal
from ottla.requests.context import Broker, RequestContext
from ottla.security.acl import AclOperation
from ottla.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(broker: Broker, request: RequestContext, body: DescribeAclsRequest) -> DescribeAclsResponse:
    code, message = acl_refusal(broker, request, AclOperation.DESCRIBE)
    return DescribeAclsResponse(error_code=code, error_message=message)
