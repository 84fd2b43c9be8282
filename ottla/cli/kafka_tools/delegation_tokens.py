"""`kafka-delegation-tokens`: the options, lines and messages of Kafka's DelegationTokenCommand."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime

from ottla.base.errors import ApiError
from ottla.cli.access.acl import principal_of
from ottla.cli.command import Args, UsageError, command, flag, option
from ottla.cli.kafka_tools.usage import action_of, java_error, refuse_options
from ottla.cli.output import write, write_error
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import token_admin

ACTIONS = ("create", "renew", "expire", "describe")
NEEDED: dict[str, tuple[str, ...]] = {
    "create": ("max_life_time_period",),
    "renew": ("hmac", "renew_time_period"),
    "expire": ("hmac", "expiry_time_period"),
    "describe": (),
}
UNFIT = {
    "create": ("hmac", "renew_time_period", "expiry_time_period"),
    "renew": ("renewer_principal", "max_life_time_period", "expiry_time_period", "owner_principal"),
    "expire": ("max_life_time_period", "renew_time_period", "owner_principal"),
    "describe": ("renew_time_period", "max_life_time_period", "hmac", "expiry_time_period"),
}
"""Options that each action refuses."""
COLUMNS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)


@command(
    "kafka-delegation-tokens",
    "Delegation tokens, as kafka-delegation-tokens has them.",
    *(flag(f"--{action}", help=f"{action} delegation tokens") for action in ACTIONS),
    option("--owner-principal", action="append", metavar="User:NAME", help="the owner, or those whose tokens are described"),
    option("--renewer-principal", action="append", metavar="User:NAME", help="who may renew the token; repeatable"),
    option("--max-life-time-period", type=int, metavar="MS", help="of the token; -1: the broker's longest"),
    option("--renew-time-period", type=int, metavar="MS", help="from now on; -1: the broker's default"),
    option("--expiry-time-period", type=int, metavar="MS", help="from now on; -1: the token ends at once"),
    option("--hmac", metavar="BASE64", help="of the token"),
    has_output=False,
)
def _run(args: Args, cluster: Cluster) -> int:
    action = action_of(args, ACTIONS)
    for name in NEEDED[action]:
        if getattr(args, name) is None:
            raise UsageError(f'Missing required argument "[{name.replace("_", "-")}]"')
    refuse_options(args, action, UNFIT[action])
    do = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}[action]
    try:
        do(cluster, args)
    except ApiError as error:
        write_error(f"{java_error(error)}\n")
        return 1
    return 0


def _create(cluster: Cluster, args: Args) -> None:
    renewers, owners = _principals(args.renewer_principal), _principals(args.owner_principal)
    lifetime_ms = args.max_life_time_period
    write(f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{lifetime_ms}\n")
    token = token_admin.create_token(cluster, owner=owners[0] if owners else None, renewers=renewers, lifetime_ms=lifetime_ms)
    write(f"Created delegation token with tokenId : {token.token_id}\n")
    _show([token])


def _renew(cluster: Cluster, args: Args) -> None:
    write(f"Calling renew token operation with hmac :{args.hmac} , renew-time-period :{args.renew_time_period}\n")
    expiry_ms = token_admin.renew_token(cluster, _secret(args.hmac), args.renew_time_period)
    write(f"Completed renew operation. New expiry date : {_date(expiry_ms)}")


def _expire(cluster: Cluster, args: Args) -> None:
    write(f"Calling expire token operation with hmac :{args.hmac} , expire-time-period :{args.expiry_time_period}\n")
    expiry_ms = token_admin.expire_token(cluster, _secret(args.hmac), args.expiry_time_period)
    write(f"Completed expire operation. New expiry date : {_date(expiry_ms)}")


def _describe(cluster: Cluster, args: Args) -> None:
    owners = _principals(args.owner_principal)
    what = f"owners: {_listed(owners)}" if owners else "current user."
    write(f"Calling describe token operation for {what}\n")
    # Kafka's tool sends an empty list of owners if none is named, and therefore shows no token.
    found = token_admin.describe_tokens(cluster, owners)
    write(f"Total number of tokens : {len(found)}")
    _show(found)


def _show(tokens: Sequence[token_admin.Token]) -> None:
    write(f"\n{_line(COLUMNS)}\n")
    for token in tokens:
        dates = map(_date, (token.issue_ms, token.expiry_ms, token.max_ms))
        hmac = base64.b64encode(token.hmac).decode()
        write(f"\n{_line((token.token_id, hmac, token.owner, token.requester, _listed(token.renewers), *dates))}\n")


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))


def _date(time_ms: int) -> str:
    """Returns a time in the time zone of this machine, to the minute. Kafka's tool uses the local zone, too."""
    return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%dT%H:%M")


def _principals(texts: Sequence[str] | None) -> list[str]:
    return [principal_of(text) for text in texts or ()]


def _listed(principals: Sequence[str]) -> str:
    return f"[{', '.join(principals)}]"


def _secret(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise UsageError("--hmac is not base64") from None
