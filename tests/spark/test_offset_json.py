"""Offsets as JSON: round trips, and other sources' offsets, which are not taken for ours."""

from __future__ import annotations

import json

import pytest

from ottla.client import TopicPartition
from ottla.spark.offset_json import StoredOffsets, read_offsets, write_offsets


def test_offsets_round_trip_as_a_dict_and_as_text() -> None:
    offsets = {TopicPartition("b", 0): 7, TopicPartition("a", 10): 2**40, TopicPartition("a", 9): 0}
    written = write_offsets("g", offsets)
    assert written == {"group": "g", "offsets": {"a": {"9": 0, "10": 2**40}, "b": {"0": 7}}}
    assert read_offsets(written) == read_offsets(json.dumps(written)) == StoredOffsets("g", offsets, {})
    assert read_offsets(write_offsets("g", {})) == StoredOffsets("g", {}, {})


def test_topic_ids_go_with_the_offsets_of_their_topics() -> None:
    written = write_offsets("g", {TopicPartition("a", 0): 7}, {"a": "q2bPEP9tQHe4bbvrJwmLLg", "not read": "x"})
    assert written == {"group": "g", "offsets": {"a": {"0": 7}}, "ids": {"a": "q2bPEP9tQHe4bbvrJwmLLg"}}
    assert read_offsets(json.dumps(written)) == StoredOffsets("g", {TopicPartition("a", 0): 7}, {"a": "q2bPEP9tQHe4bbvrJwmLLg"})


@pytest.mark.parametrize(
    "line",
    [
        "5", '{"t":{"0":5}}', '{"logOffset":0}', "-", "", "null", "[]", '{"group":"g","offsets":5}',
        '{"group":"g","offsets":{"t":{"x":1}}}', '{"group":"g","offsets":{},"ids":5}', '{"group":"g","offsets":{},"more":{}}',
    ],
)  # fmt: skip
def test_the_offset_of_another_source_is_none(line: str) -> None:
    assert read_offsets(line) is None
