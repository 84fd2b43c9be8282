"""AlterClientQuotas: set and remove quotas.

Behaviour: sets or removes quotas of users, of client ids, of pairs of both, or of addresses. Each entry has its own result. A null name
means the default entity. If several entries have the same entity, all of them except the first get INVALID_REQUEST. An entry with more
than `TYPES_MAX` parts, or with a part or a quota twice, gets it too.

Version notes: KIP-546, addresses by KIP-612. 1 is flexible.
"""

from __future__ import annotations

from ottla.base.cluster_metadata import QuotaEntity
from ottla.base.errors import ErrorCode, shortened
from ottla.controller.api import QuotaRequest, QuotaResult
from ottla.handlers.context import Broker, Pending, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    EntryData,
)

TYPES_MAX = 3
"""Maximum number of parts of an entity: user, client id, address. An answer repeats at most this many parts of an invalid entity."""


def handle(broker: Broker, request: RequestContext, body: AlterClientQuotasRequest) -> AlterClientQuotasResponse | Pending:
    if not is_allowed_on_cluster(broker, request, AclOperation.ALTER_CONFIGS):
        return AlterClientQuotasResponse(entries=[_answer(entry, ErrorCode.CLUSTER_AUTHORIZATION_FAILED) for entry in body.entries])
    wanted: dict[int, QuotaRequest] = {}
    repeated: dict[int, None] = {}
    entities: dict[QuotaEntity, None] = {}
    for index, entry in enumerate(body.entries):
        request_of_entry = _wanted(entry)
        if request_of_entry is None or request_of_entry.entity in entities:
            repeated[index] = None
        else:
            entities[request_of_entry.entity] = None
            wanted[index] = request_of_entry
    pending = Pending()

    def altered(results: list[QuotaResult]) -> None:
        by_index = dict(zip(wanted, results, strict=True))
        answers = [
            _answer(entry, ErrorCode.INVALID_REQUEST, _repeated(entry))
            if index in repeated
            else _answer(entry, by_index[index].error, by_index[index].message or None)
            for index, entry in enumerate(body.entries)
        ]
        pending.complete(AlterClientQuotasResponse(entries=answers))

    broker.controller.alter_quotas(list(wanted.values()), body.validate_only, altered)
    return pending


def _wanted(entry: EntryData) -> QuotaRequest | None:
    """Converts an entry. Returns None if it has a type or a quota twice, or too many types."""
    if len(entry.entity) > TYPES_MAX:
        return None
    parts = {part.entity_type: part.entity_name for part in entry.entity}
    if len(parts) != len(entry.entity):
        return None
    values = {operation.key: None if operation.remove else operation.value for operation in entry.ops}
    if len(values) != len(entry.ops):
        return None
    return QuotaRequest(entity=tuple((kind, parts[kind]) for kind in sorted(parts)), values=values)


def _repeated(entry: EntryData) -> str:
    """Returns Kafka's message for an entity, a type or a quota that occurs more than once."""
    parts = [f"{part.entity_type}={'null' if part.entity_name is None else part.entity_name}" for part in entry.entity[:TYPES_MAX]]
    return shortened(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{', '.join(parts)}}})")


def _answer(entry: EntryData, code: ErrorCode, message: str | None = None) -> AlterClientQuotasResponseEntryData:
    entity = [EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity[:TYPES_MAX]]
    return AlterClientQuotasResponseEntryData(error_code=code, error_message=message, entity=entity)
