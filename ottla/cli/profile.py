"""`ottla profile`: make, change, use, list and delete named sets of client properties."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ottla.cli.command import Args, Refused, UsageError, command, option, parse_pairs
from ottla.cli.options import read_properties
from ottla.cli.profile_file import profile_properties, read_profiles, write_profiles
from ottla.cli.render.ottla import Output, Row
from ottla.cli.secret_arguments import SECRET


class ProfileRow(Row):
    """A profile, without its secrets."""

    name: str
    current: bool
    bootstrap_servers: str
    properties: dict[str, str]


NAME_AND_PAIRS = (
    option("name"),
    option("pairs", nargs="*", metavar="KEY=VALUE", help="client properties, such as security.protocol=SSL"),
    option("--command-config", dest="command_config", metavar="FILE", help="a properties file to copy, with its passwords"),
    option("-b", "--bootstrap-server", dest="bootstrap", metavar="HOST:PORT[,...]", help="short for bootstrap.servers=..."),
)

NAME = (option("name"),)


@command("profile create", "Make a profile. The first one is used from now on.", *NAME_AND_PAIRS, has_connection=False)
def _create(args: Args, output: Output) -> None:
    _change(args, output, is_new=True)


@command("profile set", "Change a profile's properties.", *NAME_AND_PAIRS, has_connection=False)
def _set(args: Args, output: Output) -> None:
    _change(args, output, is_new=False)


def _change(args: Args, output: Output, *, is_new: bool) -> None:
    current, profiles = read_profiles(os.environ)
    if not args.name:
        raise UsageError("a profile needs a name")
    if is_new == (args.name in profiles):
        raise Refused(f"profile {args.name!r} " + ("exists already; change it with `ottla profile set`" if is_new else "does not exist"))
    pairs = {**(read_properties(args.command_config) if args.command_config else {}), **parse_pairs(args.pairs, "profile")}
    if args.bootstrap is not None:
        pairs["bootstrap.servers"] = args.bootstrap
    profiles.setdefault(args.name, {}).update(pairs)
    write_profiles(current or args.name, profiles, os.environ)
    what = {"profile": args.name, "properties": without_secrets(profiles[args.name])}
    output.done(f"profile {args.name} {'created' if is_new else 'changed'}", what)


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: "(hidden)" if any(word in key for word in SECRET) else value for key, value in sorted(properties.items())}


@command("profile use", "Use a profile from now on.", *NAME, has_connection=False)
def _use(args: Args, output: Output) -> None:
    profile_properties(args.name, os.environ)
    write_profiles(args.name, read_profiles(os.environ)[1], os.environ)
    output.done(f"profile {args.name} is used from now on", {"current": args.name})


@command("profile list", "All profiles.", may_watch=True, has_connection=False)
def _list(args: Args, output: Output) -> None:
    current, profiles = read_profiles(os.environ)
    rows = [
        ProfileRow(name, name == current, found.get("bootstrap.servers", ""), without_secrets(found))
        for name, found in sorted(profiles.items())
    ]
    output.rows("profiles", ProfileRow, rows)


@command("profile delete", "Delete a profile.", *NAME, has_connection=False)
def _delete(args: Args, output: Output) -> None:
    profile_properties(args.name, os.environ)
    current, profiles = read_profiles(os.environ)
    del profiles[args.name]
    write_profiles(None if current == args.name else current, profiles, os.environ)
    output.done(f"profile {args.name} deleted", {"deleted": args.name})
