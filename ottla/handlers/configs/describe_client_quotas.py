"""DescribeClientQuotas: quotas that match a filter.

Behaviour: returns the entities that match the filter, with their quotas. A component of the filter matches one name of an entity type, the
default entity of a type, or every entity of a type including the default. An entity must match all components. `strict` excludes entities
that have further parts.

Version notes: KIP-546. 1 is flexible.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from ottla.base.cluster_metadata import QuotaEntity
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.loop.turns import pieces_of
from ottla.controller.configs import ENTITY_TYPES
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import require_on_cluster
from ottla.security.acl import AclOperation
from ottla.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, ANY = 0, 1, 2


def handle(
    broker: Broker, request: RequestContext, body: DescribeClientQuotasRequest
) -> Generator[None, None, DescribeClientQuotasResponse]:
    try:
        require_on_cluster(broker, request, AclOperation.DESCRIBE_CONFIGS)
        _check(body.components)
    except ApiError as refusal:
        return DescribeClientQuotasResponse(error_code=refusal.code, error_message=refusal.message, entries=None)
    entries: list[EntryData] = []
    for piece in pieces_of(broker.metadata.quotas.items()):
        entries += [_described(entity, quotas) for entity, quotas in piece if _matches(entity, body)]
        yield
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _described(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )


def _check(components: list[ComponentData]) -> None:
    kinds = [component.entity_type for component in components]
    for component in components:
        if component.entity_type not in ENTITY_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {component.entity_type}")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        if (component.match_type == EXACT) == (component.match is None):
            raise ApiError(ErrorCode.INVALID_REQUEST, "Request has a match for another match type than EXACT, or no match for EXACT.")
        if kinds.count(component.entity_type) > 1:
            message = f"Entity type {component.entity_type} cannot appear more than once in the filter."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if "ip" in kinds and len(kinds) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid entity filter component combination: ip cannot be combined with other types.")


def _matches(entity: QuotaEntity, body: DescribeClientQuotasRequest) -> bool:
    parts = dict(entity)
    for component in body.components:
        if component.entity_type not in parts:
            return False
        name = parts[component.entity_type]
        if (component.match_type == EXACT and name != component.match) or (component.match_type == DEFAULT and name is not None):
            return False
    return not body.strict or len(parts) == len(body.components)
