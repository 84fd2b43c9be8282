"""`ottla token`: delegation tokens. A client that logs in with a token has the principal of the token's owner. Commands name a
token by its id. Its secret (the HMAC) is shown at creation, and in lists with `--show-hmac`."""

from __future__ import annotations

import base64

from ottla.analysis.moments import format_ms
from ottla.cli.access.acl import principal_of
from ottla.cli.command import YES, Args, Option, Refused, UsageError, command, confirm, flag, option
from ottla.cli.moments import parse_duration_ms
from ottla.cli.render.ottla import Output, Row, column
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import token_admin


class TokenRow(Row):
    token_id: str = column("TOKEN")
    owner: str
    requester: str
    renewers: list[str]
    issued: str | None
    expires: str | None
    at_the_latest: str | None = column("AT_THE_LATEST")


class SecretTokenRow(TokenRow):
    hmac: str


def _row(token: token_admin.Token) -> TokenRow:
    times = (format_ms(time_ms) for time_ms in (token.issue_ms, token.expiry_ms, token.max_ms))
    return TokenRow(token.token_id, token.owner, token.requester, token.renewers, *times)


def _secret_row(token: token_admin.Token) -> SecretTokenRow:
    return SecretTokenRow(**vars(_row(token)), hmac=base64.b64encode(token.hmac).decode())


@command(
    "token list",
    "List the caller's delegation tokens, and others that the caller may see.",
    option("--owner", action="append", metavar="User:NAME", help="only tokens of this owner; repeatable"),
    flag("--show-hmac", help="also show the secrets of the tokens"),
    may_watch=True,
)
def _list(args: Args, cluster: Cluster, output: Output) -> None:
    owners = None if args.owner is None else [principal_of(owner) for owner in args.owner]
    found = token_admin.describe_tokens(cluster, owners)
    kind, make = (SecretTokenRow, _secret_row) if args.show_hmac else (TokenRow, _row)
    output.rows("tokens", kind, [make(token) for token in found])


@command(
    "token create",
    "Make a token; a client that logs in with it has its owner's principal.",
    option("--owner", metavar="User:NAME", help="the principal of the token (default: your own)"),
    option("--renewer", action="append", metavar="User:NAME", help="a principal that may also renew and expire it; repeatable"),
    option("--lifetime", metavar="DURATION", help="maximum lifetime, even with renewals, such as P2D (default: the broker's)"),
)
def _create(args: Args, cluster: Cluster, output: Output) -> None:
    owner = None if args.owner is None else principal_of(args.owner)
    renewers = [principal_of(renewer) for renewer in args.renewer or ()]
    token = token_admin.create_token(cluster, owner=owner, renewers=renewers, lifetime_ms=_duration_ms(args.lifetime))
    row = _secret_row(token)
    text = f"Token {token.token_id} of {token.owner} expires at {row.expires}.\nIts HMAC, the password of the login: {row.hmac}"
    output.done(text, row.as_json())


def _token_options(what: str, default: str) -> list[Option]:
    token = option("token", metavar="TOKEN", help="the id of the token")
    return [token, option("--for", dest="period", metavar="DURATION", help=f"{what}, such as PT12H (default: {default})")]


@command("token renew", "Extend the lifetime of a token.", *_token_options("so long from now on", "the broker's"))
def _renew(args: Args, cluster: Cluster, output: Output) -> None:
    expiry_ms = token_admin.renew_token(cluster, _secret_of(cluster, args.token), _duration_ms(args.period))
    text = f"Token {args.token} expires at {format_ms(expiry_ms)}."
    output.done(text, {"token_id": args.token, "expires": format_ms(expiry_ms)})


@command(
    "token expire",
    "End a token now or later. If it ends now, the connections that logged in with it are closed.",
    *_token_options("remaining lifetime from now on", "it ends now"),
    YES,
)
def _expire(args: Args, cluster: Cluster, output: Output) -> None:
    confirm(args, f"End token {args.token}?")
    expiry_ms = token_admin.expire_token(cluster, _secret_of(cluster, args.token), _duration_ms(args.period))
    text = f"Token {args.token} ends at {format_ms(expiry_ms)}."
    output.done(text, {"token_id": args.token, "expires": format_ms(expiry_ms)})


def _secret_of(cluster: Cluster, token_id: str) -> bytes:
    """Returns the HMAC of a token: requests of the protocol contain the HMAC instead of the id. Asks the broker for it, so that no command
    line contains the secret. Raises `Refused` if the broker does not list the token."""
    for token in token_admin.describe_tokens(cluster):
        if token.token_id == token_id:
            return token.hmac
    raise Refused(f"there is no token {token_id}, or it may not be seen", "DELEGATION_TOKEN_NOT_FOUND")


def _duration_ms(text: str | None) -> int:
    duration_ms = -1 if text is None else parse_duration_ms(text)
    if text is not None and duration_ms <= 0:
        raise UsageError(f"{text!r}: the duration must be greater than 0")
    return duration_ms
