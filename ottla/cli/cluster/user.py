"""`ottla user`: SCRAM users. Passwords are read from a prompt, a file or standard input. Arguments would be visible to every user.

A broker adds the user. With `--zookeeper` the command writes the user to ZooKeeper itself, for users that must exist before the first
broker starts, such as the brokers' own user.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping

from ottla.cli.cluster.config_entities import check_iterations
from ottla.cli.command import YES, Args, UsageError, command, confirm, flag, granted, headed, hidden, one_of, option
from ottla.cli.input_files import read_text
from ottla.cli.options import connect
from ottla.cli.render.ottla import Output, Row
from ottla.client.blocking import scram_admin
from ottla.client.blocking.cluster import Cluster


class CredentialRow(Row):
    user: str
    mechanism: str
    iterations: int


@command(
    "user list",
    "Users with SCRAM credentials.",
    option("names", nargs="*", metavar="USER", help="only these"),
    may_watch=True,
    needs="DESCRIBE CLUSTER",
)
def _list(args: Args, cluster: Cluster, output: Output) -> None:
    found = scram_admin.describe_scram(cluster, args.names)
    rows = [CredentialRow(user, *credential) for user, credentials in sorted(found.items()) for credential in granted(credentials)]
    output.rows("users", CredentialRow, rows)


MECHANISM_OPTION = (
    option("name", metavar="USER", help="the name of the user"),
    option("--mechanism", action="append", choices=tuple(scram_admin.MECHANISMS), help="repeatable"),
)

OPTIONS = (
    *MECHANISM_OPTION,
    *one_of(
        option("--password-file", metavar="FILE", help="its first line is the password; - is standard input (default: a prompt)"),
        option("--password-stdin", action="store_const", const="-", dest="password_file", help="short for --password-file -"),
    ),
    hidden("--password", nargs="?", const=""),
    option("--iterations", type=int, default=scram_admin.ITERATIONS, metavar="N", help=f"default {scram_admin.ITERATIONS}"),
    *headed(
        "before the first broker",
        option("--zookeeper", metavar="HOST:PORT[,...][/CHROOT]", help="write the user to this ZooKeeper, as zookeeper.connect names it"),
        option("--zk-tls-config-file", metavar="FILE", help="settings zookeeper.ssl.* and ottla.zookeeper.* for this ZooKeeper"),
        flag("--force", help="write to a chroot without a cluster although another chroot has one"),
    ),
)


@command("user create", "The same as add.", *OPTIONS, needs="ALTER CLUSTER")
@command("user add", "Let a user log in by SCRAM, or change the password.", *OPTIONS, needs="ALTER CLUSTER")
def _add(args: Args, output: Output) -> None:
    check_iterations(args.iterations)
    if args.password is not None:
        raise UsageError("the list of processes shows arguments to everybody; give the password by --password-stdin or --password-file")
    password = read_password(args.password_file, args.name)
    mechanisms = args.mechanism or ["SCRAM-SHA-256"]
    passwords = dict.fromkeys(mechanisms, (password, args.iterations))
    if args.zookeeper is not None:
        _write_to_zookeeper(args, passwords)
    else:
        with connect(args) as cluster:
            scram_admin.alter_scram(cluster, args.name, passwords=passwords)
    what = {"user": args.name, "mechanisms": mechanisms, "iterations": args.iterations}
    output.done(f"User {args.name} can log in by {', '.join(mechanisms)}.", what)


def _write_to_zookeeper(args: Args, passwords: Mapping[str, tuple[str, int]]) -> None:
    from ottla.cli.kafka_tools.zookeeper import Place, access_of, write_to

    if args.bootstrap is not None:
        raise UsageError("give --zookeeper or --bootstrap-server, not both")
    place = Place(args.zookeeper, access_of(args.zk_tls_config_file, os.environ.get("KAFKA_OPTS", "")))
    write_to(place, args.force, lambda tools: tools.alter_credentials(args.name, passwords, ()))


def read_password(path: str | None, user: str) -> str:
    """Reads the password from the first line of a file (`-` is standard input), or twice from a prompt. Raises `UsageError`."""
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


REMOVE_OPTIONS = (*MECHANISM_OPTION, YES)


@command("user delete", "The same as remove.", *REMOVE_OPTIONS, needs="ALTER CLUSTER")
@command(
    "user remove", "Remove a user's credentials: connections that logged in by them are closed.", *REMOVE_OPTIONS, needs="ALTER CLUSTER"
)
def _remove(args: Args, cluster: Cluster, output: Output) -> None:
    confirm(args, f"Remove the credentials of user {args.name}?")
    found = [] if args.mechanism else granted(scram_admin.describe_scram(cluster, [args.name])[args.name])
    mechanisms = args.mechanism or [credential.mechanism for credential in found]
    scram_admin.alter_scram(cluster, args.name, deletions=mechanisms)
    output.done(f"Removed {', '.join(mechanisms)} of user {args.name}.", {"user": args.name, "deleted_mechanisms": mechanisms})
