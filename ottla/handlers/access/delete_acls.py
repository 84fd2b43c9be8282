"""DeleteAcls: remove access rules.

Behaviour: the principal needs ALTER on the cluster. The answer has, for each filter, the rules that it matches, with an error for each rule
that could not be removed. A rule that several filters match is in the results of all of them. This broker stops enforcing the removed rules
before it sends the answer. Other brokers stop when the metadata store has notified them. Every broker writes rules to the metadata store
itself; the request is not forwarded to the controller. Without an authorizer each filter gets SECURITY_DISABLED.

Version notes: 1 pattern types (KIP-290). 3 user resources (KIP-373).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from ottla.base.acls import AclFilter, Pattern, PatternType, ResourceType, Rule
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import pieces_of
from ottla.cluster.acl_rules import RuleChange
from ottla.handlers.access.acl_requests import filter_of, rules_for
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.security.acl import AclOperation
from ottla.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse


def handle(
    broker: Broker, request: RequestContext, body: DeleteAclsRequest
) -> Generator[None, None, DeleteAclsResponse | Pending]:
    try:
        rules = rules_for(broker, request, AclOperation.ALTER)
    except ApiError as refusal:
        return DeleteAclsResponse(filter_results=[_refused(refusal) for _ in body.filters])
    found: list[DeleteAclsFilterResult] = []
    known: dict[AclFilter, list[DeleteAclsMatchingAcl]] = {}
    unwanted: dict[Pattern, list[Rule]] = {}
    for each in body.filters:
        try:
            wanted = filter_of(each)
        except ApiError as refusal:
            found.append(_refused(refusal))
            continue
        if wanted not in known:  # Each different filter is applied once, because there may be thousands of rules.
            known[wanted] = []
            bindings = yield from rules.bindings(wanted)
            for piece in pieces_of(bindings):
                for pattern, rule in piece:
                    unwanted.setdefault(pattern, []).append(rule)
                    known[wanted].append(_removed(pattern, rule))
                yield
        found.append(DeleteAclsFilterResult(error_message=None, matching_acls=list(known[wanted])))
    pending = Pending()

    def changed(failed: Mapping[Pattern, ErrorCode]) -> None:
        if failed:
            for removed in known.values():
                _mark(removed, failed)
        pending.complete(DeleteAclsResponse(filter_results=found))

    rules.change({pattern: RuleChange(removed=frozenset(removed)) for pattern, removed in unwanted.items()}, changed)
    return pending


def _refused(refusal: ApiError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=refusal.code, error_message=refusal.message)


def _removed(pattern: Pattern, rule: Rule) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def _mark(removed: list[DeleteAclsMatchingAcl], failed: Mapping[Pattern, ErrorCode]) -> None:
    for each in removed:
        pattern = Pattern(ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type))
        each.error_code = failed.get(pattern, ErrorCode.NONE)
