"""DescribeAcls: access rules that match a filter.

Behaviour: the principal needs DESCRIBE on the cluster. The answer has the rules that this broker enforces and the filter matches, grouped
by resource pattern. Without an authorizer the answer is SECURITY_DISABLED, as in Kafka.

Version notes: 1 pattern types (KIP-290). 3 user resources (KIP-373).
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.base.acls import Pattern, Rule
from ottla.base.errors import ApiError
from ottla.base.loop.turns import pieces_of
from ottla.handlers.access.acl_requests import filter_of, rules_for
from ottla.handlers.context import Broker, RequestContext
from ottla.security.acl import AclOperation
from ottla.wire.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse


def handle(broker: Broker, request: RequestContext, body: DescribeAclsRequest) -> Generator[None, None, DescribeAclsResponse]:
    try:
        bindings = yield from rules_for(broker, request, AclOperation.DESCRIBE).bindings(filter_of(body))
    except ApiError as refusal:
        return DescribeAclsResponse(error_code=refusal.code, error_message=refusal.message)
    by_pattern: dict[Pattern, DescribeAclsResource] = {}
    for piece in pieces_of(bindings):
        for pattern, rule in piece:
            if pattern not in by_pattern:
                by_pattern[pattern] = _resource(pattern)
            by_pattern[pattern].acls.append(_described(rule))
        yield
    return DescribeAclsResponse(resources=list(by_pattern.values()))


def _resource(pattern: Pattern) -> DescribeAclsResource:
    return DescribeAclsResource(resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type, acls=[])


def _described(rule: Rule) -> AclDescription:
    return AclDescription(principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission)
