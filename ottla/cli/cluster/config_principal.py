"""`ottla config describe --principal`: the credentials, quotas, access rules and delegation tokens of one user.

Features that the broker lacks (SCRAM, an authorizer, a key for tokens) have no rows. A missing permission is an error, except that brokers
omit delegation tokens that the caller may not see.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.analysis.moments import format_ms
from ottla.base.acls import ANY_PRINCIPAL, AclFilter, java_name
from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.access.acl import principal_of
from ottla.cli.command import Args, UsageError, granted
from ottla.cli.render.ottla import Output, Row
from ottla.client.blocking import scram_admin
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin, quota_admin, token_admin

NOT_THERE = frozenset({
    ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.SECURITY_DISABLED, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ErrorCode.UNSUPPORTED_VERSION,
})  # fmt: skip
"""Errors that mean "nothing to show": the user has no credentials, the broker lacks the feature, or it lists no tokens on a connection of
this kind."""


class PrincipalRow(Row):
    """A SCRAM credential, quota, access rule or delegation token of a user."""

    kind: str
    name: str
    value: str


def describe(args: Args, cluster: Cluster, output: Output) -> None:
    principal = principal_of(args.principal)
    kind, _, user = principal.partition(":")
    if kind != "User":
        raise UsageError(f"{principal}: only users have settings; write User:NAME")
    rows = [*_credentials(cluster, user), *_quotas(cluster, user), *_rules(cluster, principal), *_tokens(cluster, principal)]
    output.rows("settings", PrincipalRow, rows)


def _there(ask: Callable[[], Any]) -> Any:
    """Returns the result of `ask`; an empty tuple if the broker lacks the feature (an error of `NOT_THERE`)."""
    try:
        return ask()
    except ApiError as error:
        if error.code not in NOT_THERE:
            raise
        return ()


def _credentials(cluster: Cluster, user: str) -> list[PrincipalRow]:
    """Returns mechanism and iterations of each SCRAM credential. Brokers never send a password or a hash of it."""
    found = _there(lambda: granted(scram_admin.describe_scram(cluster, [user])[user]))
    return [PrincipalRow("credential", credential.mechanism, f"iterations={credential.iterations}") for credential in found]


def _quotas(cluster: Cluster, user: str) -> list[PrincipalRow]:
    """Returns the quotas of the user and of the default user, alone and with each client id."""
    users = (("user", quota_admin.EXACT, user), ("user", quota_admin.DEFAULT, None))
    rows = []
    for of_user in users:
        for filters in ([of_user], [of_user, ("client-id", quota_admin.ANY, None)]):
            for entity, quotas in sorted(quota_admin.describe_quotas(cluster, filters).items(), key=str):
                whose = " ".join(f"{kind}={'(default)' if name is None else name}" for kind, name in entity)
                rows += [PrincipalRow("quota", whose, f"{key}={value:g}") for key, value in sorted(quotas.items())]
    return rows


def _rules(cluster: Cluster, principal: str) -> list[PrincipalRow]:
    """Returns the access rules for the user, and the rules for all users (`User:*`)."""
    rows = []
    for who in (principal, ANY_PRINCIPAL):
        for pattern, rule in _there(partial(acl_admin.describe_acls, cluster, AclFilter(principal=who))):
            name = f"{java_name(pattern.resource_type)} {pattern.name} ({java_name(pattern.pattern_type)})"
            rows.append(PrincipalRow("rule", name, f"{java_name(rule.permission)} {java_name(rule.operation)} to {who} from {rule.host}"))
    return rows


def _tokens(cluster: Cluster, principal: str) -> list[PrincipalRow]:
    found = _there(partial(token_admin.describe_tokens, cluster, [principal]))
    return [PrincipalRow("token", token.token_id, f"of {token.owner} until {format_ms(token.expiry_ms)}") for token in found]
