"""The expression language of `consume --where`: its results, and that it can do nothing else."""

from __future__ import annotations

import pytest

from ottla.cli.command import UsageError
from ottla.cli.records.where import parse_where
from ottla.wire.records import Record

RECORD = Record(
    7, 1000, b"k1", b'{"amount": 12.5, "user": {"id": 3, "tags": ["a", "b"]}, "ok": true, "none": null}', (("h", b"x"), ("n", None))
)


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > 10",
        "value.user.id == 3 and key == 'k1'",
        "value['user']['tags'][1] == 'b'",
        "'a' in value.user.tags",
        "'c' not in value.user.tags",
        "offset % 2 == 1",
        "5 < offset <= 7",
        "headers['h'] == 'x' and headers.n is null",
        "value.ok is true",
        "not value.none",
        "value.missing.deeper is null",
        "partition == 1 or topic == 't'",
        "-offset == -7",
        "timestamp + 1 == 1001",
        "offset in [1, 7]",
        "value.user.tags[9] is null",
        "timestamp < '2020-01-31'",
        "'1970-01-01T00:00:01Z' <= timestamp < '-1h'",
    ],
)
def test_true(text: str) -> None:
    assert parse_where(text)("t", 0, RECORD)


@pytest.mark.parametrize(
    "text", ["value.amount > 'x'", "offset / 0 == 1", "key > 5", "value.missing > 1", "headers.none == 'x'", "partition", "value.none"]
)
def test_false_or_senseless(text: str) -> None:
    assert not parse_where(text)("t", 0, RECORD)


def test_text_that_is_no_json_stays_text() -> None:
    assert parse_where("value == '{broken'")("t", 0, Record(0, 0, None, b"{broken"))
    assert parse_where("key is null and value is null")("t", 0, Record(0, 0, None, None))
    assert parse_where("value == 5")("t", 0, Record(0, 0, None, b"5"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "key ==",
        "open('x')",
        "__import__('os')",
        "lambda: 1",
        "[x for x in headers]",
        "x := 1",
        "missing == 1",
        "f'{key}'",
        "key if 1 else 2",
        "*key",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--where"):
        parse_where(text)
