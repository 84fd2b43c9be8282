"""`ottla user`: SCRAM users. Apache Kafka stores them; Ottla's broker does not yet, which is an error of one line."""

from __future__ import annotations

import argparse
import sys

from ottla.base.errors import ApiError
from ottla.cli.cluster.config_quotas import check_iterations
from ottla.cli.command import Command, UsageError
from ottla.cli.options import add_yes, confirm, connect, output_of
from ottla.client.blocking import scram_admin

_COLUMNS = (("USER", "user"), ("MECHANISM", "mechanism"), ("ITERATIONS", "iterations"))


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="USER", help="only these")


def _list(args: argparse.Namespace) -> int:
    with connect(args) as cluster:
        found = scram_admin.describe_scram(cluster, args.names)
    rows = []
    for user, credentials in sorted(found.items()):
        if isinstance(credentials, ApiError):
            raise credentials
        rows += [{"user": user, **credential._asdict()} for credential in credentials]
    output_of(args).show("users", rows, _COLUMNS)
    return 0


def _mechanism_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER", help="the name of the user")
    parser.add_argument("--mechanism", action="append", choices=tuple(scram_admin.MECHANISMS), help="repeatable")


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    _mechanism_argument(parser)
    parser.add_argument("--password", metavar="TEXT", help="visible in the list of processes; --password-stdin is safer")
    parser.add_argument("--password-stdin", action="store_true", help="the first line of standard input")
    parser.add_argument("--iterations", type=int, default=scram_admin.ITERATIONS, metavar="N", help=f"default {scram_admin.ITERATIONS}")


def _create(args: argparse.Namespace) -> int:
    if (args.password is None) != args.password_stdin:
        raise UsageError("give either --password or --password-stdin")
    check_iterations(args.iterations)
    password = args.password if args.password is not None else sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise UsageError("the password is empty")
    mechanisms = args.mechanism or ["SCRAM-SHA-256"]
    with connect(args) as cluster:
        scram_admin.alter_scram(cluster, args.name, passwords=dict.fromkeys(mechanisms, (password, args.iterations)))
    what = {"user": args.name, "mechanisms": mechanisms, "iterations": args.iterations}
    output_of(args).done(f"User {args.name} can log in by {', '.join(mechanisms)}.", what)
    return 0


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    _mechanism_argument(parser)
    add_yes(parser)


def _delete(args: argparse.Namespace) -> int:
    confirm(args, f"Remove the credentials of user {args.name}?")
    with connect(args) as cluster:
        mechanisms = args.mechanism or _mechanisms_of(scram_admin.describe_scram(cluster, [args.name])[args.name])
        scram_admin.alter_scram(cluster, args.name, deletions=mechanisms)
    output_of(args).done(f"Removed {', '.join(mechanisms)} of user {args.name}.", {"user": args.name, "deleted_mechanisms": mechanisms})
    return 0


def _mechanisms_of(found: list[scram_admin.Credential] | ApiError) -> list[str]:
    if isinstance(found, ApiError):
        raise found
    return [credential.mechanism for credential in found]


COMMANDS = {
    "list": Command("Users with SCRAM credentials.", _list_arguments, _list, may_watch=True),
    "create": Command("Let a user log in by SCRAM, or change the password.", _create_arguments, _create),
    "delete": Command("Remove a user's credentials.", _delete_arguments, _delete),
}
