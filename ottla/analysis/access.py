"""Finds the operations that a principal may do on a cluster, and the ACLs that allow or deny them.

For the client itself the broker's own answer is used. For another principal, this module evaluates the ACLs as the authorizer does: a rule
that denies wins over rules that allow, and some operations imply others. ACLs do not name super users, so this module does not know them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.acls import (
    ANY_PRINCIPAL,
    IMPLIED_BY,
    MATCH,
    WILDCARD,
    AclFilter,
    AclOperation,
    Binding,
    Permission,
    ResourceType,
    java_name,
)
from ottla.base.errors import ErrorCode
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin
from ottla.client.errors import KafkaError
from ottla.security.acl_hosts import host_matches

ANONYMOUS = "User:ANONYMOUS"
NO_AUTHORIZER = "the broker has no authorizer: every client that connects may do everything"
NOT_SHOWN = "they may not be seen without Describe on the cluster"

_O = AclOperation
OPERATIONS = {
    ResourceType.TOPIC: (_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations that apply to each resource type. ALL applies to every type."""

PRODUCER_NEEDS = {
    ResourceType.TOPIC: (_O.WRITE, _O.DESCRIBE, _O.CREATE),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
}
"""The operations that a producer needs on its topics and transactional ids. `Create` is for topics that do not exist yet. Since version 2.8
brokers need no IdempotentWrite (KIP-679)."""
CONSUMER_NEEDS = {ResourceType.TOPIC: (_O.READ, _O.DESCRIBE), ResourceType.GROUP: (_O.READ,)}
"""The operations that a consumer needs on its topics and its group."""


class Access(NamedTuple):
    """The allowed and the refused operations on a resource, and the rules about it as text, or the reason why nothing is known."""

    allowed: Sequence[AclOperation] = ()
    refused: Sequence[AclOperation] = ()
    why: str = ""


def own_principal(properties: Mapping[str, str]) -> str | None:
    """Returns the principal of a client with these properties; None if the broker derives the principal from a certificate or token."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL"):
        from ottla.client.core.sasl import OAUTHBEARER
        from ottla.client.security import credentials, is_by_token, mechanism_of

        is_token = mechanism_of(properties) == OAUTHBEARER or is_by_token(properties)
        return None if is_token else f"User:{credentials(properties)[0]}"
    if protocol != "SSL":
        return ANONYMOUS
    from ottla.client.tls import has_certificate

    return None if has_certificate(properties) else ANONYMOUS


def visible_rules(cluster: Cluster) -> tuple[list[Binding] | None, str]:
    """Returns the cluster's rules and a remark about them. The rules are None if the client may not read them."""
    try:
        found = acl_admin.describe_acls(cluster, AclFilter())
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return [], NO_AUTHORIZER
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return None, NOT_SHOWN
        raise
    return found, f"there are {len(found)}"


def access_by_broker(cluster: Cluster, rules: list[Binding] | None, principal: str | None, kind: ResourceType, name: str) -> Access:
    """Asks the broker what this client may do. If the broker does not list the operations and the principal is known, it uses
    `access_by_rules`. If the request fails, `why` is the error.
    """
    try:
        allowed = acl_admin.allowed_operations(cluster, kind, name)
    except KafkaError as error:
        return Access(why=str(error))
    if allowed is None:
        return access_by_rules(rules, principal, None, kind, name) if rules and principal else Access(why="the broker does not say")
    refused = [operation for operation in OPERATIONS[kind] if operation not in allowed]
    return Access(allowed, refused, _why(rules, principal, None, kind, name))


def access_by_rules(rules: list[Binding] | None, principal: str | None, host: str | None, kind: ResourceType, name: str) -> Access:
    """Returns the access of a principal by the rules alone, which do not name super users."""
    if rules is None:
        return Access(why="the rules may not be seen")
    about = rules_about(rules, principal, host, kind, name)
    allowed = [operation for operation in OPERATIONS[kind] if is_allowed(about, operation)]
    refused = [operation for operation in OPERATIONS[kind] if operation not in allowed]
    return Access(allowed, refused, _why(rules, principal, host, kind, name))


def rules_about(rules: Sequence[Binding], principal: str | None, host: str | None, kind: ResourceType, name: str) -> list[Binding]:
    """Returns the rules that match a resource, a principal and a host. If `host` is None, rules for every host match."""
    wanted = AclFilter(kind, name, MATCH)
    return [
        binding
        for binding in rules
        if wanted.matches_pattern(binding.pattern)
        and binding.rule.principal in (principal, ANY_PRINCIPAL)
        and (host is None or host_matches(binding.rule.host, host))
    ]


def is_allowed(about: Sequence[Binding], operation: AclOperation) -> bool:
    """Returns whether the matching rules allow an operation. A rule that denies wins over rules that allow."""
    denied = any(rule.permission is Permission.DENY and rule.operation in (operation, AclOperation.ALL) for _, rule in about)
    enough = (operation, AclOperation.ALL, *IMPLIED_BY.get(operation, ()))
    return not denied and any(rule.permission is Permission.ALLOW and rule.operation in enough for _, rule in about)


def _why(rules: list[Binding] | None, principal: str | None, host: str | None, kind: ResourceType, name: str) -> str:
    if not rules or principal is None:
        return ""
    about = rules_about(rules, principal, host, kind, name)
    return "; ".join(map(rule_text, about)) or f"no rule names it for {principal}"


def rule_text(binding: Binding) -> str:
    """Returns a rule as text: `Allow Read to User:alice from 10.0.0.1 (literal orders)`."""
    pattern, rule = binding
    where = "" if rule.host == WILDCARD else f" from {rule.host}"
    of = f"{java_name(pattern.pattern_type).lower()} {pattern.name}"
    return f"{java_name(rule.permission)} {java_name(rule.operation)} to {rule.principal}{where} ({of})"


def operation_names(operations: Sequence[AclOperation]) -> str:
    return ", ".join(map(java_name, operations))
