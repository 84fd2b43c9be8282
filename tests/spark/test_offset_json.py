"""Offsets can be encoded to JSON and decoded again, and the offsets of other sources are not mistaken for them."""

from __future__ import annotations

import json

import pytest

from ottla.client import TopicPartition
from ottla.spark.offset_json import StoredOffsets, read_offsets, write_offsets


def test_offsets_round_trip_as_a_dict_and_as_text() -> None:
    offsets = {TopicPartition("b", 0): 7, TopicPartition("a", 10): 2**40, TopicPartition("a", 9): 0}
    written = write_offsets("g", offsets)
    assert written == {"a": {"9": 0, "10": 2**40}, "b": {"0": 7}, "@ottla": {"group": "g"}}
    assert read_offsets(written) == read_offsets(json.dumps(written)) == StoredOffsets("g", offsets, {})
    assert read_offsets(write_offsets("g", {})) == StoredOffsets("g", {}, {})


def test_topic_ids_go_with_the_offsets_of_their_topics() -> None:
    written = write_offsets("g", {TopicPartition("a", 0): 7}, {"a": "q2bPEP9tQHe4bbvrJwmLLg", "not read": "x"})
    assert written == {"a": {"0": 7}, "@ottla": {"group": "g", "ids": {"a": "q2bPEP9tQHe4bbvrJwmLLg"}}}
    assert read_offsets(json.dumps(written)) == StoredOffsets("g", {TopicPartition("a", 0): 7}, {"a": "q2bPEP9tQHe4bbvrJwmLLg"})


def test_the_last_offsets_of_partitions_that_are_gone_are_beside_the_others() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    written = write_offsets("g", {a: 7}, {"a": "x", "b": "y"}, {b: 5})
    assert written == {"a": {"0": 7}, "@ottla": {"group": "g", "ids": {"a": "x", "b": "y"}, "gone": {"b": {"1": 5}}}}
    assert read_offsets(json.dumps(written)) == StoredOffsets("g", {a: 7}, {"a": "x", "b": "y"}, {b: 5})


def test_the_topics_stand_as_in_the_offsets_of_spark_s_kafka_connector() -> None:
    written = write_offsets("g", {TopicPartition("orders", 0): 23}, {"orders": "x"})
    assert {key: value for key, value in written.items() if "@" not in key} == {"orders": {"0": 23}}


@pytest.mark.parametrize("topic", ["group", "offsets", "ids"])
def test_topics_may_be_called_as_the_fields_of_older_checkpoints(topic: str) -> None:
    offsets = {TopicPartition(name, 0): 7 for name in ("group", "offsets", topic)}
    assert read_offsets(json.dumps(write_offsets("g", offsets))) == StoredOffsets("g", offsets, {})


def test_checkpoints_of_older_versions_are_read() -> None:
    a = TopicPartition("a", 0)
    assert read_offsets('{"group":"g","offsets":{"a":{"0":7}}}') == StoredOffsets("g", {a: 7}, {})
    assert read_offsets('{"group":"g","offsets":{"a":{"0":7}},"ids":{"a":"x"}}') == StoredOffsets("g", {a: 7}, {"a": "x"})


@pytest.mark.parametrize(
    "line",
    [
        "5", '{"t":{"0":5}}', '{"logOffset":0}', "-", "", "null", "[]", '{"group":"g","offsets":5}',
        '{"group":"g","offsets":{"t":{"x":1}}}', '{"group":"g","offsets":{},"ids":5}', '{"group":"g","offsets":{},"more":{}}',
        '"@ottla"', '["@ottla"]', '{"@ottla":{}}', '{"@ottla":5}', '{"t":{"x":1},"@ottla":{"group":"g"}}', '{"t":5,"@ottla":{"group":"g"}}',
    ],
)  # fmt: skip
def test_the_offset_of_another_source_is_none(line: str) -> None:
    assert read_offsets(line) is None
