"""The options of a table: which ones are refused, and which ones the tasks get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.spark.errors import OptionError
from ottla.spark.tables.storage import storage_options
from ottla.spark.tables.table import Table


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"location": ""}, "location: is empty"),
        ({"location": "hdfs://host/path"}, "location: 'hdfs://host/path' is neither"),
        ({"format": "hudi"}, "format: 'hudi' is none of delta"),
        ({"compression": "brotli"}, "compression: 'brotli' is none of"),
        ({"partition_by": ["a", "b", "a"]}, "partition_by: a, b, a names a column twice"),
        ({"file_bytes": 10}, "file_bytes: 10 is less than"),
        ({"storage": {"aws_key": "x"}}, "storage: 'aws_key' is none of"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        Table(**{"location": "orders", **options})
    assert said in str(caught.value)


def test_a_table_survives_json_with_an_absolute_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = Table("orders", partition_by="day", add_columns=True, storage={"AWS_REGION": "eu-1"})
    found = Table.from_json(table.to_json())
    assert found.location == str(tmp_path / "orders") and found.partition_by == ("day",) and found.add_columns
    assert found.storage == {"aws_region": "eu-1"}
    assert Table.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("location", "uri"),
    [("/data/orders/", "/data/orders"), ("file:///data/a%20b", "/data/a b"), ("s3a://bucket/orders/", "s3://bucket/orders")],
)
def test_locations_have_one_form(location: str, uri: str) -> None:
    assert Table(location).uri == uri


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(Table("s3://bucket/orders", storage={"aws_secret_access_key": "secret"}))


def test_access_comes_from_the_options_and_else_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-2")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    table = Table("s3://bucket/orders", storage={"aws_access_key_id": "mine", "aws_endpoint_url": "http://localhost:9000"})
    wanted = {"aws_access_key_id": "mine", "aws_region": "eu-2", "aws_endpoint_url": "http://localhost:9000", "aws_allow_http": "true"}
    assert storage_options(table) == wanted
    assert storage_options(Table("orders")) == {}
