"""`ottla token`: delegation tokens. Somebody who has a token logs in as its owner. A token is named by its id; its secret is shown when it
is made, and on request."""

from __future__ import annotations

import argparse
import base64

from ottla.cli.access.acl_options import principal_of
from ottla.cli.command import Command, Refused, UsageError
from ottla.cli.moments import format_ms, parse_duration_ms
from ottla.cli.options import add_yes, confirm, connect, output_of
from ottla.cli.render.rows import Row, column
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import token_admin


class TokenRow(Row):
    """A delegation token."""

    token_id: str = column("TOKEN")
    owner: str
    requester: str
    renewers: list[str]
    issued: str | None
    expires: str | None
    at_the_latest: str | None = column("AT_THE_LATEST")


class SecretTokenRow(TokenRow):
    """With the secret of the token."""

    hmac: str


def _row(token: token_admin.Token) -> TokenRow:
    times = (format_ms(time_ms) for time_ms in (token.issue_ms, token.expiry_ms, token.max_ms))
    return TokenRow(token.token_id, token.owner, token.requester, token.renewers, *times)


def _secret_row(token: token_admin.Token) -> SecretTokenRow:
    return SecretTokenRow(**vars(_row(token)), hmac=base64.b64encode(token.hmac).decode())


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owner", action="append", metavar="User:NAME", help="only of those whose tokens these are; repeatable")
    parser.add_argument("--show-hmac", action="store_true", help="with the secrets of the tokens")


def _list(args: argparse.Namespace) -> int:
    owners = None if args.owner is None else [principal_of(owner) for owner in args.owner]
    with connect(args) as cluster:
        found = token_admin.describe_tokens(cluster, owners)
    kind, make = (SecretTokenRow, _secret_row) if args.show_hmac else (TokenRow, _row)
    output_of(args).rows("tokens", kind, [make(token) for token in found])
    return 0


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owner", metavar="User:NAME", help="as whom one logs in by it (default: oneself)")
    parser.add_argument("--renewer", action="append", metavar="User:NAME", help="who else may renew and end it; repeatable")
    parser.add_argument("--lifetime", metavar="DURATION", help="its end however often it is renewed, such as P2D (default: the broker's)")


def _create(args: argparse.Namespace) -> int:
    owner = None if args.owner is None else principal_of(args.owner)
    renewers = [principal_of(renewer) for renewer in args.renewer or ()]
    with connect(args) as cluster:
        token = token_admin.create_token(cluster, owner=owner, renewers=renewers, lifetime_ms=_duration_ms(args.lifetime))
    row = _secret_row(token)
    text = f"Token {token.token_id} of {token.owner} expires at {row.expires}.\nIts HMAC, the password of the login: {row.hmac}"
    output_of(args).done(text, row.as_json())
    return 0


def _token_argument(parser: argparse.ArgumentParser, what: str, default: str) -> None:
    parser.add_argument("token", metavar="TOKEN", help="the id of the token")
    parser.add_argument("--for", dest="period", metavar="DURATION", help=f"{what}, such as PT12H (default: {default})")


def _renew_arguments(parser: argparse.ArgumentParser) -> None:
    _token_argument(parser, "so long from now on", "the broker's")


def _renew(args: argparse.Namespace) -> int:
    with connect(args) as cluster:
        expiry_ms = token_admin.renew_token(cluster, _secret_of(cluster, args.token), _duration_ms(args.period))
    text = f"Token {args.token} expires at {format_ms(expiry_ms)}."
    output_of(args).done(text, {"token_id": args.token, "expires": format_ms(expiry_ms)})
    return 0


def _expire_arguments(parser: argparse.ArgumentParser) -> None:
    _token_argument(parser, "it lasts so long from now on", "it ends now")
    add_yes(parser)


def _expire(args: argparse.Namespace) -> int:
    confirm(args, f"End token {args.token}?")
    with connect(args) as cluster:
        expiry_ms = token_admin.expire_token(cluster, _secret_of(cluster, args.token), _duration_ms(args.period))
    text = f"Token {args.token} ends at {format_ms(expiry_ms)}."
    output_of(args).done(text, {"token_id": args.token, "expires": format_ms(expiry_ms)})
    return 0


def _secret_of(cluster: Cluster, token_id: str) -> bytes:
    """Returns the HMAC that requests name a token by. The broker is asked for it, so that it need not be an argument."""
    for token in token_admin.describe_tokens(cluster):
        if token.token_id == token_id:
            return token.hmac
    raise Refused(f"there is no token {token_id}, or it may not be seen", "DELEGATION_TOKEN_NOT_FOUND")


def _duration_ms(text: str | None) -> int:
    duration_ms = -1 if text is None else parse_duration_ms(text)
    if text is not None and duration_ms <= 0:
        raise UsageError(f"{text!r} is no time that could pass")
    return duration_ms


COMMANDS = {
    "list": Command("List the caller's delegation tokens, and others that the caller may see.", _list_arguments, _list, may_watch=True),
    "create": Command("Make a token; others log in with it as its owner.", _create_arguments, _create),
    "renew": Command("Let a token last longer.", _renew_arguments, _renew),
    "expire": Command("End a token: connections that logged in by it are closed.", _expire_arguments, _expire),
}
