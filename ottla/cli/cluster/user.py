"""`ottla user`: SCRAM users. A password is read from a prompt, a file or standard input, and never from an argument."""

from __future__ import annotations

import argparse
import getpass
import sys

from ottla.base.errors import ApiError
from ottla.cli.cluster.config_quotas import check_iterations
from ottla.cli.command import Command, UsageError
from ottla.cli.input_files import read_text
from ottla.cli.options import add_yes, confirm, connect, output_of
from ottla.cli.render.rows import Row
from ottla.client.blocking import scram_admin


class CredentialRow(Row):
    """A SCRAM credential of a user."""

    user: str
    mechanism: str
    iterations: int


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="USER", help="only these")


def _list(args: argparse.Namespace) -> int:
    with connect(args) as cluster:
        found = scram_admin.describe_scram(cluster, args.names)
    rows = []
    for user, credentials in sorted(found.items()):
        if isinstance(credentials, ApiError):
            raise credentials
        rows += [CredentialRow(user, *credential) for credential in credentials]
    output_of(args).rows("users", CredentialRow, rows)
    return 0


def _mechanism_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER", help="the name of the user")
    parser.add_argument("--mechanism", action="append", choices=tuple(scram_admin.MECHANISMS), help="repeatable")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    _mechanism_argument(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--password-file", metavar="FILE", help="its first line is the password; - is standard input (default: a prompt)")
    source.add_argument("--password-stdin", action="store_const", const="-", dest="password_file", help="short for --password-file -")
    parser.add_argument("--password", nargs="?", const="", help=argparse.SUPPRESS)
    parser.add_argument("--iterations", type=int, default=scram_admin.ITERATIONS, metavar="N", help=f"default {scram_admin.ITERATIONS}")


def _add(args: argparse.Namespace) -> int:
    check_iterations(args.iterations)
    if args.password is not None:
        raise UsageError("the list of processes shows arguments to everybody; give the password by --password-stdin or --password-file")
    password = read_password(args.password_file, args.name)
    mechanisms = args.mechanism or ["SCRAM-SHA-256"]
    with connect(args) as cluster:
        scram_admin.alter_scram(cluster, args.name, passwords=dict.fromkeys(mechanisms, (password, args.iterations)))
    what = {"user": args.name, "mechanisms": mechanisms, "iterations": args.iterations}
    output_of(args).done(f"User {args.name} can log in by {', '.join(mechanisms)}.", what)
    return 0


def read_password(path: str | None, user: str) -> str:
    """The password from the first line of a file, or typed twice. Never from an argument, which the list of processes shows."""
    if path is not None:
        text = sys.stdin.readline() if path == "-" else read_text(path).partition("\n")[0]
        password = text.rstrip("\r\n")
    elif sys.stdin.isatty() and sys.stderr.isatty():
        password = getpass.getpass(f"Password of {user}: ", sys.stderr)
        if getpass.getpass("Once more: ", sys.stderr) != password:
            raise UsageError("the two passwords differ; nothing was changed")
    else:
        raise UsageError("there is no terminal to ask for the password; give --password-file FILE, or - for standard input")
    if not password:
        raise UsageError("the password is empty")
    return password


def _remove_arguments(parser: argparse.ArgumentParser) -> None:
    _mechanism_argument(parser)
    add_yes(parser)


def _remove(args: argparse.Namespace) -> int:
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
    "add": Command("Let a user log in by SCRAM, or change the password.", _add_arguments, _add),
    "create": Command("The same as add.", _add_arguments, _add),
    "remove": Command("Remove a user's credentials: connections that logged in by them are closed.", _remove_arguments, _remove),
    "delete": Command("The same as remove.", _remove_arguments, _remove),
}
