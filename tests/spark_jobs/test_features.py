"""The examples of docs/spark-features.md in this run's Spark session. Spark Connect's is run by `test_connect.py`."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ottla.client
from ottla.spark.verify import verify
from ottla.testing.broker import Broker
from tests.spark_jobs.features_page import FeaturesPage, examples
from tests.spark_jobs.queries import forget_last_commit, lag, stock_records, stock_values, write_numbers
from tests.spark_jobs.test_declarative import EXAMPLE

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture
def page(spark: Any, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> FeaturesPage:
    made = FeaturesPage(broker, tmp_path, request.node.name.removeprefix("test_"))
    write_numbers(broker, made.topic(), range(30))
    return made


def test_available_now(page: FeaturesPage) -> None:
    copy = page.topic("-copy")
    for end in (30, 40):
        page.run("`availableNow`")
        assert stock_values(page.broker, copy) == list(range(end))
        assert lag(page.broker, copy, page.name) == 0
        write_numbers(page.broker, page.name, range(30, 40))


def test_foreach_batch(page: FeaturesPage) -> None:
    large, small = page.topic("-large"), page.topic("-small")
    page.run("`foreachBatch`")
    assert stock_values(page.broker, large) == list(range(10, 30)) and stock_values(page.broker, small) == list(range(10))
    with ottla.client.connect(page.broker.direct_server) as client:
        assert verify(client, "by-size", [large, small]).is_proved


def test_transform_with_state(page: FeaturesPage, spark: Any) -> None:
    """The state goes on over a restart, and a batch that Spark repeats counts nothing twice."""
    sink = page.topic("-counts")
    try:
        page.run("`transformWithState`")
        forget_last_commit(str(page.directory / "counts"))
        write_numbers(page.broker, page.name, [1, 1, 2])
        page.run("`transformWithState`")
    finally:
        spark.conf.unset(STATE_STORE)
    found = Counter((int(record.key()), int(record.value())) for record in stock_records(page.broker, sink))
    assert found == Counter([*((key, 1) for key in range(30)), (1, 3), (2, 2)])


def test_a_wrong_option_is_one_line(page: FeaturesPage) -> None:
    page.run("When a query fails")


def test_a_report_has_the_lag(page: FeaturesPage) -> None:
    page.run("What a query reports")


def test_the_declarative_pipeline_is_the_example() -> None:
    """`test_declarative.py` runs it."""
    code = ast.parse((EXAMPLE / "transformations" / "loud_words.py").read_text())
    code.body = [one for one in code.body[1:] if not (isinstance(one, ast.ImportFrom) and one.module == "__future__")]
    assert ast.unparse(code) == ast.unparse(ast.parse(examples()["Declarative Pipelines"]))


def test_each_example_is_run() -> None:
    first, *others = examples()
    assert first == "# Spark's features, one example each"
    assert set(others) == {
        "`availableNow`", "`foreachBatch`", "`transformWithState`", "Spark Connect", "Declarative Pipelines", "When a query fails",
        "What a query reports",
    }  # fmt: skip
