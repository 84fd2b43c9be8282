"""Reads and writes the file of profiles, which are named sets of client properties: one TOML file in the user's configuration folder.

It holds `current = "name"` and a table for each profile. A change replaces the file as a whole, so that after a crash the file is complete.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ottla.cli.command import Refused, UsageError


def profiles_path(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "ottla", "profiles.toml")


def read_profiles(environment: Mapping[str, str]) -> tuple[str | None, dict[str, dict[str, str]]]:
    """Returns the name of the current profile, if any, and all profiles. If there is no file, there are no profiles. Raises UsageError for
    an unreadable file.
    """
    path = profiles_path(environment)
    if not os.path.exists(path):
        return None, {}
    import tomllib

    try:
        with open(path, "rb") as file:
            tree = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    every, current = tree.get("profiles", {}), tree.get("current")
    if not isinstance(every, dict) or not isinstance(current, str | None):
        raise UsageError(f"cannot read {path}: it needs a table `profiles` and a string `current`")
    tables = {name: found for name, found in every.items() if isinstance(found, dict)}
    profiles = {name: {key: str(value) for key, value in found.items()} for name, found in tables.items()}
    return current, profiles


def profile_properties(name: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of the named profile, or without a name of the current profile. If there is no current profile, returns no
    properties. Raises UsageError for an unknown profile.
    """
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
    """Returns the text as a TOML string: a JSON string that keeps letters outside ASCII and escapes DEL."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
