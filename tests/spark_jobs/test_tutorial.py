"""The steps of docs/tutorial.md work: its test in this run's Spark session, then the pipeline as a process.

`make night` types the commands, which start the pipeline twice, with a kill between. `test_pipeline_process.py` does the same in every run.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs import runner
from tests.docs.pages import DOCS, blocks_of
from tests.docs.runner import PageRun
from tests.spark_jobs.quick_java import SPARK_JAVA

BLOCKS = [block for block in blocks_of(DOCS / "tutorial.md") if block.attributes.get("needs") == "spark"]
FILES = BLOCKS[:2]
"""The pipeline and its test."""
START, RUN, KILL, *PROVE = BLOCKS[2:]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(runner, "SECONDS_MAX", 280)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", SPARK_JAVA)
    run = PageRun(tmp_path)
    for block in FILES:
        run.run(block)
    yield run
    run.close()


def test_the_tests_of_the_tutorial_pass(page: PageRun, spark: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(page.directory))
    module = importlib.import_module("test_prices")
    try:
        (test,) = (made for name, made in vars(module).items() if name.startswith("test_"))
        assert set(inspect.signature(test).parameters) == {"kafka_broker", "spark", "here"}
        fixtures = ("kafka_broker", "kafka_topic", "kafka_group_id", "tmp_path")
        here = inspect.unwrap(module.here)(**{name: request.getfixturevalue(name) for name in fixtures})
        test(request.getfixturevalue("kafka_broker"), spark, here)
    finally:
        for name in ("test_prices", "prices"):
            sys.modules.pop(name, None)


@pytest.mark.night
@pytest.mark.timeout(600)
def test_the_pipeline_of_the_tutorial_runs_and_is_proved(page: PageRun) -> None:
    assert [block.language for block in (START, RUN, KILL)] == ["console"] * 3 and "kill -9" in KILL.text and PROVE
    for block in [START, RUN, KILL, *PROVE]:
        page.run(block)
