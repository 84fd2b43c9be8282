"""Which bytes are a known record of a coordinator, and which are skipped."""

from __future__ import annotations

import pytest

from ottla.machine.record_format import RecordFormat, write_key, write_value
from ottla.wire.messages import group_records, share_group_records
from ottla.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from ottla.wire.messages.share_group_records import ShareGroupMetadataKey, ShareGroupMetadataValue

FORMAT = RecordFormat(group_records, share_group_records)
KEY, VALUE = GroupMetadataKey(group="g"), GroupMetadataValue(protocol_type="consumer", generation=3)


@pytest.mark.parametrize(
    ("key", "value", "version"),
    [(KEY, VALUE, 0), (KEY, VALUE, 4), (ShareGroupMetadataKey(group_id="g"), ShareGroupMetadataValue(epoch=7), 0)],
)
def test_what_is_written_is_read(key: GroupMetadataKey, value: GroupMetadataValue, version: int) -> None:
    assert FORMAT.read_key(write_key(key)) == key
    assert FORMAT.read_value(key, write_value(value, version)) == value


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x63\0\1g", write_key(KEY)[:-1], write_key(KEY) + b"x"])
def test_unknown_and_damaged_keys_are_none(data: bytes) -> None:
    assert FORMAT.read_key(data) is None


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\5" + write_value(VALUE, 4)[2:], b"\xff\xff", write_value(VALUE, 3)[:-1]])
def test_damaged_values_and_later_versions_are_none(data: bytes) -> None:
    assert FORMAT.read_value(KEY, data) is None
