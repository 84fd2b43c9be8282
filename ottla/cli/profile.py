"""`ottla profile`: make, change, use, list and delete named sets of client properties."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from ottla.cli.command import Command, Refused, UsageError, parse_pairs
from ottla.cli.options import output_of, read_properties
from ottla.cli.profile_file import profile_properties, read_profiles, write_profiles
from ottla.cli.render.rows import Row
from ottla.cli.secret_arguments import SECRET


class ProfileRow(Row):
    """A profile, without its secrets."""

    name: str
    current: bool
    bootstrap_servers: str
    properties: dict[str, str]


def _name_and_pairs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("pairs", nargs="*", metavar="KEY=VALUE", help="client properties, such as security.protocol=SSL")
    parser.add_argument("--command-config", dest="command_config", metavar="FILE", help="a properties file to take over, with passwords")
    parser.add_argument("-b", "--bootstrap-server", dest="bootstrap", metavar="HOST:PORT[,...]", help="short for bootstrap.servers=...")


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


def _create(args: argparse.Namespace) -> int:
    return _change(args, is_new=True)


def _set(args: argparse.Namespace) -> int:
    return _change(args, is_new=False)


def _change(args: argparse.Namespace, *, is_new: bool) -> int:
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
    output_of(args).done(f"profile {args.name} {'created' if is_new else 'changed'}", what)
    return 0


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: "(hidden)" if any(word in key for word in SECRET) else value for key, value in sorted(properties.items())}


def _use(args: argparse.Namespace) -> int:
    profile_properties(args.name, os.environ)
    write_profiles(args.name, read_profiles(os.environ)[1], os.environ)
    output_of(args).done(f"profile {args.name} is used from now on", {"current": args.name})
    return 0


def _delete(args: argparse.Namespace) -> int:
    profile_properties(args.name, os.environ)
    current, profiles = read_profiles(os.environ)
    del profiles[args.name]
    write_profiles(None if current == args.name else current, profiles, os.environ)
    output_of(args).done(f"profile {args.name} deleted", {"deleted": args.name})
    return 0


def _list(args: argparse.Namespace) -> int:
    current, profiles = read_profiles(os.environ)
    rows = [
        ProfileRow(name, name == current, found.get("bootstrap.servers", ""), without_secrets(found))
        for name, found in sorted(profiles.items())
    ]
    output_of(args).rows("profiles", ProfileRow, rows)
    return 0


COMMANDS = {
    "create": Command("Make a profile.", _name_and_pairs, _create, has_connection=False),
    "set": Command("Change a profile's properties.", _name_and_pairs, _set, has_connection=False),
    "use": Command("Use a profile from now on.", _name, _use, has_connection=False),
    "list": Command("All profiles.", lambda parser: None, _list, may_watch=True, has_connection=False),
    "delete": Command("Delete a profile.", _name, _delete, has_connection=False),
}
