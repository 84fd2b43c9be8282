"""The coordinator that wrote an offset applies the record as one that reads it from the log."""

from __future__ import annotations

import pytest

from ottla.groups import records
from ottla.groups.offsets.store import CommittedOffset

TOPIC_ID = b"0123456789abcdef"


@pytest.mark.parametrize(
    "committed",
    [
        CommittedOffset(7, -1, "", 5),
        CommittedOffset(7, 3, "metadata", 5, topic_id=TOPIC_ID),
        CommittedOffset(7, 3, "metadata", 5, 9),
    ],
)
def test_a_written_offset_has_the_key_and_value_that_a_reader_decodes(committed: CommittedOffset) -> None:
    record = records.offset_commit("g", "t", 1, committed)
    key = records.read_key(record.key)
    assert key is not None and record.value is not None
    value = records.read_value(key, record.value)
    if type(record) is records.OffsetCommitRecord:
        assert (record.decoded_key, record.decoded_value) == (key, value)
    else:  # an old client has set an expiry time; that version of the record has no leader epoch
        assert (value.offset, value.expire_timestamp, value.leader_epoch) == (7, 9, -1)  # type: ignore[attr-defined]
