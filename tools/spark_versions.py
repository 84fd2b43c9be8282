"""`make spark-versions`: runs tests of pipelines with each version of Spark that works, in an environment of its own below `build/`.

usage: python -m tools.spark_versions [4.0 4.1 4.2 4.3] [--python PATH] [--java PATH] [--tests "..."]

An environment has its own pyspark and takes all other packages from `.venv`. With `--python`, the path of another interpreter, it has all
packages of `requirements/` itself, because compiled packages belong to one version of Python; driver and workers then run in it. `--java`
is a JAVA_HOME. CI runs all tests with one version only, the one of `requirements/spark.txt`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / "build" / "sparks"
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
TOO_OLD = "3.5"
REQUIREMENTS = ("dev", "spark")
LENIENT = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark before 4.2 leaves sockets open after `collect`."""
TESTS = (
    "tests/spark/test_source.py",
    "tests/spark/test_spark_versions.py",
    "tests/spark_jobs/test_spark_versions.py",
    "tests/spark_jobs/test_pipeline.py",
    "tests/spark_jobs/test_sink.py",
    "tests/spark_jobs/test_source.py",
    "tests/spark_jobs/test_foreach_batch.py",
    "tests/spark_jobs/test_table_pipeline.py",
)


def environment(version: str, python: str | None) -> Path:
    """Returns the interpreter of an environment with a version of pyspark; makes the environment if it does not exist."""
    interpreter = python or sys.executable
    name = version if python is None else f"{version}-{_tag(python)}"
    folder = ENVIRONMENTS / name
    found = folder / "bin" / "python"
    ready = folder / ".ready"
    if ready.exists():
        return found
    print(f"making {folder.relative_to(ROOT)} ...", flush=True)
    subprocess.run([interpreter, "-m", "venv", "--clear", folder], check=True)
    if python is not None:
        for one in REQUIREMENTS:
            _pip(found, "--require-hashes", "--no-deps", "--requirement", str(ROOT / "requirements" / f"{one}.txt"))
    _pip(found, "--upgrade", f"pyspark=={version}.*")
    others = [sysconfig.get_path("purelib")] if python is None else []
    packages = subprocess.run(
        [found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True
    ).stdout.strip()
    # A path here is searched after the environment's own packages.
    Path(packages, "ottla.pth").write_text("".join(f"{path}\n" for path in [*others, ROOT]))
    ready.touch()
    return found


def _tag(python: str) -> str:
    code = "import sys; print('python%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def run(version: str, python: str | None, java: str | None, tests: Sequence[str], workers: str) -> bool:
    """Runs the tests with a version, and returns whether they pass."""
    interpreter = environment(version, python)
    variables = {**os.environ, **({"JAVA_HOME": java, "PATH": f"{java}/bin{os.pathsep}{os.environ['PATH']}"} if java else {})}
    print(f"\nSpark {version}, {_tag(str(interpreter))}{f', Java in {java}' if java else ''}", flush=True)
    command = [str(interpreter), "-m", "pytest", "-q", "-n", workers, *LENIENT, *tests]
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode == 0


def refuses_too_old() -> bool:
    """Prints what `import ottla.spark` says with a Spark that is too old; returns whether it names the version that is needed."""
    interpreter = environment(TOO_OLD, None)
    done = subprocess.run([interpreter, "-c", "import pyspark, ottla.spark"], capture_output=True, text=True, check=False)
    line = (done.stderr.strip().splitlines() or [""])[-1]
    print(f"\nSpark {TOO_OLD}: {line}", flush=True)
    return done.returncode != 0 and "4.0 or later is needed" in line


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=[], help=f"versions of Spark (default: {' '.join(VERSIONS)}, and {TOO_OLD})")
    parser.add_argument("--python", help="path of another interpreter, for an environment with all packages")
    parser.add_argument("--java", help="a JAVA_HOME")
    parser.add_argument("--tests", default=" ".join(TESTS), help="what pytest runs")
    parser.add_argument("--workers", default="2", help="how many tests at a time (default 2)")
    args = parser.parse_args(argv)
    chosen = args.versions or [TOO_OLD, *VERSIONS]
    passed = {
        version: refuses_too_old() if version == TOO_OLD else run(version, args.python, args.java, args.tests.split(), args.workers)
        for version in chosen
    }
    print("\n" + ", ".join(f"Spark {version}: {'passed' if is_passed else 'FAILED'}" for version, is_passed in passed.items()))
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
