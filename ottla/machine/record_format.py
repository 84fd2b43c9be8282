"""The format of a coordinator's records: a key is an int16 for its kind, then its fields; a value is an int16 version, then its fields.

`wire/messages/*_records.py` declare the keys and values. Unknown records (another kind, a later version, damaged bytes) are read as None,
and coordinators skip them. An unknown record is no error, because a client could have written it.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Packer
from types import ModuleType
from typing import Any

from ottla.base.errors import WireError
from ottla.wire.codec import decoder, encoder
from ottla.wire.schema import RecordKey, RecordValue

_INT16 = Packer(">h")


def write_key(key: RecordKey) -> bytes:
    return _INT16.pack(key.API_KEY) + encoder(type(key), 0)(key)


def write_value(value: RecordValue, version: int) -> bytes:
    return _INT16.pack(version) + encoder(type(value), version)(value)


class RecordFormat:
    """Reads the records that are declared in some modules of `wire/messages`."""

    def __init__(self, *modules: ModuleType) -> None:
        declared: list[Any] = [found for module in modules for found in vars(module).values() if isinstance(found, type)]
        self._keys: Mapping[int, type[RecordKey]] = {cls.API_KEY: cls for cls in declared if _is_below(cls, RecordKey)}
        self._values: Mapping[int, type[RecordValue]] = {cls.API_KEY: cls for cls in declared if _is_below(cls, RecordValue)}

    def read_key(self, data: bytes) -> RecordKey | None:
        cls = self._keys.get(_INT16.unpack_from(data)[0]) if len(data) >= 2 else None
        if cls is None:
            return None
        try:
            key, end = decoder(cls, 0)(data, 2)
        except WireError:
            return None
        return key if end == len(data) else None

    def read_value(self, key: RecordKey, data: bytes) -> RecordValue | None:
        """Decodes the value of a record with this key, which `read_key` returned."""
        cls, version = self._values[key.API_KEY], _INT16.unpack_from(data)[0] if len(data) >= 2 else -1
        if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
            return None
        try:
            return decoder(cls, version)(data, 2)[0]
        except WireError:
            return None


def _is_below(cls: type, base: type) -> bool:
    return issubclass(cls, base) and cls is not base
