"""Records formatted as bytes without loss; Kafka's and kcat's formats on a broker are in test_consume.py."""

from __future__ import annotations

import csv
import io
import json
import struct
from pathlib import Path

import pytest

from ottla.cli.command import Refused, UsageError
from ottla.cli.records.record_format import json_formatter, property_formatter, token_formatter
from ottla.cli.records.record_numbers import deserializer, java_decimal
from ottla.testing.broker import Broker
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import Record
from tests.cli.conftest import Ottla

HEADER = BatchHeader(0, 0, 7, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
RECORD = Record(5, 1_600_000_000_000, b"k", b"v", (("a", b"1"), ("b", None)))
EMPTY = Record(6, -1, None, None, ())


def test_the_plainest_form_needs_no_function() -> None:
    assert property_formatter({}) is None
    assert property_formatter({"print.key": "false", "key.separator": ":"}) is None
    assert property_formatter({"line.separator": ";"}) is not None


def test_properties() -> None:
    names = ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
    formatted = property_formatter({f"print.{name}": "true" for name in names} | {"null.literal": "-", "headers.separator": ";"})
    assert formatted is not None
    assert formatted("t", 3, HEADER, RECORD) == b"CreateTime:1600000000000\tPartition:3\tOffset:5\tEpoch:7\ta:1;b:-\tk\tv\n"
    assert formatted("t", 3, HEADER, EMPTY) == b"NO_TIMESTAMP\tPartition:3\tOffset:6\tEpoch:7\tNO_HEADERS\t-\t-\n"


def test_tokens_of_kcat() -> None:
    assert token_formatter(r"%t|%p|%o|%k|%s|%K|%S|%T|%h|%%\x21\n")("t", 3, HEADER, RECORD) == b"t|3|5|k|v|1|1|1600000000000|a=1,b=NULL|%!\n"
    assert token_formatter("%v{hex} %s{base64} %k{hex} %k{x} %o{hex}")("t", 3, HEADER, RECORD) == b"76 dg== 6b k{x} 5{hex}"
    assert token_formatter("%R%s")("t", 0, HEADER, RECORD) == b"\0\0\0\1v"
    assert token_formatter("%K %S %k%s")("t", 0, HEADER, EMPTY) == b"-1 -1 "
    assert token_formatter("%R")("t", 0, HEADER, EMPTY) == b"\xff\xff\xff\xff"
    for wrong in ("%y", "json"):
        with pytest.raises(UsageError):
            token_formatter(wrong)


def test_json_distinguishes_bytes_from_text_and_empty_from_null() -> None:
    binary = json.loads(json_formatter("t", 0, HEADER, Record(0, 0, b"\xff", b"", (("h", b"\xfe"),))))
    assert binary["key_base64"] == "/w==" and binary["payload"] == "" and "payload_base64" not in binary
    assert json.loads(json_formatter("t", 0, HEADER, EMPTY))["payload"] is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-1.5, "-1.5"), (100.0, "100.0"), (1e7, "1.0E7"), (1234567.0, "1234567.0"), (12345678.9, "1.23456789E7"),
        (0.001, "0.001"), (0.0001, "1.0E-4"), (1.5e300, "1.5E300"), (float("nan"), "NaN"), (float("-inf"), "-Infinity"),
    ],
)  # fmt: skip
def test_decimals_look_as_in_java(value: float, text: str) -> None:
    assert java_decimal(value) == text


def test_a_float_has_the_digits_of_a_float() -> None:
    read = deserializer("org.apache.kafka.common.serialization.FloatDeserializer")
    assert read is not None and read(struct.pack(">f", 16_777_216.0)) == b"1.6777216E7" and read(struct.pack(">f", 0.1)) == b"0.1"


def test_what_is_no_number_is_refused() -> None:
    read = deserializer("LongDeserializer")
    assert read is not None
    with pytest.raises(Refused, match="LongDeserializer needs 8 bytes, this record has 3"):
        read(b"abc")
    assert deserializer(None) is None and deserializer("a.b.StringDeserializer") is None
    with pytest.raises(UsageError):
        deserializer("AvroDeserializer")


# `consume --output`: an array, objects, a table; also what stands around no record at all


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
    found = result.json()
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
    columns = "offset,value.item,value.amount,value.tags,headers['h'],value[headers]"
    header, first, *others = rows(ottla("consume", filled, "-e", "-q", "-o", "csv", "--columns", columns).out)
    assert header == columns.split(",")
    assert first == ["0", "apples, red", "5", '["a"]', "1", ""]
    assert [row[1:] for row in others] == [["", "", "", "", ""]] * 2


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
