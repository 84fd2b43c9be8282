"""Parses the entities of `ottla config`, and reads and changes the quotas and SCRAM credentials of users, clients and ips, which have no
settings.

The options name entities as in `kafka-configs`. A user and a client id may be combined; every other type is given alone. The first
`--entity-name` or `--entity-default` belongs to the first `--entity-type`, the second to the second. A type without a name means all its
entities. The default entity of a type has the name "". One command changes either quotas (DescribeClientQuotas, AlterClientQuotas) or
credentials (the two APIs of KIP-554), because the broker would not apply both as one change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import Args, UsageError, option
from ottla.cli.records.record_numbers import java_decimal
from ottla.cli.render.ottla import Output, Row, column, json_only
from ottla.client.blocking import scram_admin
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.core import admin, quota_admin

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


KINDS = {"users": quota_admin.USER, "clients": quota_admin.CLIENT_ID, "ips": quota_admin.IP}
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
QUOTAS_OF_IP = ("connection_creation_rate",)
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]+),)?password=(.+)", re.DOTALL)


class QuotaRow(Row):
    """A quota of an entity, or a SCRAM credential of a user."""

    entity_type: str = column("TYPE")
    entity_name: str = column("NAME")
    key: str
    value: str
    entity: dict[str, str | None] = json_only()


class Described(NamedTuple):
    """Quotas and credentials. Kafka's tool prints them (`kafka_tools/configs_output.py`)."""

    quotas: Mapping[quota_admin.Entity, Mapping[str, float]]
    credentials: Mapping[str, list[scram_admin.Credential] | ApiError]


def describe_quotas(cluster: Cluster, output: Output, entities: Entities) -> None:
    quotas = quota_admin.describe_quotas(cluster, [_filter(KINDS[word], name) for word, name in entities.parts])
    credentials = _credentials(cluster, entities)
    words = {kind: word for word, kind in KINDS.items()}
    rows = [
        _row([(words[kind], name) for kind, name in entity], key, java_decimal(value))
        for entity, found in sorted(quotas.items(), key=lambda pair: [(kind, name or "") for kind, name in pair[0]])
        for key, value in sorted(found.items())
    ]
    output.report(Described(quotas, credentials))
    for user, scram in sorted(credentials.items()):
        if isinstance(scram, ApiError):
            output.refused(scram)
        else:
            rows += [_row([("users", user)], found.mechanism, f"iterations={found.iterations}") for found in scram]
    output.rows("configs", QuotaRow, rows)


def _filter(kind: str, name: str | None) -> tuple[str, int, str | None]:
    if name is None:
        return kind, quota_admin.ANY, None
    return (kind, quota_admin.EXACT, name) if name else (kind, quota_admin.DEFAULT, None)


def _credentials(cluster: Cluster, entities: Entities) -> dict[str, Any]:
    """Returns the credentials, or the error, of the named user or of all users. Omits a user without credentials. The result is empty for
    other entities, and if the broker does not support SCRAM."""
    word, name = entities.parts[0]
    if word != "users" or len(entities.parts) > 1 or name == "":
        return {}
    try:
        found = scram_admin.describe_scram(cluster, [name] if name else [])
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return {}
    return {user: scram for user, scram in found.items() if getattr(scram, "code", None) is not ErrorCode.RESOURCE_NOT_FOUND}


def _row(entity: Sequence[tuple[str, str | None]], key: str, value: str) -> QuotaRow:
    words, names = ",".join(word for word, _ in entity), ",".join(name or "(default)" for _, name in entity)
    return QuotaRow(words, names, key, value, dict(entity))


def alter_quotas(args: Args, cluster: Cluster, entities: Entities, changes: Mapping[str, str], deletions: Sequence[str]) -> str | None:
    """Applies the changes, or validates them with `--dry-run`. Returns a remark of the broker about a quota, or None. Raises `UsageError`
    and `ApiError`."""
    named = [key for key in (*changes, *deletions) if key in scram_admin.MECHANISMS]
    if named and entities.parts[0][0] == "users" and len(entities.parts) == 1:
        passwords = _passwords(args, entities, changes, deletions, named)
        scram_admin.alter_scram(cluster, entities.parts[0][1] or "", passwords=passwords, deletions=deletions)
        return None
    known = QUOTAS_OF_IP if entities.parts[0][0] == "ips" else QUOTAS
    for key in (*changes, *deletions):
        if key not in known:
            raise UsageError(f"no quota {key!r}{nearest_hint(key, known) or '; there are ' + ', '.join(known)}")
    values = {key: _number(key, value) for key, value in changes.items()}
    entity = tuple((KINDS[word], name or None) for word, name in entities.parts)
    if deletions:
        _check_is_set(cluster, entities, deletions)
    return quota_admin.alter_quotas(cluster, entity, changes=values, deletions=deletions, validate_only=args.dry_run)


def _check_is_set(cluster: Cluster, entities: Entities, deletions: Sequence[str]) -> None:
    """Raises `ApiError` for the deletion of a quota that is not set. Most often the command names the wrong entity."""
    found = quota_admin.describe_quotas(cluster, [_filter(KINDS[word], name) for word, name in entities.parts])
    there = {key for quotas in found.values() for key in quotas}
    absent = [key for key in deletions if key not in there]
    if absent:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Invalid config(s): {','.join(absent)}; not set there")


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{key}={text} is not a number") from None
    if not math.isfinite(value) or value <= 0:
        raise UsageError(f"{key}={text} must be greater than 0")
    return value


def _passwords(
    args: Args, entities: Entities, changes: Mapping[str, str], deletions: Sequence[str], named: Sequence[str]
) -> dict[str, tuple[str, int]]:
    """Returns the new password and iterations by mechanism. Raises `UsageError` for `--dry-run`, for the default user, and for quotas in
    the same command."""
    others = [key for key in (*changes, *deletions) if key not in named]
    if others:
        raise UsageError(f"{others[0]} cannot be changed together with SCRAM credentials; change one after the other")
    if not entities.parts[0][1]:
        raise UsageError("there are no default SCRAM credentials; name a user")
    passwords = {mechanism: parse_credential(mechanism, text) for mechanism, text in changes.items()}
    if args.dry_run:
        raise UsageError("SCRAM credentials cannot be validated: the broker has no dry run for them")
    return passwords


def parse_credential(mechanism: str, text: str) -> tuple[str, int]:
    """Parses `[iterations=N,]password=...` into (password, iterations). Raises `UsageError`."""
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise UsageError(f"{mechanism} wants [iterations=N,password=...]")
    iterations = int(match[1]) if match[1] and match[1] != "-1" else scram_admin.ITERATIONS
    check_iterations(iterations)
    return match[2], iterations


def check_iterations(iterations: int) -> None:
    if not scram_admin.ITERATIONS_MIN <= iterations <= scram_admin.ITERATIONS_MAX:
        raise UsageError(f"iterations must be {scram_admin.ITERATIONS_MIN} to {scram_admin.ITERATIONS_MAX}, not {iterations}")
