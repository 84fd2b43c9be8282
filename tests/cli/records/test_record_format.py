"""Records formatted as bytes without loss; Kafka's and kcat's formats on a broker are in test_consume.py."""

from __future__ import annotations

import json
import struct

import pytest

from ottla.cli.command import Refused, UsageError
from ottla.cli.records.record_format import json_formatter, property_formatter, token_formatter
from ottla.cli.records.record_numbers import deserializer, java_decimal
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import Record

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
