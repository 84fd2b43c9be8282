"""The package can be imported where neither pyspark nor pyarrow is installed. Its errors are found in Spark's messages."""

from __future__ import annotations

import subprocess
import sys

from ottla.spark.errors import OptionError, PipelineError, error_in, reason_of

BLOCKED = """
import sys
for name in ("pyspark", "pyarrow", "pandas", "numpy"):
    sys.modules[name] = None
import ottla.spark
import ottla.spark.errors
"""


def test_the_package_needs_neither_pyspark_nor_pyarrow() -> None:
    subprocess.run([sys.executable, "-c", BLOCKED], check=True)


def test_an_error_of_ours_is_found_in_what_spark_makes_of_it() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: "
        "ottla.spark.errors.OptionError: topics: no such option; did you mean topic?\n SQLSTATE: 38000 SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nCurrent State: ACTIVE"
    )
    found = error_in(text)
    assert type(found) is OptionError and str(found) == "topics: no such option; did you mean topic?"
    assert reason_of(found) == reason_of(RuntimeError(text)) == "OptionError: topics: no such option; did you mean topic?"
    assert type(error_in("ottla.spark.tables.errors.OtherError: x SQLSTATE: 38000")) is PipelineError
    assert error_in("ValueError: bad") is None
