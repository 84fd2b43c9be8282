"""The package can be imported where neither pyspark nor pyarrow is installed."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = """
import sys
for name in ("pyspark", "pyarrow", "pandas", "numpy"):
    sys.modules[name] = None
import ottla.spark
import ottla.spark.errors
"""


def test_the_package_needs_neither_pyspark_nor_pyarrow() -> None:
    subprocess.run([sys.executable, "-c", BLOCKED], check=True)
