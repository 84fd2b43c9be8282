"""Deleting records by a file of offsets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def _file(path: Path, *entries: object) -> Path:
    path.write_text(json.dumps({"partitions": list(entries), "version": 1}))
    return path


def test_records_before_an_offset_go(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    for number in range(3):
        broker.add_record(topic, str(number))
    file = _file(tmp_path / "offsets.json", {"topic": topic, "partition": 0, "offset": 2})
    unasked = ottla("records", "delete", "--offset-json-file", file)
    assert unasked.code == 2
    assert len(broker.records(topic)) == 3
    done = ottla("records", "delete", "--offset-json-file", file, "--yes", "-o", "json")
    assert done.code == 0
    assert json.loads(done.out)["partitions"] == [{"topic": topic, "partition": 0, "low_watermark": 2, "error": None}]
    assert [record.value for record in broker.records(topic)] == [b"2"]


def test_one_bad_item_fails_and_the_others_are_done(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.add_record(topic, "x")
    entries = [{"topic": topic, "partition": 0, "offset": 99}, {"topic": topic, "partition": 7, "offset": 0}]
    result = ottla("records", "delete", "--offset-json-file", _file(tmp_path / "f", *entries), "--yes", "-o", "json")
    assert result.code == 1
    assert [row["error"] for row in json.loads(result.out)["partitions"]] == ["OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert len(broker.records(topic)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not {"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "entry 1: needs topic, partition and offset"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 0, "offset": 2}]}', "names t-0 twice"),
    ],
)
def test_a_bad_file(offline: Ottla, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(text)
    result = offline("records", "delete", "--offset-json-file", path, "--yes")
    assert result.code == 2
    assert message in result.err
    assert offline("records", "delete", "--offset-json-file", tmp_path / "none", "--yes").code == 2
