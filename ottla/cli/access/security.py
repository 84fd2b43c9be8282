"""`ottla security check` shows the operations that a client with these settings may do on a cluster, and the ACLs that allow or deny them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.analysis.access import NO_AUTHORIZER, access_by_broker, access_by_rules, operation_names, own_principal, visible_rules
from ottla.base.acls import CLUSTER_NAME, ResourceType, java_name
from ottla.base.counted import counted
from ottla.cli.access.acl import principal_of
from ottla.cli.command import Args, command, option
from ottla.cli.options import properties_of
from ottla.cli.render.ottla import Output, Row, column, spaced
from ottla.client.blocking.cluster import Cluster
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.tls import TlsDetails

TOPICS_MAX = 20
"""The largest number of topics that are checked if no topic is named."""

_KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional_id": ResourceType.TRANSACTIONAL_ID}


class AccessRow(Row, titles=spaced):
    """A resource with the operations that the client may and may not do on it, and why."""

    what: str
    may: str = column(width_max=22)
    may_not: str = column(width_max=22)
    why: str = column(width_max=28)


@command(
    "security check",
    "Show the operations that a client with these settings may do, and the reasons.",
    option("--topic", action="append", metavar="TOPIC", help=f"a topic; repeatable, like the next; default: {TOPICS_MAX} visible topics"),
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
    rules, why = visible_rules(cluster)
    rows = [AccessRow("connect", "yes", "", f"as {own or 'the principal of its certificate or token'}")]
    rows += [AccessRow("TLS", *encryption(cluster.any_connection().tls())), AccessRow("access rules", "", "", why)]
    named = [(kind, name) for option, kind in _KINDS.items() for name in (topics if option == "topic" else getattr(args, option) or ())]
    for kind, name in ((ResourceType.CLUSTER, CLUSTER_NAME), *named):
        if other is None or why == NO_AUTHORIZER:  # without an authorizer, other principals may do what this client may do
            judged = access_by_broker(cluster, rules, own, kind, name)
        else:
            judged = access_by_rules(rules, other, args.client_host, kind, name)
        what = f"{java_name(kind)} {name}".removesuffix(f" {CLUSTER_NAME}")
        rows.append(AccessRow(what, operation_names(judged.allowed), operation_names(judged.refused), judged.why))
    output.rows("access", AccessRow, rows)
    return 0


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
