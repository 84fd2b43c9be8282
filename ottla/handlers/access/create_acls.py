"""CreateAcls: add access rules.

Behaviour: the principal needs ALTER on the cluster. Each rule is checked separately and has its own result. When the answer is sent, the
rules without an error are stored, and this broker enforces them. Other brokers enforce them when the metadata store has notified them.
Every broker writes rules to the metadata store itself; the request is not forwarded to the controller. An existing rule is not an error.
Without an authorizer each rule gets SECURITY_DISABLED, because a rule that is not enforced must not look created.

Version notes: 1 pattern types (KIP-290). 3 user resources (KIP-373).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.acls import Binding, Pattern, Rule
from ottla.base.errors import ApiError, ErrorCode
from ottla.cluster.acl_rules import RuleChange
from ottla.handlers.access.acl_requests import binding_of, rules_for
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.security.acl import AclOperation
from ottla.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(broker: Broker, request: RequestContext, body: CreateAclsRequest) -> CreateAclsResponse | Pending:
    try:
        rules = rules_for(broker, request, AclOperation.ALTER)
    except ApiError as refusal:
        return CreateAclsResponse(results=[_result(refusal.code, refusal.message) for _ in body.creations])
    asked: list[Binding | ApiError] = []
    wanted: dict[Pattern, list[Rule]] = {}
    for creation in body.creations:
        try:
            binding = binding_of(creation)
        except ApiError as refusal:
            asked.append(refusal)
            continue
        asked.append(binding)
        wanted.setdefault(binding.pattern, []).append(binding.rule)
    pending = Pending()

    def changed(failed: Mapping[Pattern, ErrorCode]) -> None:
        results = [
            _result(each.code, each.message) if isinstance(each, ApiError) else _result(failed.get(each.pattern, ErrorCode.NONE), None)
            for each in asked
        ]
        pending.complete(CreateAclsResponse(results=results))

    rules.change({pattern: RuleChange(added=frozenset(added)) for pattern, added in wanted.items()}, changed)
    return pending


def _result(code: ErrorCode, message: str | None) -> AclCreationResult:
    return AclCreationResult(error_code=code, error_message=message if code else None)
