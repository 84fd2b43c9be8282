"""Columns of any Arrow type that Spark uses are converted to plain binary arrays, or refused with an error that names them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ottla.arrow.columns import as_binary, binary_column, blob_lengths, header_column, without_views
from ottla.arrow.errors import RowsError
from tests.spark.text_kinds import TEXT_KINDS

WORDS = ["a", None, "", "longer than what a view holds itself"]


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_each_kind_becomes_binary(kind: Any) -> None:
    array = pa.array(WORDS, kind)
    for part, wanted in ((array, WORDS), (array.slice(1, 2), WORDS[1:3]), (array.slice(4), [])):
        found = as_binary(part, "value")
        assert found.type == pa.binary()
        assert found.to_pylist() == [None if word is None else word.encode() for word in wanted]
        assert blob_lengths(found).tolist() == [-1 if word is None else len(word) for word in wanted]


def test_bytes_of_one_size() -> None:
    assert as_binary(pa.array([b"ab", None], pa.binary(2)), "key").to_pylist() == [b"ab", None]


def test_a_column_of_no_type_counts_as_none() -> None:
    rows = pa.record_batch({"key": pa.nulls(3)})
    assert binary_column(rows, "key") is None
    assert binary_column(rows, "value") is None
    with pytest.raises(RowsError, match="column 'key' is of type list"):
        as_binary(pa.array([["a"]]), "key")


def test_headers_of_rows_lie_behind_one_another() -> None:
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[{"key": "cut off"}], None, [{"key": "a", "value": b"1"}, {"key": "b"}], [], [{"key": "c"}]], pa.list_(entry))
    found = header_column(pa.record_batch({"headers": headers}).slice(1))
    assert found is not None
    assert (found.keys.to_pylist(), found.values.to_pylist(), found.counts.tolist()) == (
        [b"a", b"b", b"c"],
        [b"1", None, None],
        [0, 2, 0, 1],
    )
    assert header_column(pa.record_batch({"headers": headers.slice(3, 1)})) is None


def test_views_become_plain_within_lists_too() -> None:
    entry = pa.struct([("key", pa.string_view()), ("value", pa.binary())])
    found = without_views(pa.array([[{"key": "a", "value": b"1"}], None], pa.list_(entry)), "headers")
    assert found.type.value_type.field("key").type == pa.binary()
    assert found.to_pylist() == [[{"key": b"a", "value": b"1"}], None]
    assert without_views(pa.array(["a"], pa.string_view()), "key").type == pa.binary()
    assert without_views(pa.array([7]), "n").to_pylist() == [7]
