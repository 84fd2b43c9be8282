"""Numbers keep the digits with which they were written, in every form in which they are printed again."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.records.json_numbers import WrittenFloat, json_text
from ottla.cli.records.record_files import read_records
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

DIGITS = '{"net":2.50,"parts":[1.10,{"tax":0.1000000000000000055511151231257827}],"big":1e30}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(JSON)
def test_values_without_such_numbers_are_written_as_json_writes_them(value: object) -> None:
    assert json_text(value) == json.dumps(value, ensure_ascii=False)
    assert json_text(value, is_compact=True) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_digits_within_objects_stay() -> None:
    assert json_text(json.loads(DIGITS, parse_float=WrittenFloat), is_compact=True) == DIGITS


@pytest.mark.parametrize("depth", [3, 300, 900])
def test_deep_values_are_written(depth: int) -> None:
    text = "[" * depth + "2.5" + "]" * depth
    assert json_text(json.loads(text, parse_float=WrittenFloat)) == text


def test_a_key_that_is_an_object_keeps_its_digits() -> None:
    (record,) = read_records(io.StringIO(f'[{{"id": {DIGITS}, "x": 1}}]'), "json", "id")
    assert record.key == DIGITS.encode()


def test_columns_of_a_table_keep_digits_within_objects(ottla: Ottla, broker: Broker, topic: str) -> None:
    broker.add_record(topic, f'{{"amount":{DIGITS},"price":2.50}}')
    out = ottla("consume", topic, "-e", "-q", "-o", "csv", "--columns", "value.price,value.amount.net,value.amount.parts").out
    assert out.splitlines()[1] == '2.50,2.50,"[1.10, {""tax"": 0.1000000000000000055511151231257827}]"'
