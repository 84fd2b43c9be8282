"""Pages about quotas of users, client ids and addresses: a list in readable units, and forms that set and remove quotas."""

from __future__ import annotations

import json
import math

from ottla.base.errors import ApiError, ErrorCode
from ottla.client.core import quota_admin
from ottla.client.core.quota_admin import ANY, CLIENT_ID, IP, USER, Entity
from ottla.console.model import Done, Field, Form, Note, Page, PageError, Table, columns, number, size
from ottla.console.visit import Visit, action, page

DEFAULT = "<default>"
"""The name of the quota for all entities without a quota of their own, as in Kafka's tools."""
TYPES = ((USER,), (CLIENT_ID,), (USER, CLIENT_ID), (IP,))
KEYS = {
    "producer_byte_rate": "bytes a second that are produced", "consumer_byte_rate": "bytes a second that are fetched",
    "request_percentage": "percent of one thread's time", "controller_mutation_rate": "partitions created or deleted a second",
    "connection_creation_rate": "new connections a second",
}  # fmt: skip
FIELDS = {"user": USER, "client": CLIENT_ID, "ip": IP}


def _readable(key: str, value: float) -> str:
    if key.endswith("byte_rate"):
        return f"{size(value)}/s"
    return f"{number(value, 1)} %" if key == "request_percentage" else f"{number(value, 1)} a second"


def _all_quotas(visit: Visit) -> dict[Entity, dict[str, float]]:
    found: dict[Entity, dict[str, float]] = {}
    for kinds in TYPES:
        found.update(quota_admin.describe_quotas(visit.cluster, [(kind, ANY, None) for kind in kinds]))
    return found


def _name(entity: Entity, kind: str) -> str | None:
    names = dict(entity)
    return (names[kind] or DEFAULT) if kind in names else None


@page("/quotas", "The quotas of users, client ids and addresses", name="Quotas", section="Access")
def quotas(visit: Visit) -> Page:
    notes, found = [], dict[Entity, dict[str, float]]()
    try:
        found = _all_quotas(visit)
    except ApiError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        notes.append(Note("The quotas are not shown: this needs DescribeConfigs on the cluster.", "warn"))
    rows, choices = [], []
    for entity, values in sorted(found.items(), key=lambda pair: [(kind, name or "") for kind, name in pair[0]]):
        for key, value in sorted(values.items()):
            shown = _readable(key, value)
            rows.append({
                **{field: _name(entity, kind) for field, kind in FIELDS.items()}, "quota": key, "value": value, "readable": shown,
            })  # fmt: skip
            choices.append((_id(entity, key), f"{_text(entity)}: {key} ({shown})"))
    titles = columns(user="User", client="Client id", ip="Address", quota="Quota", value="Value", readable="Readable")
    forms = [_set_form()]
    if choices:
        forms.append(Form("/do/quotas/remove", "Remove a quota", "Remove the quota", [Field("which", "Quota", choices=choices)],
                          "The entity then has the next quota that applies to it, or none."))  # fmt: skip
    return Page("Quotas", tables=[Table("quotas", "Quotas", titles, rows, "There are no quotas.")], forms=forms, notes=notes)


def _id(entity: Entity, key: str) -> str:
    """Returns a quota as the value of a form's field. Brokers send the parts of an entity in any order."""
    return json.dumps([sorted(entity, key=lambda part: part[0]), key])


def _text(entity: Entity) -> str:
    return ", ".join(f"{kind} {name or DEFAULT}" for kind, name in entity)


def _set_form() -> Form:
    keys = [(key, f"{key}: {meaning}") for key, meaning in KEYS.items()]
    return Form("/do/quotas/set", "Set a quota", "Set the quota", [
        Field("user", f"User ({DEFAULT}: all without a quota of their own)"), Field("client", f"Client id (or {DEFAULT})"),
        Field("ip", f"Address (or {DEFAULT}); only for connections"), Field("key", "Quota", choices=keys),
        Field("value", "Value on each broker (10M and 500k are understood)", is_needed=True),
    ], "Applies at once to all connections of the entity, on each broker by itself.")  # fmt: skip


def _amount(text: str) -> float:
    scale = {"k": 1e3, "m": 1e6, "g": 1e9}.get(text[-1:].lower(), 1.0)
    try:
        value = float(text[:-1] if scale != 1.0 else text) * scale
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise PageError(f"A quota is a number above 0, not {text[:40]!r}; nothing was done.")
    return value


@action("/quotas/set")
def set_quota(visit: Visit) -> Done:
    given = [(kind, visit.form.get(field, "").strip()) for field, kind in FIELDS.items()]
    entity = tuple((kind, None if name == DEFAULT else name) for kind, name in given if name)
    if not entity:
        raise PageError("Name a user, a client id or an address; nothing was done.")
    key, value = visit.field("key"), _amount(visit.field("value"))
    remark = quota_admin.alter_quotas(visit.cluster, entity, changes={key: value})
    return Done(f"{_text(entity)}: {key} is {_readable(key, value)}.{f' {remark}' if remark else ''}", "/quotas")


@action("/quotas/remove")
def remove(visit: Visit) -> Done:
    wanted = visit.field("which")
    for entity, values in _all_quotas(visit).items():
        for key in values:
            if _id(entity, key) == wanted:
                quota_admin.alter_quotas(visit.cluster, entity, changes={}, deletions=[key])
                return Done(f"{_text(entity)}: {key} was removed.", "/quotas")
    raise PageError("There is no such quota any more; nothing was done.", 404)
