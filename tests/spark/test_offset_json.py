"""Offsets as JSON: round trips, and other sources' offsets, which are not taken for ours."""

from __future__ import annotations

import json

import pytest

from ottla.client import TopicPartition
from ottla.spark.offset_json import read_offsets, write_offsets


def test_offsets_round_trip_as_a_dict_and_as_text() -> None:
    offsets = {TopicPartition("b", 0): 7, TopicPartition("a", 10): 2**40, TopicPartition("a", 9): 0}
    written = write_offsets("g", offsets)
    assert written == {"group": "g", "offsets": {"a": {"9": 0, "10": 2**40}, "b": {"0": 7}}}
    assert read_offsets(written) == read_offsets(json.dumps(written)) == ("g", offsets)
    assert read_offsets(write_offsets("g", {})) == ("g", {})


@pytest.mark.parametrize(
    "line",
    ["5", '{"t":{"0":5}}', '{"logOffset":0}', "-", "", "null", "[]", '{"group":"g","offsets":5}', '{"group":"g","offsets":{"t":{"x":1}}}'],
)
def test_the_offset_of_another_source_is_none(line: str) -> None:
    assert read_offsets(line) is None
