"""Converts records of `__consumer_offsets`, `__transaction_state` and `__share_group_state` to JSON in the form of Kafka's dump tool.

A key begins with an int16 that is its record type, a value with an int16 that is its version. Names are in Kafka's camelCase. Fields that
the version lacks, and tagged fields with their default value, are omitted. A record of an unknown type or version has `unknown` instead of
fields. `decode_record` shows a record with malformed bytes as text.
"""

from __future__ import annotations

import base64
import importlib
import json
from collections.abc import Container
from functools import cache
from typing import Any

from ottla.base.errors import WireError
from ottla.base.uuids import uuid_to_text
from ottla.wire.codec import decoder
from ottla.wire.records import Record
from ottla.wire.schema import Field, Message, RecordKey, RecordValue, Struct

_MODULES = {
    "offsets": ("group_records", "share_group_records", "streams_group_records"),
    "transactions": ("transaction_records",),
    "shares": ("share_state_records",),
}


def decode_record(record: Record, kind: str) -> tuple[str | None, str | None]:
    """Returns key and value as they are printed. `kind` is a key of `_MODULES`, or empty for plain text. A null value of
    a known record type is `<DELETE>`, other nulls are None.
    """
    if kind and record.key is not None and len(record.key) >= 2:
        try:
            return _decode(record.key, record.value, kind)
        except WireError:
            pass
    return _text(record.key), _text(record.value)


def message_json(record: Record, kind: str, types: Container[int]) -> str | None:
    """Returns a record as the formatters of Kafka's console consumer print it. Returns None for a record without a
    known type in `types`, and for malformed bytes. An unknown version of the value has the data `unknown`."""
    key, value = record.key, record.value
    if key is None or len(key) < 2 or (number := int.from_bytes(key[:2], "big", signed=True)) not in types:
        return None
    classes = _classes(kind).get(number)
    if classes is None:
        return None
    try:
        shown: dict[str, Any] = {"key": {"type": number, "data": struct_object(decoder(classes[0], 0)(key, 2)[0], 0)}, "value": None}
        if value is not None:
            version, decoded = _decoded(classes[1], value)
            shown["value"] = {"version": version, "data": "unknown" if decoded is None else struct_object(decoded, version)}
    except WireError:
        return None
    return _json(shown)


def _decoded(cls: type[Message], value: bytes) -> tuple[int, Struct | None]:
    """Returns the version of a record's value and its fields; None for an unknown version."""
    version = int.from_bytes(value[:2], "big", signed=True)
    is_known = len(value) >= 2 and cls.VERSIONS[0] <= version <= cls.VERSIONS[1]
    return version, decoder(cls, version)(value, 2)[0] if is_known else None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _decode(key: bytes, value: bytes | None, kind: str) -> tuple[str, str | None]:
    number = int.from_bytes(key[:2], "big", signed=True)
    classes = _classes(kind).get(number)
    if classes is None:
        return _json({"type": str(number), "data": "unknown"}), _text(value)
    shown_key = _json({"type": str(number), "data": struct_object(decoder(classes[0], 0)(key, 2)[0], 0)})
    if value is None:
        return shown_key, "<DELETE>"
    version, decoded = _decoded(classes[1], value)
    if decoded is None:
        return shown_key, _json({"version": str(version), "data": "unknown"})
    tree = struct_object(decoded, version)
    if type(decoded).__name__ == "GroupMetadataValue" and tree.get("protocolType") == "consumer":
        _explain_members(decoded, tree)
    return shown_key, _json({"version": str(version), "data": tree})


@cache
def _classes(kind: str) -> dict[int, tuple[type[RecordKey], type[RecordValue]]]:
    """Returns the classes of key and value by record type."""
    keys: dict[int, type[RecordKey]] = {}
    values: dict[int, type[RecordValue]] = {}
    for name in _MODULES[kind]:
        module = importlib.import_module(f"ottla.wire.messages.{name}")
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, RecordKey) and found is not RecordKey:
                keys[found.API_KEY] = found
            elif isinstance(found, type) and issubclass(found, RecordValue) and found is not RecordValue:
                values[found.API_KEY] = found
    return {number: (keys[number], values[number]) for number in keys if number in values}


def struct_object(struct: Struct, version: int) -> dict[str, Any]:
    """Converts a decoded struct to an object in Kafka's JSON form: UUIDs as text, bytes in base64."""
    tree = {}
    for field in type(struct).__fields__:
        value = getattr(struct, field.name)
        if not field.is_in(version) or (field.is_tagged(version) and value == field.default):
            continue
        tree[camel(field.name)] = _value(field, value, version)
    return tree


def _value(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "array":
        return [_value(field.element, element, version) for element in value]
    if field.kind == "nested":
        return struct_object(value, version)
    if field.kind == "uuid":
        return uuid_to_text(value)
    if field.kind in ("octets", "records"):
        return base64.b64encode(bytes(value)).decode()
    return value


def _explain_members(decoded: Any, tree: dict[str, Any]) -> None:
    """Replaces the bytes of each member's subscription and assignment in `tree` by their fields, where they can be decoded."""
    from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

    for member, shown in zip(decoded.members, tree["members"], strict=True):
        for name, cls in (("subscription", ConsumerProtocolSubscription), ("assignment", ConsumerProtocolAssignment)):
            explained = _embedded(cls, bytes(getattr(member, name)))
            if explained is not None:
                shown[name] = explained


_CONTROL_RECORDS = {
    2: ("LeaderChange", "LeaderChangeMessage"),
    3: ("SnapshotHeader", "SnapshotHeaderRecord"),
    4: ("SnapshotFooter", "SnapshotFooterRecord"),
    5: ("KRaftVersion", "KRaftVersionRecord"),
    6: ("KRaftVoters", "VotersRecord"),
}


def decode_control(kind: int, value: bytes) -> tuple[str, str] | None:
    """Returns the name and the JSON of a control record of Kafka's metadata log. Returns None if the record is unknown or cannot be
    decoded.
    """
    if kind not in _CONTROL_RECORDS or len(value) < 2:
        return None
    name, class_name = _CONTROL_RECORDS[kind]
    cls: type[Message] = getattr(importlib.import_module("ottla.wire.messages.control_records"), class_name)
    version = min(int.from_bytes(value[:2], "big"), cls.VERSIONS[1])
    try:
        return name, _json(struct_object(decoder(cls, version)(value, 0)[0], version))
    except WireError:
        return None


def _embedded(cls: type[Message], data: bytes) -> dict[str, Any] | None:
    if len(data) < 2:
        return None
    version = min(int.from_bytes(data[:2], "big", signed=True), cls.VERSIONS[1])
    if version < cls.VERSIONS[0]:
        return None
    try:
        return struct_object(decoder(cls, version)(data, 2)[0], version)
    except WireError:
        return None


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
