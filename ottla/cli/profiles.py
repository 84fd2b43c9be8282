"""`ottla profile`: named sets of client properties, in one TOML file in the user's configuration folder.

The file holds `current = "name"` and a table for each profile. It is written whole, by replacing it, so a crash leaves the old one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from ottla.cli.command import Command, Refused, UsageError, parse_pairs


def profiles_path(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "ottla", "profiles.toml")


def read_profiles(environment: Mapping[str, str]) -> tuple[str | None, dict[str, dict[str, str]]]:
    """The current profile's name and all profiles. No file means none; a broken one is told in one line."""
    path = profiles_path(environment)
    if not os.path.exists(path):
        return None, {}
    import tomllib

    try:
        with open(path, "rb") as file:
            tree = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    tables = {name: found for name, found in tree.get("profiles", {}).items() if isinstance(found, dict)}
    profiles = {name: {key: str(value) for key, value in found.items()} for name, found in tables.items()}
    return tree.get("current"), profiles


def profile_properties(name: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The properties of a profile: the named one, else the current one, else none."""
    if name == "":
        raise UsageError("a profile needs a name")
    if name is None and not os.path.exists(profiles_path(environment)):
        return {}
    current, profiles = read_profiles(environment)
    wanted = name or current
    if not wanted:
        return {}
    if wanted not in profiles:
        known = ", ".join(sorted(profiles)) or "none yet"
        raise UsageError(f"no profile {wanted!r}; there are: {known}")
    return profiles[wanted]


def write_profiles(current: str | None, profiles: Mapping[str, Mapping[str, str]], environment: Mapping[str, str]) -> None:
    lines = [f"current = {_quoted(current)}\n"] if current else []
    for name in sorted(profiles):
        lines.append(f"\n[profiles.{_quoted(name)}]\n")
        lines += [f"{_quoted(key)} = {_quoted(value)}\n" for key, value in sorted(profiles[name].items())]
    path = profiles_path(environment)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)  # a profile may hold a password
            file.writelines(lines)
        os.replace(path + ".new", path)
    except OSError as error:
        raise Refused(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None


def _quoted(text: str) -> str:
    """A string of TOML: JSON's, but for letters beyond its escapes of two bytes, and for DEL."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _name_and_pairs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("pairs", nargs="*", metavar="KEY=VALUE", help="client properties, such as bootstrap.servers=HOST:PORT")


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


def _create(args: argparse.Namespace) -> int:
    return _change(args, is_new=True)


def _set(args: argparse.Namespace) -> int:
    return _change(args, is_new=False)


def _change(args: argparse.Namespace, *, is_new: bool) -> int:
    from ottla.cli.options import output_of

    current, profiles = read_profiles(os.environ)
    if not args.name:
        raise UsageError("a profile needs a name")
    if is_new == (args.name in profiles):
        raise Refused(f"profile {args.name!r} " + ("exists already; change it with `ottla profile set`" if is_new else "does not exist"))
    pairs = parse_pairs(args.pairs, "profile")
    profiles.setdefault(args.name, {}).update(pairs)
    write_profiles(current or args.name, profiles, os.environ)
    what = {"profile": args.name, "properties": without_secrets(profiles[args.name])}
    output_of(args).done(f"profile {args.name} {'created' if is_new else 'changed'}", what)
    return 0


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        key: "(hidden)" if any(word in key for word in ("password", "jaas", "secret")) else value
        for key, value in sorted(properties.items())
    }


def _use(args: argparse.Namespace) -> int:
    from ottla.cli.options import output_of

    profile_properties(args.name, os.environ)
    write_profiles(args.name, read_profiles(os.environ)[1], os.environ)
    output_of(args).done(f"profile {args.name} is used from now on", {"current": args.name})
    return 0


def _delete(args: argparse.Namespace) -> int:
    from ottla.cli.options import output_of

    profile_properties(args.name, os.environ)
    current, profiles = read_profiles(os.environ)
    del profiles[args.name]
    write_profiles(None if current == args.name else current, profiles, os.environ)
    output_of(args).done(f"profile {args.name} deleted", {"deleted": args.name})
    return 0


def _list(args: argparse.Namespace) -> int:
    from ottla.cli.options import output_of

    current, profiles = read_profiles(os.environ)
    rows = [
        {
            "name": name,
            "current": name == current,
            "bootstrap_servers": found.get("bootstrap.servers", ""),
            "properties": without_secrets(found),
        }
        for name, found in sorted(profiles.items())
    ]
    columns = (("NAME", "name"), ("CURRENT", "current"), ("BOOTSTRAP-SERVERS", "bootstrap_servers"), ("PROPERTIES", "properties"))
    output_of(args).show("profiles", rows, columns)
    return 0


COMMANDS = {
    "create": Command("Make a profile.", _name_and_pairs, _create, has_connection=False),
    "set": Command("Change a profile's properties.", _name_and_pairs, _set, has_connection=False),
    "use": Command("Use a profile from now on.", _name, _use, has_connection=False),
    "list": Command("All profiles.", lambda parser: None, _list, may_watch=True, has_connection=False),
    "delete": Command("Delete a profile.", _name, _delete, has_connection=False),
}
