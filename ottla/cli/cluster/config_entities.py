"""The options that name the entities of `ottla config`, as in `kafka-configs`: parses them into types and names.

A user and a client id may be combined; every other type is given alone. The first `--entity-name` or `--entity-default` belongs to the
first `--entity-type`, the second to the second. A type without a name means all its entities. The default entity of a type has the name "".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.cli.command import Args, UsageError, option
from ottla.client.core import admin

RESOURCES = {
    "topics": admin.TOPIC_RESOURCE,
    "brokers": admin.BROKER_RESOURCE,
    "broker-loggers": admin.BROKER_LOGGER_RESOURCE,
    "client-metrics": admin.CLIENT_METRICS_RESOURCE,
    "groups": admin.GROUP_RESOURCE,
}
QUOTA_TYPES = ("clients", "users", "ips")
ENTITY_TYPES = (*RESOURCES, *QUOTA_TYPES)
WITH_DEFAULTS = ("brokers", *QUOTA_TYPES)
"""Types with a default entity, which options such as `--user-defaults` name."""

_ADDRESS = re.compile(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")


class Entities(NamedTuple):
    """Pairs of type and name. The name is "" for the default entity, None for all entities of the type."""

    parts: tuple[tuple[str, str | None], ...]

    @property
    def has_quotas(self) -> bool:
        return self.parts[0][0] in QUOTA_TYPES

    @property
    def is_named(self) -> bool:
        return all(name is not None for _, name in self.parts)


def _flag(word: str) -> str:
    return f"--{word if word == 'client-metrics' else word.removesuffix('s')}"


ENTITY_OPTIONS = (
    option("--entity-type", action="append", choices=ENTITY_TYPES, metavar="TYPE", help="|".join(ENTITY_TYPES)),
    option("--entity-name", dest="entity_names", action="append", metavar="NAME", help="name of the entity"),
    option("--entity-default", dest="entity_names", action="append_const", const="", help="the default of all of that type"),
    *(
        option(_flag(word), dest=f"of_{word}", metavar="NAME", help=f"short for --entity-type {word} --entity-name NAME")
        for word in ENTITY_TYPES
    ),
    *(
        option(
            f"{_flag(word)}-defaults",
            dest=f"of_{word}",
            action="store_const",
            const="",
            help=f"short for --entity-type {word} --entity-default",
        )
        for word in WITH_DEFAULTS
    ),
)


def entities_of(args: Args) -> Entities:
    """Returns the entities that the options name. Raises `UsageError` if there are none, for a bad name, and for a bad combination."""
    given = [(word, getattr(args, f"of_{word}")) for word in ENTITY_TYPES]
    short = [(word, name) for word, name in given if name] + [(word, name) for word, name in given if name == ""]
    types, names = args.entity_type or [], args.entity_names or []
    if short and (types or names):
        raise UsageError("--entity-type, --entity-name and --entity-default do not go with --user, --topic and so on")
    if len(names) > len(types):
        raise UsageError("more entity names than entity types" if types else "a name needs its --entity-type")
    parts = short or [(word, names[number] if number < len(names) else None) for number, word in enumerate(types)]
    words = [word for word, _ in parts]
    if not parts:
        raise UsageError("name an entity: --topic NAME, --broker ID, or --entity-type TYPE --entity-name NAME")
    if len(words) > 1 and sorted(words) != ["clients", "users"]:
        raise UsageError(f"{' and '.join(words)} cannot be combined; only users and clients can")
    for word, name in parts:
        _check_name(word, name)
    return Entities(tuple(parts))


def _check_name(word: str, name: str | None) -> None:
    if not name:
        if name == "" and word not in WITH_DEFAULTS:
            raise UsageError(f"there is no default of {word}")
        return
    if word in ("brokers", "broker-loggers") and not (name.isascii() and name.isdigit()):
        raise UsageError(f"a broker is named by its id, not {name!r}")
    if word == "ips" and not _ADDRESS.fullmatch(name):
        raise UsageError(f"{name!r} is neither an address nor a host name")
