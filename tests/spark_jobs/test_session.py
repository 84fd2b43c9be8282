"""The shared session works: Python tasks run in the interpreter of these tests, with pyarrow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def test_tasks_run_in_this_interpreter(spark: Any) -> None:
    def name_interpreter(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"path": [sys.executable]})

    rows = spark.range(1).mapInArrow(name_interpreter, "path string").collect()
    assert {row.path for row in rows} == {sys.executable}
