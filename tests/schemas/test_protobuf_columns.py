"""Protobuf messages as columns and back, with every kind of field."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla.schemas.errors import Misfit, SchemaUsageError
from ottla.schemas.formats import Schema, make_schema
from ottla.schemas.protobuf_columns import MessageNode

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1; string item = 2; double amount = 3; optional int32 quantity = 4; google.protobuf.Timestamp at = 5; bool paid = 6;
  enum State { NEW = 0; PAID = 1; }
  State state = 7; repeated string tags = 8; map<string, int64> counts = 9; Line line = 10; repeated Line lines = 11;
  map<string, Line> named = 12; uint64 large = 13; google.protobuf.StringValue note = 14; bytes raw = 15; fixed32 small = 16;
  repeated State states = 17;
  oneof pay { string card = 18; int32 cash = 19; }
  message Line { int32 number = 1; }
  message Nothing {}
  message Tree { repeated Tree below = 1; }
}
"""
FULL = {
    "id": -1, "item": "äpfel", "amount": 1.5, "quantity": 0, "paid": True,
    "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 5, datetime.UTC),
    "state": "PAID", "tags": ["a", "b"], "counts": [("x", 1)], "line": {"number": 3}, "lines": [{"number": 1}, {"number": 2}],
    "named": [("k", {"number": 9})], "large": decimal.Decimal(2**64 - 1), "note": "", "raw": b"\xff", "small": 2**32 - 1,
    "states": ["NEW", "PAID"], "card": "A", "cash": None,
}  # fmt: skip
EMPTY = {
    "id": 0, "item": "", "amount": 0.0, "quantity": None, "at": None, "paid": False, "state": "NEW", "tags": [], "counts": [], "line": None,
    "lines": [], "named": [], "large": decimal.Decimal(0), "note": None, "raw": b"", "small": 0, "states": [], "card": None, "cash": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def schema() -> Schema:
    return make_schema("PROTOBUF", ORDER, "order")


def node_of(schema: Schema, name: str | None = None) -> MessageNode:
    return MessageNode(schema.format().definition(name))


def test_every_kind_of_field(schema: Schema) -> None:
    node = node_of(schema)
    array = pa.array([EMPTY, FULL, EMPTY], node.kind)
    data = node.encode(array)
    assert data.to_pylist()[0] == b""
    found, is_bad = node.decode(data)
    found.validate(full=True)
    assert not is_bad.any() and found.equals(array)


def test_what_is_no_message_is_marked(schema: Schema) -> None:
    node = node_of(schema)
    found, is_bad = node.decode(pa.array([b"\xff", b"\x08\x02", b"\x12\x01\xff"], pa.binary()))
    assert is_bad.tolist() == [True, False, True] and found[1].as_py()["id"] == 2


def test_an_unknown_number_of_an_enum_stays_a_number_and_null_leaves_a_field_out(schema: Schema) -> None:
    node = node_of(schema)
    found, _ = node.decode(pa.array([b"\x38\x05"], pa.binary()))
    assert found[0].as_py()["state"] == "5"
    nulls = dict.fromkeys(FULL)
    assert node.encode(pa.array([nulls], node.kind)).to_pylist() == [b""]


def test_a_message_without_fields(schema: Schema) -> None:
    node = node_of(schema, "Order.Nothing")
    assert node.decode(pa.array([b"", b""], pa.binary()))[0].to_pylist() == [{}, {}]
    assert node.encode(pa.array([{}], node.kind)).to_pylist() == [b""]


def test_a_message_that_contains_itself(schema: Schema) -> None:
    with pytest.raises(SchemaUsageError, match=r"^schema: message 'shop.Order.Tree' contains itself"):
        node_of(schema, "Order.Tree")


@pytest.mark.parametrize("change", [{"state": "LOST"}, {"small": 1 << 40}, {"large": decimal.Decimal(-1)}])
def test_values_that_cannot_be_written(schema: Schema, change: dict[str, Any]) -> None:
    node = node_of(schema)
    with pytest.raises(Misfit):
        node.encode(pa.array([{**FULL, **change}], node.kind))
