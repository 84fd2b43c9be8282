"""AlterClientQuotas: set or remove quotas."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, f64, i16, i32, string


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=True)


class OpData(Struct):
    key: str = string()
    value: float = f64()
    remove: bool = boolean()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Request):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class AlterClientQuotasResponseEntryData(Struct):
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Response):
    throttle_time_ms: int = i32()
    entries: list[AlterClientQuotasResponseEntryData] = array(AlterClientQuotasResponseEntryData)
