"""A query reads the topics that it names and only the columns that it needs; a statement other than SELECT is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.client import Client, TopicPartition, UnknownTopicError
from ottla.frames.errors import FrameError, FrameUsageError
from ottla.frames.frame import Frame
from ottla.frames.queries import COLUMNS, run_query


class Asked:
    """Opens frames, and records the requested columns."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.topics: list[str] = []
        self.columns: list[list[str]] = []

    def __call__(self, topic: str) -> Frame:
        self.topics.append(topic)
        made: Frame = self._frame(topic, columns=COLUMNS, key_format="text", value_format="text")
        select = made.select

        def noted(columns: Any) -> Frame:
            self.columns.append(list(columns))
            return select(columns)

        made.select = noted  # type: ignore[method-assign]
        return made

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [row for some in run_query(query, self).rows for row in some]


@pytest.fixture
def asked(frame: Any) -> Asked:
    return Asked(frame)


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    with client.producer() as producer:
        for number in range(3_000):
            producer.produce(topic, b'{"n": %d}' % number, b"k%d" % (number % 3), partition=number % 2)
    return topic


def test_a_query_reads_only_the_columns_that_it_needs(asked: Asked, filled: str) -> None:
    assert asked.rows(f'select count(*) from "{filled}"') == [(3000,)]
    assert asked.rows(f'select key, count(*) n from "{filled}" where "offset" < 300 group by 1 order by 1') == [
        ("k0", 200), ("k1", 200), ("k2", 200),
    ]  # fmt: skip
    assert asked.rows(f"""select sum((value->>'n')::int) from "{filled}" """) == [(3000 * 2999 // 2,)]
    assert asked.columns == [["partition"], ["offset", "key"], ["value"]]
    assert asked.rows(f'select typeof(value) from "{filled}" limit 1') == [("VARCHAR",)], "a column that the plan leaves out again"
    assert asked.columns[3:] == [["partition"]]
    result = run_query(f'select * from "{filled}" limit 1', asked)
    assert result.columns == list(COLUMNS)
    assert next(result.rows)[0][:2] == (0, 0)


def test_two_topics_and_a_file_are_joined(asked: Asked, filled: str, topic: str, client: Client, tmp_path: Path, broker: Any) -> None:
    other = broker.create_topic(f"{topic}.other")
    with client.producer() as producer:
        producer.produce(other, b"gold", b"k1")
    names = tmp_path / "names.csv"
    names.write_text("key,name\nk1,Ann\nk2,Bob\n")
    query = f"""
        with counted as (select key, count(*) n from "{filled}" group by 1)
        select name, n, other.value from counted join '{names}' using (key) join "{other}" other using (key)
    """
    assert asked.rows(query) == [("Ann", 1000, "gold")]
    assert asked.topics == sorted([filled, other])


def test_a_topic_that_is_named_twice_is_read_twice(asked: Asked, filled: str) -> None:
    query = f'select count(*) from "{filled}" a join "{filled}" b using (partition, "offset")'
    assert asked.rows(query) == [(3000,)]
    assert asked.topics == [filled]


def test_fields_of_json_are_columns_of_a_struct(frame: Any, filled: str) -> None:
    def as_json(topic: str) -> Frame:
        made: Frame = frame(topic, columns=COLUMNS, value_format="json")
        return made

    query = f'select sum(value.n), count(key) from "{filled}" where value.n > 2997'
    assert [row for some in run_query(query, as_json).rows for row in some] == [(2998 + 2999, 2)]


def test_a_query_without_topics_is_answered(asked: Asked) -> None:
    result = run_query("select 1 a, 2 a", asked)
    assert (result.columns, list(result.rows)) == (["a", "a"], [[(1, 2)]])
    assert asked.rows("select count(*) > 0 from information_schema.schemata") == [(True,)]


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("selec", FrameUsageError, 'the query is not valid SQL: syntax error at or near "selec"'),
        ("select 1; select 2", FrameUsageError, "the query has to be one SELECT; topics are only read"),
        ("", FrameUsageError, "one SELECT"),
        ("copy (select 1) to 'x'", FrameUsageError, "one SELECT"),
        ("create table x (a int)", FrameUsageError, "one SELECT"),
        ("select * from a.b.c", FrameUsageError, 'topic names with dots are written in double quotes: "a.b.c"'),
        ("select 1 from x union all select 1 from X", FrameUsageError, "SQL ignores case in names"),
        ('select nothing from "{topic}"', FrameError, 'Referenced column "nothing" not found in FROM clause!; Candidate bindings: "'),
        ('select value.n from "{topic}"', FrameError, "; value is not decoded: give --value-format json, or write value->>'n'"),
        ('select key.n from "{topic}"', FrameError, "; key is not decoded: write key->>'n'"),
        ("select s.b from (select {'a': 1} as s)", FrameError, 'Could not find key "b" in struct; Candidate Entries: "a"'),
        ('select key::int from "{topic}"', FrameError, "Could not convert string 'k"),
        ('select * from "{topic}x"', UnknownTopicError, "did you mean '{topic}'"),
    ],
)
def test_one_line_says_what_is_wrong(asked: Asked, filled: str, query: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        asked.rows(query.replace("{topic}", filled))
    assert message.replace("{topic}", filled) in str(caught.value) and "\n" not in str(caught.value)


def test_the_error_of_a_frame_is_not_hidden(frame: Any, filled: str, client: Client) -> None:
    """The error of a frame is raised unchanged; DuckDB would only report that a stream has failed, with a traceback."""

    def shortened(topic: str) -> Frame:
        made: Frame = frame(topic, columns=COLUMNS)
        client.delete_records({TopicPartition(topic, 0): 10})
        return made

    with pytest.raises(Exception, match=f"reading {filled}-0 from offset 0") as caught:
        list(run_query(f'select count(*) from "{filled}"', shortened).rows)
    assert type(caught.value).__name__ == "OffsetOutOfRangeError"
