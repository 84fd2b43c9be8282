"""Merges the settings from the file, the environment and the command line, before their values are checked.

`--set` takes precedence over the environment, and the environment over the file. Variables and files that were written for images of Kafka
are accepted as far as their meaning is clear. An unknown name causes a notice and does not prevent the start, except for a setting that
would authenticate clients (`REFUSED_ENDINGS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.settings import sources
from ottla.base.settings.jaas_file import LOGIN_CONFIG, listener_lines, parse_jaas_file, zookeeper_login
from ottla.base.settings.security import is_family_name, listener_names
from ottla.base.settings.setting import SettingError

ReadFile = Callable[[str], str]
"""Reads a file as text; raises `OSError` or `UnicodeDecodeError`."""


class ConfigError(Exception):
    """The broker cannot start with this configuration. The message is one line."""


class Given(NamedTuple):
    """The text of a value, and its source: `--set`, `environment`, or the name of the configuration file or JAAS file."""

    text: str
    where: str


class Notice(NamedTuple):
    """A line about the configuration for the broker's log: a warning, or information."""

    is_warning: bool
    text: str


def gather(
    names: Sequence[str],
    *,
    file_text: str = "",
    file_name: str = "",
    environment: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
    read_file: ReadFile | None = None,
) -> tuple[dict[str, Given], list[Notice]]:
    """Returns the given values of these names, of single listeners and of PLAIN users, from the source that takes precedence. Also returns
    notices about all other names, skipped variables and derived listeners.

    `read_file` reads the JAAS file; the file is ignored if `read_file` is None. Raises `ConfigError` if a source cannot be read or parsed,
    or for a setting with `REFUSED_ENDINGS` that is not served.
    """
    notices: list[Notice] = []
    known = frozenset(names)
    given: dict[str, Given] = {}
    where = file_name
    try:
        layers = [(sources.parse_file(file_text, file_name), file_name)] if file_text else []
        from_environment, skipped = sources.parse_environment(environment or {})
        layers.append((from_environment, "environment"))
        where = "--set"
        layers.append((sources.parse_assignments(assignments), where))
    except SettingError as error:
        raise ConfigError(f"{where}: {error}" if where else str(error)) from None
    if skipped:
        notices.append(Notice(True, f"environment: {', '.join(skipped)} are for a JVM or an image's scripts and have no effect here"))
    for values, where in layers:
        for name, text in values.items():
            if name in known or is_family_name(name):
                given[name] = Given(text, where)
            else:
                notices.append(_unserved(name, where, names))
    _listen_as_advertised(given, notices)
    if read_file is not None and (file := given.get(LOGIN_CONFIG)) is not None and file.text.strip():
        _take_login_config(given, file, read_file)
    return given, notices


def _listen_as_advertised(given: dict[str, Given], notices: list[Notice]) -> None:
    """Takes the ports of `advertised.listeners` when `listeners` is not set, as files for Confluent's image expect."""
    advertised = given.get("advertised.listeners")
    if advertised is None or "listeners" in given or not advertised.text.strip():
        return
    entries = [entry.strip() for entry in advertised.text.split(",")]
    text = ",".join(f"{entry.partition('://')[0]}://:{entry.rpartition(':')[2]}" for entry in entries)
    given["listeners"] = Given(text, advertised.where)
    notice = f"{advertised.where}: listeners is not set, so the broker listens on the ports of advertised.listeners: {text}"
    notices.append(Notice(False, notice))


def _take_login_config(given: dict[str, Given], file: Given, read_file: ReadFile) -> None:
    """Adds the logins in the JAAS file that are not set otherwise. Raises `ConfigError`."""
    path = file.text.strip()
    try:
        sections = parse_jaas_file(read_file(path))
        if "zookeeper.connect" in given and "ottla.zookeeper.sasl" not in given and (login := zookeeper_login(sections)) is not None:
            given["ottla.zookeeper.sasl"] = Given(login, path)
        listeners = given["listeners"].text.split(",") if "listeners" in given else ()
        for listener in (entry.partition("://")[0].strip().lower() for entry in listeners):
            for mechanism, line in listener_lines(sections, listener).items():
                names = listener_names(listener, "sasl.jaas.config", mechanism)
                if not any(name in given for name in names):
                    given[names[0]] = Given(line, path)
    except OSError as error:
        raise ConfigError(f"{LOGIN_CONFIG}: cannot read {path}: {error.strerror} ({file.where})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{LOGIN_CONFIG}: cannot read {path}: it is not UTF-8 text ({file.where})") from None
    except SettingError as error:
        raise ConfigError(f"{LOGIN_CONFIG}: {path}: {error}") from None


def _unserved(name: str, where: str, names: Sequence[str]) -> Notice:
    from ottla.base.settings.known import GUARDS_OF_IMAGES, REFUSED_ENDINGS, is_known_to_kafka

    if name.endswith(REFUSED_ENDINGS):
        raise ConfigError(f"{where}: {name} is not served, and without it clients would be let in unchecked; remove it")
    if name in GUARDS_OF_IMAGES:
        return Notice(True, f"{where}: {name} is not served by this version: access is NOT restricted by it")
    if is_known_to_kafka(name):
        return Notice(False, f"{where}: {name} is known to Kafka and has no effect here")
    likely = sources.nearest(name, names)
    return Notice(True, f"{where}: unknown setting {name}" + (f"; did you mean {likely}?" if likely else ""))
