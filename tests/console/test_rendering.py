"""Tables are filtered, sorted and paged, values are shown as text, and a page of 2,000 topics is small."""

from __future__ import annotations

import gzip
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.console.model import Link, Mark, Page, Table, age, columns, href, moment, seconds, size
from ottla.console.records import as_text
from ottla.console.rendering import FOLDER, as_html, as_json, visible

TITLES = columns(topic="Topic", records="Records", rate="Rate", size="Size", last="Last record", lag="Lag", groups="Groups")


def visit(**query: str) -> Any:
    session = SimpleNamespace(new_token=lambda: "token", results={}, user="")
    desk = SimpleNamespace(snapshot=SimpleNamespace(view=None, problem=""))
    return SimpleNamespace(session=session, desk=desk, settings=SimpleNamespace(is_read_only=False), query=query)


def page(count: int) -> Page:
    rows = [
        {"topic": Link(f"topic-{number:04}-of-a-large-cluster", f"/topics/topic-{number:04}"), "records": number * 7 % 1000, "rate": 1.5,
         "size": "1.0 MiB", "last": moment(1_796_000_000_000 + number), "lag": number, "groups": [f"group-{number}"]}
        for number in range(count)
    ]  # fmt: skip
    return Page("Topics", tables=[Table("topics", "Topics", TITLES, rows)])


def shown(found: Page, **query: str) -> str:
    return as_html(found, visit(**query), "/topics")


def test_a_page_with_2000_topics_and_its_scripts_is_smaller_than_200_kb() -> None:
    text = shown(page(2000))
    assert "topic-0099" in text and "topic-0100" not in text and "Page 1 of 20" in text
    loaded = [path for path in FOLDER.glob("static/**/*") if path.suffix in (".js", ".css", ".svg")]
    assert len(loaded) >= 6
    assert len(text.encode()) + sum(path.stat().st_size for path in loaded) < 200_000
    assert len(gzip.compress(text.encode())) < 20_000


def test_a_table_is_filtered_sorted_and_paged() -> None:
    found = page(250)
    assert "topic-0249" in shown(found, p="3") and "topic-0249" in shown(found, p="99") and "topic-0000" in shown(found, p="x")
    only = shown(found, q="TOPIC-0123")
    assert "topic-0123" in only and "topic-0124" not in only and "1 of 250" in only
    assert "Nothing matches the filter." in shown(found, q="no such topic")
    downwards = shown(found, sort="-lag")
    assert downwards.index("topic-0249") < downwards.index("topic-0248") and 'aria-sort="descending"' in downwards


def test_a_further_table_says_that_it_has_only_the_first_rows() -> None:
    (large,) = page(250).tables
    both = shown(Page("Topics", tables=[Table("none", "None", TITLES, []), large]))
    assert "The first 100 rows are shown; JSON has all." in both and "topic-0100" not in both
    assert "rows are shown" not in shown(page(250))


@pytest.mark.parametrize("hostile", ["<script>x</script>", '"><img src=x onerror=y>', "{{ 1234 * 1001 }}", "\u202egpj.exe", "' onload='x"])
def test_text_is_never_markup(hostile: str) -> None:
    rows = [{"topic": Link(hostile, href("topics", hostile)), "records": hostile, "rate": Mark(hostile, "ok"), "groups": [hostile]}]
    text = shown(Page(hostile, [("Fact", hostile)], [Table("topics", hostile, TITLES, rows)]), q="", other=hostile)
    for part in ("<script>x", "<img", "1235234", "\u202e", "' onload="):
        assert part not in text


def test_json_has_all_rows_and_no_markup() -> None:
    text = as_json(page(250)).decode()
    assert text.count('"topic": "topic-') == 250 and "href" not in text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, (None, "null", False)),
        (b"text", ("text", "text", False)),
        (b'{"a":1}', ('{"a": 1}', "json", False)),
        (b"{broken", ("{broken", "text", False)),
        (b"\xff\x00", ("ff 00", "hex", False)),
        (b"x" * 30, ("x" * 20, "text", True)),
        (b"[" * 100_000, ("[" * 20, "text", True)),
    ],
)
def test_bytes_of_records_are_text(data: bytes | None, expected: tuple[str | None, str, bool]) -> None:
    assert as_text(data, 20) == expected


def test_invisible_letters_are_escaped() -> None:
    assert visible("a\u202eb\x1b[2J\nc") == "a\\u202eb\\x1b[2J\nc"


def test_quantities_have_units() -> None:
    assert [size(value) for value in (None, -1, 5, 2048, 5 << 40)] == ["-", "-", "5 B", "2.0 KiB", "5.0 TiB"]
    assert [seconds(value) for value in (None, 1.5, 300, 8000, 400_000)] == ["-", "1.5 s", "5.0 min", "2.2 h", "4.6 d"]


def test_a_time_is_in_utc_for_the_browser_to_convert_or_an_age() -> None:
    found = page(1)
    assert '<time data-at="1796000000.0">2026-11-30T00:53:20.000Z</time>' in shown(found)
    assert b'"last": "2026-11-30T00:53:20.000Z"' in as_json(found)
    assert (moment(-1), moment(1e18)) == (None, str(10**18))
    old = Page("Topics", tables=[Table("topics", "Topics", columns(last="Last"), [{"last": age(1_796_000_000_000, 1_796_000_030_000)}])])
    assert '<span title="2026-11-30T00:53:20.000Z">30.0 s ago</span>' in shown(old)
    assert b'"last": "2026-11-30T00:53:20.000Z"' in as_json(old) and age(-1, 0) is None
