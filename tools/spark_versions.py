"""`make spark-versions`: runs tests of pipelines with each version of Spark that works, in an environment of its own below `build/sparks/`.

usage: python -m tools.spark_versions [3.5 4.0 4.1 4.2 4.3] [--tests "..."] [--workers 2]

An environment has its own pyspark and takes all other packages from the one that runs this. Spark uses the Java of JAVA_HOME, or the one on
PATH. CI runs all tests with one version only, the version in `requirements/spark.txt`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / "build" / "sparks"
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
TOO_OLD = "3.5"
LENIENT = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark before 4.2 leaves sockets open after `collect`."""
SINGLE_BATCH = (
    "tests/spark_jobs/test_source.py::test_a_stream_reads_each_record_once_over_restarts",
    "tests/spark_jobs/test_source.py::test_a_replayed_batch_has_the_same_records",
)
"""Tests that expect more than one batch of Spark's trigger `availableNow`, which Spark before 4.2 does not make of a source in Python."""
TESTS = (
    "tests/spark/test_source.py",
    "tests/spark/test_stream_source.py",
    "tests/spark/test_spark_versions.py",
    "tests/spark_jobs/test_spark_versions.py",
    "tests/spark_jobs/test_pipeline.py",
    "tests/spark_jobs/test_sink.py",
    "tests/spark_jobs/test_source.py",
    "tests/spark_jobs/test_foreach_batch.py",
    "tests/spark_jobs/test_table_pipeline.py",
)


def environment(version: str) -> Path:
    """Returns the interpreter of an environment with a version of pyspark; makes the environment if it does not exist."""
    folder = ENVIRONMENTS / version
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        print(f"making {folder.relative_to(ROOT)} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={version}.*"], check=True)
        # Python searches the paths of this file after the environment's own packages.
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        (packages / "ottla.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
        ready.touch()
    return python


def passes(version: str, tests: Sequence[str], workers: str) -> bool:
    """Runs the tests with a version of Spark; returns whether they pass."""
    python = environment(version)
    print(f"\nSpark {version}", flush=True)
    left_out = [f"--deselect={test}" for test in SINGLE_BATCH] if version in ("4.0", "4.1") else []
    command = [str(python), "-m", "pytest", "-q", "-n", workers, *LENIENT, *left_out, *tests]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def is_refused(version: str) -> bool:
    """Imports `ottla.spark` with a Spark that is too old, and prints the error; returns whether the error names the required version."""
    command = [str(environment(version)), "-c", "import pyspark, ottla.spark"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = (done.stderr.strip().splitlines() or [""])[-1]
    print(f"\nSpark {version}\n{line}", flush=True)
    return done.returncode != 0 and "4.0 or later is needed" in line


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=[TOO_OLD, *VERSIONS], help=f"by default {TOO_OLD} and {' '.join(VERSIONS)}")
    parser.add_argument("--tests", default=" ".join(TESTS), help="the tests for pytest")
    parser.add_argument("--workers", default="2", help="tests at a time (default 2)")
    args = parser.parse_args(argv)
    results = {one: is_refused(one) if one == TOO_OLD else passes(one, args.tests.split(), args.workers) for one in args.versions}
    print("\n" + ", ".join(f"Spark {version}: {'passed' if is_passed else 'FAILED'}" for version, is_passed in results.items()))
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
