"""DescribeClientQuotas: the quotas that match a filter of users, client ids and addresses."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, f64, i8, i16, i32, string


class ComponentData(Struct):
    entity_type: str = string()
    match_type: int = i8()
    match: str | None = string(nullable=True)


class DescribeClientQuotasRequest(Request):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=True)


class ValueData(Struct):
    key: str = string()
    value: float = f64()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)
    entries: list[EntryData] | None = array(EntryData, nullable=True)
