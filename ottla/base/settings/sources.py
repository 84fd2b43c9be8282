"""Parses the sources of values (`.properties` text, TOML text, the environment, `key=value` arguments) into mappings of names to texts.

Properties follow Java's rules: `=`, `:` or a blank ends the key, a backslash escapes (also a `u` and four hex digits) and continues a line,
and a line that begins with `#` or `!` is a comment. TOML may be flat or nested: `[log.retention] ms = 1` is `log.retention.ms`. The
environment follows Apache's image: `KAFKA_` and the key in capitals, `_` for a dot, `__` for an underscore, `___` for a dash. Compose files
for Bitnami's image have the prefix `KAFKA_CFG_`, which is accepted too. `CLUSTER_ID` or `KAFKA_KRAFT_CLUSTER_ID` sets `ottla.cluster.id`,
and `KAFKA_OPTS` may have the path of a JAAS file. A text that cannot be parsed raises `SettingError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.base.settings.jaas_file import LOGIN_CONFIG, login_config_in
from ottla.base.settings.setting import SettingError

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
ENVIRONMENT_PREFIX = "KAFKA_"
ENVIRONMENT_PREFIX_OF_BITNAMI = "KAFKA_CFG_"
ENVIRONMENT_CLUSTER_ID = ("CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID")
ENVIRONMENT_SILENT = ("KAFKA_BOOTSTRAP_SERVERS",)
ENVIRONMENT_SKIPPED = ("KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_VERSION", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_HOME")
ENVIRONMENT_SKIPPED_PREFIXES = ("KAFKA_JMX_", "KAFKA_LOG4J_", "KAFKA_TOOLS_LOG4J_", "KAFKA_SERVICE_", "KAFKA_PORT_")
"""Prefixes of variables that have no effect. Kubernetes sets the last two for a service with the name kafka."""
ENVIRONMENT_OF_SCRIPTS = (
    "KAFKA_CERTIFICATE_PASSWORD", "KAFKA_DEBUG", "KAFKA_ENABLE_KRAFT", "KAFKA_EXTRA_FLAGS", "KAFKA_INITIAL_CONTROLLERS", "KAFKA_TLS_TYPE",
    "KAFKA_VOLUME_DIR", "KAFKA_MOUNTED_CONF_DIR", "KAFKA_BASE_DIR", "KAFKA_ZOOKEEPER_PROTOCOL", "KAFKA_SKIP_KRAFT_STORAGE_INIT",
)  # fmt: skip
"""Variables for the scripts of container images. They have no effect here."""


def parse_properties(text: str) -> dict[str, str]:
    values = {}
    for line in _logical_lines(text):
        end = _end_of_key(line)
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        name = _unescape(line[:end], "a name")
        values[name] = _unescape(rest, f"the value of {name}")
    return values


def parse_toml(text: str) -> dict[str, str]:
    import tomllib

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"not valid TOML: {error}") from None
    values: dict[str, str] = {}
    _flatten(tree, "", values)
    return values


def parse_file(text: str, name: str) -> dict[str, str]:
    """Parses a file by the ending of its name: `.toml`, else properties."""
    return parse_toml(text) if name.endswith(".toml") else parse_properties(text)


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    values = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"{assignment!r} is not of the form key=value")
        values[name.strip()] = value
    return values


def parse_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Returns the settings in the environment, and the names of skipped variables (for a JVM or an image's scripts, or set by
    Kubernetes)."""
    values, skipped = {}, []
    for variable in sorted(environment):
        if variable in ENVIRONMENT_CLUSTER_ID:
            values["ottla.cluster.id"] = environment[variable]
        elif not variable.startswith(ENVIRONMENT_PREFIX) or variable in ENVIRONMENT_SILENT:
            continue
        elif variable == "KAFKA_OPTS" and (file := login_config_in(environment[variable])) is not None:
            values[LOGIN_CONFIG] = file
        elif _is_skipped(variable, environment[variable]):
            skipped.append(variable)
        else:
            values[environment_key(variable)] = environment[variable]
    return values, skipped


def _is_skipped(variable: str, text: str) -> bool:
    if variable == "KAFKA_PORT":
        return "://" in text
    names = (*ENVIRONMENT_SKIPPED, *ENVIRONMENT_OF_SCRIPTS)
    return variable in names or variable.startswith(ENVIRONMENT_SKIPPED_PREFIXES)


def environment_key(variable: str) -> str:
    """Returns the name of the setting in a variable: `log.retention.ms` for `KAFKA_LOG_RETENTION_MS`. One, two or three underscores mean a
    dot, an underscore or a dash.
    """
    name = variable.removeprefix(ENVIRONMENT_PREFIX_OF_BITNAMI).removeprefix(ENVIRONMENT_PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Returns the known name that is most similar to a mistyped one, or None."""
    import difflib

    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    return matches[0] if matches else None


def _flatten(tree: Mapping[str, Any], prefix: str, values: dict[str, str]) -> None:
    for key, value in tree.items():
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{key}.", values)
        elif isinstance(value, list):
            values[prefix + key] = ",".join(str(part) for part in value)
        elif isinstance(value, bool):
            values[prefix + key] = "true" if value else "false"
        else:
            values[prefix + key] = str(value)


def _logical_lines(text: str) -> Iterable[str]:
    """Yields lines without leading blanks, joined where a line continues. Skips comments and empty lines."""
    pending: str | None = None
    for physical in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = physical.lstrip(" \t\f")
        if pending is None:
            if not line or line[0] in "#!":
                continue
        else:
            line = pending + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
        else:
            yield line
            pending = None
    if pending is not None:
        yield pending


def _end_of_key(line: str) -> int:
    is_escaped = False
    for index, character in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character in "=: \t\f":
            return index
    return len(line)


def _unescape(text: str, what: str) -> str:
    """Replaces the escapes in a text. The error names `what` and does not show the text, which may be a secret."""
    if "\\" not in text:
        return text
    parts: list[str] = []
    index = 0
    while index < len(text):
        character = text[index]
        index += 1
        if character != "\\":
            parts.append(character)
            continue
        escape = text[index : index + 1]
        index += 1
        if escape == "u":
            digits = text[index : index + 4]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise SettingError(f"malformed \\u escape in {what}: expected four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            index += 4
        else:
            parts.append(ESCAPES.get(escape, escape))
    try:
        # A character outside of the basic plane is written as two escapes, its surrogates.
        return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise SettingError(f"malformed \\u escape in {what}: a surrogate without its pair") from None
