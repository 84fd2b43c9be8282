"""`consume --output`: an array, objects, a table; also what stands around no record at all."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    first = '{"item": "apples, red", "amount": 5, "tags": ["a"]}'
    broker.add_record(topic, first, key="alice", headers={"h": "1"}, timestamp=1_600_000_000_000)
    broker.add_record(topic, b"\xff\x00", key=None, timestamp=1_600_000_000_001)
    broker.add_record(topic, None, key='quo"te', timestamp=1_600_000_000_002)
    return topic


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("options", [("--output", "json"), ("-o", "json")])
def test_an_array(ottla: Ottla, filled: str, options: tuple[str, str]) -> None:
    result = ottla("consume", filled, "-e", "-q", *options)
    assert result.code == 0
    found = json.loads(result.out)
    assert [record["offset"] for record in found] == [0, 1, 2]
    assert found[1]["payload_base64"] == "/wA="


def test_an_object_a_line_has_one_meaning_everywhere(ottla: Ottla, filled: str) -> None:
    outputs = {ottla("consume", filled, "-e", "-q", *options).out for options in (("-J",), ("-o", "jsonl"), ("--output", "jsonl"))}
    (text,) = outputs
    assert [json.loads(line)["offset"] for line in text.splitlines()] == [0, 1, 2]


def test_a_table_of_all_parts(ottla: Ottla, filled: str) -> None:
    header, first, second, third = rows(ottla("consume", filled, "-e", "-q", "--output", "csv").out)
    assert header == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert first == [filled, "0", "0", "1600000000000", "alice", '{"item": "apples, red", "amount": 5, "tags": ["a"]}', '{"h": "1"}']
    assert second[4:] == ["", "base64:/wA=", ""]
    assert third[4:] == ['quo"te', "", ""]


def test_a_table_of_chosen_parts(ottla: Ottla, filled: str) -> None:
    columns = "offset,value.item,value.amount,value.tags,headers['h']"
    header, first, *others = rows(ottla("consume", filled, "-e", "-q", "-o", "csv", "--columns", columns).out)
    assert header == columns.split(",")
    assert first == ["0", "apples, red", "5", '["a"]', "1"]
    assert [row[1:] for row in others] == [["", "", "", ""]] * 2


@pytest.mark.parametrize(("form", "wanted"), [("json", "[\n]\n"), ("jsonl", ""), ("csv", "key,value\n"), ("plain", "")])
def test_no_record(ottla: Ottla, topic: str, form: str, wanted: str) -> None:
    columns = ["--columns", "key,value"] if form == "csv" else []
    assert ottla("consume", topic, "-e", "-q", "--output", form, *columns).out == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "table"], "printed as json, jsonl, csv, plain"),
        (["-o", "json", "-o", "csv"], "two forms"),
        (["-J", "--output", "csv"], "two forms"),
        (["-J", "-f", "%s"], "exclude each other"),
        (["--columns", "key"], "goes with --output csv"),
        (["-o", "csv", "--columns", "colour"], "no name 'colour'"),
        (["-o", "csv", "--columns", "value.a + 1"], "not a part of a record"),
    ],
)
def test_what_does_not_go_together(ottla: Ottla, topic: str, options: list[str], message: str) -> None:
    result = ottla("consume", topic, *options)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_an_export_is_an_import(ottla: Ottla, broker: Broker, filled: str, tmp_path: Path) -> None:
    for form in ("json", "jsonl"):
        export = tmp_path / form
        export.write_text(ottla("consume", filled, "-e", "-q", "--output", form).out)
        copy = broker.create_topic(f"{filled}-{form}")
        assert ottla("produce", copy, "-q", "-l", export, "--input", "records").code == 0
        assert [record[3:] for record in broker.records(copy)] == [record[3:] for record in broker.records(filled)]
