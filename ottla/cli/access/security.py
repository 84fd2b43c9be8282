"""`ottla security check` shows the operations that a client with these settings may do on a cluster, and the rules behind them. `cert`
makes certificates for trying TLS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.base.acls import (
    ANY_PRINCIPAL,
    CLUSTER_NAME,
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
from ottla.base.counted import counted
from ottla.base.errors import ErrorCode
from ottla.cli.access.acl import OPERATIONS, principal_of
from ottla.cli.command import Args, command, option
from ottla.cli.options import properties_of
from ottla.cli.render.ottla import Output, Row, column, spaced
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin
from ottla.client.errors import ClientError, KafkaError
from ottla.security.acl_hosts import host_matches

if TYPE_CHECKING:
    from ottla.client.tls import TlsDetails

TOPICS_MAX = 20
"""The largest number of topics that are checked if no topic is named."""

_KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional_id": ResourceType.TRANSACTIONAL_ID}
ANONYMOUS = "User:ANONYMOUS"


class AccessRow(Row, titles=spaced):
    """A resource with the operations that the client may and may not do on it, and why."""

    what: str
    may: str = column(width_max=22)
    may_not: str = column(width_max=22)
    why: str = column(width_max=28)


@command(
    "security check",
    "Show what a client with these settings can do, what it cannot, and why.",
    option("--topic", action="append", metavar="TOPIC", help="a topic; repeatable, like the next options; default: all visible topics"),
    option("--group", action="append", metavar="GROUP", help="a group"),
    option("--transactional-id", action="append", metavar="ID", help="a transactional id"),
    option("--principal", metavar="User:NAME", help="check this principal instead of the client's own, by the access rules alone"),
    option("--client-host", metavar="ADDRESS", help="with --principal: the address of its connection"),
)
def _check(args: Args, cluster: Cluster, output: Output) -> int:
    other = principal_of(args.principal) if args.principal else None
    own = own_principal(properties_of(args))
    try:
        topics = args.topic or cluster.topic_names()[:TOPICS_MAX]
    except ClientError as error:
        output.rows("access", AccessRow, [AccessRow("connect", "no", "", str(error))])
        return 1
    rules, why = _rules(cluster)
    rows = [AccessRow("connect", "yes", "", f"as {own or 'the principal of its certificate or token'}")]
    rows += [AccessRow("TLS", *encryption(cluster.any_connection().tls())), AccessRow("access rules", "", "", why)]
    named = [(kind, name) for option, kind in _KINDS.items() for name in (topics if option == "topic" else getattr(args, option) or ())]
    for kind, name in ((ResourceType.CLUSTER, CLUSTER_NAME), *named):
        judged = _by_rules(rules, other, args.client_host, kind, name) if other else _by_broker(cluster, rules, own, kind, name)
        rows.append(AccessRow(f"{java_name(kind)} {name}".removesuffix(f" {CLUSTER_NAME}"), *judged))
    output.rows("access", AccessRow, rows)
    return 0


def own_principal(properties: Mapping[str, str]) -> str | None:
    """Returns the principal of a client with these properties; None if the broker derives the principal from a certificate or token."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL"):
        from ottla.client.core.sasl import OAUTHBEARER
        from ottla.client.security import credentials, mechanism_of

        return None if mechanism_of(properties) == OAUTHBEARER else f"User:{credentials(properties)[0]}"
    if protocol != "SSL":
        return ANONYMOUS
    from ottla.client.tls import has_certificate

    return None if has_certificate(properties) else ANONYMOUS


def encryption(tls: TlsDetails | None) -> tuple[str, str, str]:
    """Returns the cells of the TLS row. The last cell has the encryption and the expiry of the broker's certificate."""
    if tls is None:
        return "", "", "none: what is sent can be read on the way"
    end = tls.certificate_end
    if end is None:
        held = "the broker's certificate is not checked"
    else:
        held = f"the broker's certificate ends on {end:%Y-%m-%d}, in {counted((end - datetime.now(UTC)).days, 'day')}"
    return "", "", f"{tls.version}, {tls.cipher}; {held}"


def _rules(cluster: Cluster) -> tuple[list[Binding] | None, str]:
    """Returns the cluster's rules and a remark for the table. The rules are None if the client may not read them."""
    try:
        found = acl_admin.describe_acls(cluster, AclFilter())
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return [], "the broker has no authorizer: every client that connects may do everything"
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return None, "they may not be seen without Describe on the cluster"
        raise
    return found, f"there are {len(found)}"


def _by_broker(cluster: Cluster, rules: list[Binding] | None, principal: str | None, kind: ResourceType, name: str) -> tuple[str, str, str]:
    """Asks the broker. Returns the allowed operations, the refused operations and the rules about them, each as text. If the broker lists
    no operations, the rules are judged as in `_by_rules`. If the request fails, the last text is the error."""
    try:
        allowed = acl_admin.allowed_operations(cluster, kind, name)
    except KafkaError as error:
        return "", "", str(error)
    if allowed is None:
        return _by_rules(rules, principal, None, kind, name) if rules and principal else ("", "", "the broker does not say")
    refused = [operation for operation in OPERATIONS[kind] if operation not in allowed]
    return _names(allowed), _names(refused), _why(rules, principal, None, kind, name)


def _by_rules(rules: list[Binding] | None, principal: str | None, host: str | None, kind: ResourceType, name: str) -> tuple[str, str, str]:
    """Judges by the rules alone. Returns the allowed operations, the refused operations and the rules about them, each as text."""
    if rules is None:
        return "", "", "the rules may not be seen"
    about = rules_about(rules, principal, host, kind, name)
    allowed = [operation for operation in OPERATIONS[kind] if is_allowed(about, operation)]
    refused = [operation for operation in OPERATIONS[kind] if operation not in allowed]
    return _names(allowed), _names(refused), _why(rules, principal, host, kind, name)


def rules_about(rules: Sequence[Binding], principal: str | None, host: str | None, kind: ResourceType, name: str) -> list[Binding]:
    """Returns the rules that match a resource and a principal, on `host`. If `host` is None, rules for any host match."""
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
    return "; ".join(map(_said, about)) or f"no rule names it for {principal}"


def _said(binding: Binding) -> str:
    pattern, rule = binding
    where = "" if rule.host == WILDCARD else f" from {rule.host}"
    of = f"{java_name(pattern.pattern_type).lower()} {pattern.name}"
    return f"{java_name(rule.permission)} {java_name(rule.operation)} to {rule.principal}{where} ({of})"


def _names(operations: Sequence[AclOperation]) -> str:
    return ", ".join(map(java_name, operations))
