"""`ottla sql`: each form of output, the options that choose records, and one line for what is wrong."""

from __future__ import annotations

import sys

import pytest

from ottla.cli.records import sql
from ottla.frames.packages import INSTALL
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    for number in range(4):
        broker.add_record(topic, f'{{"n": {number}}}', key=f"k{number % 2}", timestamp=1_600_000_000_000 + number * 1000)
    return topic


def test_a_table_and_the_forms_for_programs(ottla: Ottla, filled: str) -> None:
    query = f'select key, count(*) as n, max(timestamp) as last from "{filled}" group by 1 order by 1'
    rows = [("k0", 2, "2020-09-13 12:26:42+00:00"), ("k1", 2, "2020-09-13 12:26:43+00:00")]
    lines = ottla("sql", query).out.splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == ["key", "k0", "k1"]
    assert ottla("sql", query, "-o", "json").json() == {"rows": [dict(zip(("key", "n", "last"), row, strict=True)) for row in rows]}
    assert ottla("sql", query, "-o", "csv").out == "key,n,last\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows)
    assert ottla("sql", query, "-o", "plain").out.splitlines()[1].split("\t") == ["k1", "2", rows[1][2]]
    assert len(ottla("sql", query, "-o", "jsonl").out.splitlines()) == 2
    assert ottla("sql", f'select key from "{filled}" where false', "-o", "csv").out == "key\n"


def test_options_choose_records(ottla: Ottla, filled: str) -> None:
    count = f'select count(*) from "{filled}"'
    assert ottla("sql", count, "--since", "2020-09-13T12:26:41", "--until", "2020-09-13T12:26:43", "-o", "plain").out == "2\n"
    assert ottla("sql", count, "--partitions", "0", "-o", "plain").out == "4\n"
    types = f'select typeof(key), typeof(value) from "{filled}" limit 1'
    assert ottla("sql", types, "--key-format", "bytes", "-o", "plain").out == "BLOB\tVARCHAR\n"


def test_a_long_answer_is_streamed_or_cut(ottla: Ottla, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "TABLE_ROWS_MAX", 3)
    cut = ottla("sql", f'select value from "{filled}"')
    assert len(cut.out.splitlines()) == 4
    assert cut.err == "only the first 3 rows are shown; -o jsonl and -o csv print all\n"
    assert len(ottla("sql", "select * from range(2500)", "-o", "csv").out.splitlines()) == 2501


def test_bytes_and_repeated_names_are_shown(ottla: Ottla) -> None:
    assert ottla("sql", r"select 'a\xFF\x0A'::blob a, ['\x00'::blob] a, {'k': '\x01'::blob} b", "-o", "jsonl").out == (
        '{"a": "a\\\\xFF\\\\x0A", "a_1": ["\\\\x00"], "b": {"k": "\\\\x01"}}\n'
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["selec"], 2, 'error: the query is not valid SQL: syntax error at or near "selec"\n'),
        (["select * from nowhere"], 1, "error: topic 'nowhere' not found"),
        (['select * from "TOPIC"', "--since", "x"], 2, "error: since: 'x' is not a date and time"),
        (['select * from "TOPIC"', "--partitions", "x"], 2, "error: --partitions is N,N,...\n"),
        (['select * from "TOPIC"', "--partitions", "5"], 2, "has no partition 5, only 0 to 0\n"),
        (['select key::int from "TOPIC"'], 1, "error: Conversion Error: "),
    ],
)
def test_one_line_says_what_is_wrong(ottla: Ottla, filled: str, words: list[str], code: int, message: str) -> None:
    found = ottla("sql", *[word.replace("TOPIC", filled) for word in words])
    assert (found.code, found.err.count("\n"), message in found.err) == (code, 1, True), found.err


def test_a_broker_that_is_not_there(offline: Ottla) -> None:
    found = offline("sql", "select * from orders", "-b", "localhost:1")
    assert (found.code, found.err.count("\n")) == (3, 1) and "cannot reach localhost:1" in found.err


def test_a_missing_package_is_named(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    found = ottla("sql", "select 1")
    assert (found.code, found.err) == (1, f"error: duckdb cannot be imported; install it: pip install {INSTALL}\n")
