"""`produce --input`: tables, arrays, objects, exports; and what of them is refused."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.analysis.json_numbers import WrittenFloat, json_text
from ottla.cli.command import Refused, UsageError
from ottla.cli.records.record_files import FileRecord, read_records
from ottla.cli.records.record_format import json_formatter
from ottla.testing.broker import Broker
from ottla.testing.handle import TopicRecord
from ottla.wire.batch_header import read_batch_header
from ottla.wire.records import Record, encode_batch
from tests.cli.conftest import Ottla


def read(text: str, form: str, key_field: str | None = None) -> list[FileRecord]:
    return list(read_records(io.StringIO(text, newline=""), form, key_field))


def test_a_table() -> None:
    text = 'id,name,price,open,note\r\n1,"Mai, ""Rosa""",2.50,true,\r\n\r\n02,"two\nlines",1e3,false,x\r\n'
    first, second = read(text, "csv", "id")
    assert (first.key, second.key) == (b"1", b"02")
    assert json.loads(first.value or b"") == {"id": 1, "name": 'Mai, "Rosa"', "price": 2.5, "open": True, "note": None}
    assert json.loads(second.value or b"") == {"id": "02", "name": "two\nlines", "price": 1000.0, "open": False, "note": "x"}


@pytest.mark.parametrize(
    "text", ['[{"a": 1}, "text", null, [1], 2.0]', '{"a": 1}\n"text"\nnull\n[1]\n2.0\n', ' [\n{"a":1},"text",null,[1],2.0]\n\n']
)
def test_values(text: str) -> None:
    assert [record.value for record in read(text, "json")] == [b'{"a":1}', b"text", None, b"[1]", b"2.0"]


def test_json_keeps_its_digits_and_its_letters_but_no_blanks() -> None:
    text = '[{"a" : 2.50, "b": [1e5, 0.12345678901234567890],\n "c": "x  \\" y"}, 1.10]'
    assert [record.value for record in read(text, "json")] == [
        b'{"a":2.50,"b":[1e5,0.12345678901234567890],"c":"x  \\" y"}', b"1.10",
    ]  # fmt: skip
    assert [record.key for record in read('[{"id": 2.50}]', "json", "id")] == [b"2.50"]


def test_values_are_read_as_they_come() -> None:
    """A pipe that does not end: each value is there before the line after its last one is read."""
    lines = iter(['{"a": 1} {"a": 2}\n', '{"a":\n', "3}\n", ""])
    seen: list[str] = []

    class Pipe(io.StringIO):
        def readline(self, _: object = -1) -> str:
            seen.append(next(lines))
            return seen[-1]

        def __next__(self) -> str:
            line = self.readline()
            if not line:
                raise StopIteration
            return line

    records = read_records(Pipe(), "json", None)
    assert (next(records).value, next(records).value, len(seen)) == (b'{"a":1}', b'{"a":2}', 1)
    assert (next(records).value, len(seen)) == (b'{"a":3}', 3)
    assert list(records) == []


def test_arrays_one_after_the_other() -> None:
    """As `cat a.json b.json` prints them."""
    assert [record.value for record in read("[1, [2]]\n[3\n,4][]", "json")] == [b"1", b"[2]", b"3", b"4"]


def test_other_separators() -> None:
    for separator in ";\t|":
        (record,) = read_records(io.StringIO(f'a{separator}b\n"1,5"{separator}x\n', newline=""), "csv", None, separator)
        assert record.value == b'{"a":"1,5","b":"x"}'


def test_a_text_that_means_null() -> None:
    (record,) = read_records(io.StringIO("a,b,c,d\nNA,,1,na\n", newline=""), "csv", None, null="NA")
    assert record.value == b'{"a":null,"b":null,"c":1,"d":"na"}'


def test_a_member_is_the_key() -> None:
    assert [record.key for record in read('[{"id": "a"}, {"id": 7}]', "json", "id")] == [b"a", b"7"]


def test_an_export() -> None:
    text = '{"topic": "t", "offset": 3, "ts": 5, "headers": ["h", "1", "n", null], "key_base64": "/w==", "payload": "v"}\n'
    text += '{"key": null, "payload": null}'
    assert read(text, "records") == [FileRecord(b"\xff", b"v", (("h", b"1"), ("n", None)), 5), FileRecord(None, None)]


def test_an_export_keeps_the_bytes_of_headers() -> None:
    headers = (("a", b"\xff"), ("b", b"base64:"), ("c", b""), ("d", None), ("e", b"text"))
    line = json_formatter("t", 0, read_batch_header(encode_batch([Record(0, 5, None, b"v")])), Record(0, 5, None, b"v", headers))
    assert json.loads(line)["headers"] == ["a", "base64:/w==", "b", "base64:YmFzZTY0Og==", "c", "", "d", None, "e", "text"]
    assert read(line.decode(), "records") == [FileRecord(None, b"v", headers, 5)]


def test_numbers_of_a_table_keep_their_digits() -> None:
    (record,) = read("a,b,c,d\n2.50,1e400,-0,0.12345678901234567890\n", "csv")
    assert record.value == b'{"a":2.50,"b":1e400,"c":-0,"d":0.12345678901234567890}'


@pytest.mark.parametrize(("text", "form"), [("id\n1\n", "csv"), ('[{"id":1}]', "json"), ('{"payload":"{\\"id\\":1}"}', "records")])
def test_a_byte_order_mark_is_skipped(text: str, form: str) -> None:
    (record,) = read("\ufeff" + text, form, "id" if form != "records" else None)
    assert record.value == b'{"id":1}'


def test_a_first_cell_in_quotes_may_follow_a_byte_order_mark() -> None:
    (record,) = read('\ufeff"i\nd"\r\n1\r\n', "csv")
    assert record.value == b'{"i\\nd":1}'


def test_an_export_without_headers_or_timestamp() -> None:
    assert read('{"payload": "v", "headers": null, "ts": -1}', "records") == [FileRecord(None, b"v")]


def test_nothing() -> None:
    assert read("", "csv") == read("a,b\n", "csv") == read("[]", "json") == read("", "json") == read(" \n", "records") == []


@pytest.mark.parametrize(
    ("text", "form", "key_field", "message"),
    [
        ("a,b\n1\n", "csv", None, "row 1 has 1 cell, the header row 2"),
        ("a,a\n1,2\n", "csv", None, "two of one name"),
        ("a,\n1,2\n", "csv", None, "without a name"),
        ("a,b\n1,2\n", "csv", "id", "no column 'id'; there are a, b"),
        ('a,b\n1,"2\n', "csv", None, "is not CSV"),
        ("a,b\n1,Zo\udceb\n", "csv", None, "row 1 is not UTF-8"),
        ("[1, 1e400]", "json", None, "value 2 is not JSON"),
        ("[NaN]", "json", None, "value 1 is not JSON"),
        ('{"a": 1} garbage', "json", None, "value 2 is not JSON: 'garbage'"),
        ("[1] 2", "json", None, "value 2 is not JSON: '2'"),
        ("]", "json", None, "value 1 is not JSON: ']'"),
        ('{"a":\n"b', "json", None, "value 1 is not JSON"),
        ('{"value": "not of consume -J"}', "records", None, "record 1 is not as"),
        ('{"payload": "v", "ts": "yesterday"}', "records", None, "record 1 is not as"),
        ('[{"a": 1}, {b}]', "json", None, "value 2 is not JSON: '{b}]'"),
        ('[{"a": 1}', "json", None, "no end after value 1"),
        ("[" * 100_000, "json", None, "is not JSON"),
        ('[{"a": 1}]', "json", "id", "value 1 has no member 'id'"),
        ("[3]", "records", None, "record 1 is not as"),
        ('{"key": "k", "headers": ["odd"]}', "records", None, "record 1 is not as"),
        ('{"payload_base64": "!"}', "records", None, "record 1 is not as"),
    ],
)
def test_what_is_refused(text: str, form: str, key_field: str | None, message: str) -> None:
    with pytest.raises(Refused) as refusal:
        read(text, form, key_field)
    assert message in str(refusal.value)


def test_an_export_has_keys_of_its_own() -> None:
    with pytest.raises(UsageError):
        read("", "records", "id")


def test_a_table_goes_in_and_comes_out(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "orders.csv"
    table.write_text('customer,item,amount\nalice,"apples, red",5\nbob,bread,7\n')
    result = ottla("produce", topic, "-l", table, "--input", "csv", "--key-field", "customer", "-H", "source=shop")
    assert (result.code, result.out, result.err) == (0, "", f"2 records to {topic}, offsets 0-1\n")
    assert [(record.key, record.headers) for record in broker.records(topic)] == [
        (name, (("source", b"shop"),)) for name in (b"alice", b"bob")
    ]
    columns = "value.customer,value.item,value.amount"
    out = ottla("consume", topic, "-e", "-q", "-o", "csv", "--columns", columns).out
    assert out == table.read_text().replace("customer,item,amount", columns)


EXPORT = "topic,partition,offset,timestamp,key,value,headers\n"


def test_what_consume_prints_as_a_table_goes_back_in(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.add_record(topic, '{"item": "apples, red"}', key="alice", headers={"trace": "1", "none": None}, timestamp=1_600_000_000_000)
    broker.add_record(topic, b"\xff\x00", key=b"\xfe", headers={"raw": b"\xfd"}, timestamp=1_600_000_000_001)
    broker.add_record(topic, None, key="two\r\nlines", timestamp=1_600_000_000_002)
    broker.add_record(topic, "base64:is only text", timestamp=1_600_000_000_003)
    broker.add_record(topic, "x" * 200_000, timestamp=1_600_000_000_004)
    lines = tmp_path / "lines"
    lines.write_text("again:1,again:2\tv\n")
    assert ottla("produce", topic, "-q", "--property", "parse.headers=true", "-l", lines).code == 0
    table = tmp_path / "orders.csv"
    table.write_bytes(ottla("consume", topic, "-e", "-q", "--output", "csv").out.encode())
    copy = f"{topic}-copy"
    result = ottla("produce", copy, "-l", table, "--input", "csv", "-q")
    assert (result.code, result.err) == (0, "")
    assert [parts(record) for record in broker.records(copy)] == [parts(record) for record in broker.records(topic)]


def parts(record: TopicRecord) -> tuple[object, ...]:
    return record.key, record.value, record.headers, record.timestamp


def test_a_table_with_a_key_field_is_no_export() -> None:
    (record,) = read(EXPORT + "t,0,1,5,k,v,\n", "csv", "key")
    assert record.key == b"k" and json.loads(record.value or b"")["offset"] == 1


@pytest.mark.parametrize("cells", ["soon,k,v,", "5,k,base64:!,", "5,k,v,{", "5,k,v,7", '5,k,v,"{""a"": 7}"', "5,k,v,[1]"])
def test_a_row_that_consume_does_not_print(cells: str) -> None:
    with pytest.raises(Refused, match="row 2 is not as `ottla consume --output csv` prints it"):
        read(f"{EXPORT}t,0,0,5,k,v,\nt,0,1,{cells}\n", "csv")


def test_a_bad_row_keeps_those_before_and_a_schema_is_checked(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    table, schema = tmp_path / "orders.csv", tmp_path / "schema.json"
    table.write_text("item,amount\napples,5\nbread,many\n")
    schema.write_text('{"properties": {"amount": {"type": "integer"}}}')
    result = ottla("produce", topic, "-l", table, "--input", "csv", "--schema", schema)
    assert (result.code, result.out) == (1, "")
    assert "row 2 does not fit the schema: value.amount is not integer" in result.err
    assert len(broker.records(topic)) == 1
    assert ottla("produce", topic, "-l", table, "--key-field", "item").code == 2


def test_values_of_an_open_pipe_are_sent(broker: Broker, topic: str) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "produce", topic, "-q", "--input", "json", "-b", broker.bootstrap_server]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process, broker.assert_produces(topic, 1, timeout=60):
        assert process.stdin is not None
        process.stdin.write('{"a": 1}\n')
        process.stdin.flush()
    assert process.returncode == 0


def test_semicolons_and_tabs(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "orders.tsv"
    table.write_text("item\tprice\napples\t2.50\n")
    assert ottla("produce", topic, "-q", "-l", table, "--input", "csv", "--separator", "\\t").code == 0
    assert [record.value for record in broker.records(topic)] == [b'{"item":"apples","price":2.50}']
    for form, separator in (("json", ";"), ("csv", "ab"), ("csv", '"'), ("csv", "")):
        refused = ottla("produce", topic, "-l", table, "--input", form, "--separator", separator)
        assert (refused.code, refused.err.count("\n"), "--separator" in refused.err) == (2, 1, True)


def test_a_text_that_means_null_is_for_tables(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "flights.csv"
    table.write_text("flight,delay\n1,NA\n2,7\n")
    assert ottla("produce", topic, "-q", "-l", table, "--input", "csv", "--null", "NA").code == 0
    assert [record.value for record in broker.records(topic)] == [b'{"flight":1,"delay":null}', b'{"flight":2,"delay":7}']
    refused = ottla("produce", topic, "-l", table, "--input", "json", "--null", "NA")
    assert (refused.code, refused.err.count("\n"), "--null goes with --input csv" in refused.err) == (2, 1, True)


# Numbers keep the digits with which they were written, in every form in which they are printed again


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
