"""Joins what file, environment and command line set, before the values are checked.

`--set` beats the environment, which beats the file. Configurations that were written for other images are understood where their meaning
is plain; unknown names become notices and stop nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.settings import sources
from ottla.base.settings.security import is_family_name
from ottla.base.settings.setting import SettingError


class ConfigError(Exception):
    """A configuration that the broker refuses to start with, in one line."""


class Given(NamedTuple):
    """A value as written, and where (`--set`, `environment`, the file's name)."""

    text: str
    where: str


class Notice(NamedTuple):
    """A line for the broker's log about the configuration; `is_warning` or else for information."""

    is_warning: bool
    text: str


def gather(
    names: Sequence[str],
    *,
    file_text: str = "",
    file_name: str = "",
    environment: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
) -> tuple[dict[str, Given], list[Notice]]:
    """The value of each of these names, from its strongest source, and notices of all other names. Raises `ConfigError` for what
    cannot be read at all.
    """
    notices: list[Notice] = []
    known = frozenset(names)
    given: dict[str, Given] = {}
    try:
        layers = [(sources.parse_file(file_text, file_name), file_name)] if file_text else []
        from_environment, skipped = sources.parse_environment(environment or {})
        layers.append((from_environment, "environment"))
        layers.append((sources.parse_assignments(assignments), "--set"))
    except SettingError as error:
        raise ConfigError(f"{file_name}: {error}" if file_name else str(error)) from None
    if skipped:
        notices.append(Notice(True, f"environment: {', '.join(skipped)} are for a JVM or an image's scripts and have no effect here"))
    for values, where in layers:
        for name, text in values.items():
            if name in known or is_family_name(name):
                given[name] = Given(text, where)
            else:
                notices.append(_unserved(name, where, names))
    _listen_as_advertised(given, notices)
    return given, notices


def _listen_as_advertised(given: dict[str, Given], notices: list[Notice]) -> None:
    """Takes the ports of `advertised.listeners` when `listeners` is not set, as files for Confluent's image expect."""
    advertised = given.get("advertised.listeners")
    if advertised is None or "listeners" in given or not advertised.text.strip():
        return
    entries = [entry.strip() for entry in advertised.text.split(",")]
    text = ",".join(f"{entry.partition('://')[0]}://:{entry.rpartition(':')[2]}" for entry in entries)
    given["listeners"] = Given(text, advertised.where)
    notices.append(Notice(False, f"{advertised.where}: listeners is not set, its ports are those of advertised.listeners: {text}"))


def _unserved(name: str, where: str, names: Sequence[str]) -> Notice:
    from ottla.base.settings.known import GUARDS_OF_IMAGES, MISSING_PARTS, REFUSED_ENDINGS, is_known_to_kafka

    if name in MISSING_PARTS:
        return Notice(True, f"{where}: {name} has no effect: this version has no {MISSING_PARTS[name]}")
    if name.endswith(REFUSED_ENDINGS):
        raise ConfigError(f"{where}: {name} is not served, and without it clients would be let in unchecked; remove it")
    if name in GUARDS_OF_IMAGES:
        return Notice(True, f"{where}: {name} is not served by this version: access is NOT restricted by it")
    if is_known_to_kafka(name):
        return Notice(False, f"{where}: {name} is known to Kafka and has no effect here")
    likely = sources.nearest(name, names)
    return Notice(True, f"{where}: unknown setting {name}" + (f"; did you mean {likely}?" if likely else ""))
