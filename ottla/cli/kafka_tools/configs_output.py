"""Prints the lines of `kafka-configs --describe`."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.errors import ApiError
from ottla.cli.cluster.config import ConfigRow, EntityConfigs
from ottla.cli.cluster.config_entities import Described, QuotaRow
from ottla.cli.output import write
from ottla.cli.records.record_numbers import java_decimal
from ottla.cli.render.kafka import Printers, print_nothing
from ottla.client.blocking import scram_admin
from ottla.client.core import quota_admin

_NOUNS = {quota_admin.USER: "user-principal", quota_admin.CLIENT_ID: "client-id", quota_admin.IP: "ip"}


def _show_entity(found: EntityConfigs) -> None:
    noun = found.word.removesuffix("s")
    whose = f"{noun} {found.entity}" if found.entity else f"{noun}s in the cluster"
    adjective = "All" if found.is_all else "Dynamic" if found.entity else "Default"
    write(f"{adjective} configs for {whose} are:\n")
    for row in found.rows:
        synonyms = ", ".join(f"{one['source']}:{one['key']}={one['value']}" for one in row.synonyms)
        value = "null" if row.value is None else row.value
        write(f"  {row.key}={value} sensitive={str(row.sensitive).lower()} synonyms={{{synonyms}}}\n")


def _show_quotas(found: Described) -> None:
    write("".join(_quotas(dict(entity), quotas) for entity, quotas in found.quotas.items()))
    write("".join(_credentials(user, credentials) for user, credentials in found.credentials.items()))


def _quotas(entity: Mapping[str, str | None], quotas: Mapping[str, float]) -> str:
    named = [(noun, entity[kind]) for kind, noun in _NOUNS.items() if kind in entity]
    whose = [f"the default {noun}" if name is None else f"{noun} '{name}'" for noun, name in named]
    found = ", ".join(f"{key}={java_decimal(value)}" for key, value in sorted(quotas.items()))
    return f"Quota configs for {', '.join(whose)} are {found}\n"


def _credentials(user: str, found: list[scram_admin.Credential] | ApiError) -> str:
    if isinstance(found, ApiError):
        return f"Error retrieving SCRAM credential configs for user-principal '{user}': {found.code.name}: {found.message}\n"
    texts = ", ".join(f"{scram.mechanism}=iterations={scram.iterations}" for scram in found)
    return f"SCRAM credential configs for user-principal '{user}' are {texts}\n"


PRINTERS: Printers = {EntityConfigs: _show_entity, Described: _show_quotas, ConfigRow: print_nothing, QuotaRow: print_nothing}
