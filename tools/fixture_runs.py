"""Runs the examples of docs/testing.md again and again on a part of a core, and counts the failures.

`python -m tools.fixture_runs --runs 10000 --cores 0.3` runs as a reader would: tests with pytest, scripts with Python. One run is one test
or script. The output of a failure is printed. The exit code is 1 if a run has failed. The limit of CPU time is a control group of Linux,
which needs root; without root, run it in a container with `--cpus 0.3` and give `--cores 0`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from tests.docs.pages import DOCS, blocks_of
from tests.docs.runner import CONFTEST, UNUSED_PLUGINS

GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
PERIOD_US = 100_000
REPEATS = 10
"""Runs of each test in one process of pytest. Starting pytest takes longer than most examples."""
SECONDS_MAX = 1_800


@contextmanager
def limited(cores: float) -> Iterator[None]:
    """Limits this process and its descendants to `cores` of CPU time; 0 is no limit. Raises OSError if that is not allowed."""
    if not cores:
        yield
        return
    parent = next(path for path in GROUPS if path.exists())
    group = parent / f"ottla-fixture-runs-{os.getpid()}"
    group.mkdir()
    try:
        is_version_2 = (group / "cpu.max").exists()
        limit = f"{int(cores * PERIOD_US)} {PERIOD_US}" if is_version_2 else str(int(cores * PERIOD_US))
        (group / ("cpu.max" if is_version_2 else "cpu.cfs_quota_us")).write_text(limit)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def write_examples(directory: Path) -> tuple[list[list[str]], list[str]]:
    """Writes the examples as files. Returns the files of tests, each list for one process of pytest, and the files of scripts."""
    shared: list[str] = []
    alone: list[list[str]] = []
    scripts: list[str] = []
    for block in blocks_of(DOCS / "testing.md"):
        if block.language != "python" or "needs" in block.attributes or block.text.startswith(CONFTEST):
            continue
        is_test = re.search(r"^(    )?def test_", block.text, re.MULTILINE) is not None
        name = f"{'test_' if is_test else ''}line_{block.line}.py"
        (directory / name).write_text(block.text)
        if not is_test:
            scripts.append(name)
        elif "@pytest.fixture" in block.text:  # It has a broker with other settings.
            alone.append([name])
        else:
            shared.append(name)
    return [shared, *alone], scripts


def run_tests(directory: Path, files: list[str]) -> tuple[int, int, str]:
    """Runs each test of these files `REPEATS` times. Returns the number of runs, the number of failures, and pytest's output."""
    plugins = [word for plugin in UNUSED_PLUGINS for word in ("-p", f"no:{plugin}")]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--junitxml=report.xml", "--keep-duplicates", *files * REPEATS]
    report = directory / "report.xml"
    report.unlink(missing_ok=True)
    code, output = _run(command, directory)
    if not report.exists():
        return 1, 1, output
    suite = ElementTree.parse(report).getroot()[0]
    failures = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return int(suite.get("tests", 0)), max(failures, int(code != 0)), output


def _run(command: list[str], directory: Path) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as late:
        return 1, f"not done after {SECONDS_MAX} s: {command}\n{late.stdout!r}"
    return done.returncode, done.stdout


def run(runs_max: int, seconds_max: float) -> tuple[int, int]:
    """Runs all examples in turn until the number of runs or the time is reached. Returns the number of runs and of failures."""
    runs = failures = 0
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-fixture-runs-") as name:
        directory = Path(name)
        tests, scripts = write_examples(directory)
        works = [*tests, *([script] for script in scripts)]
        while runs < runs_max and time.monotonic() < begun_s + seconds_max:
            for files in works:
                if files[0] in scripts:
                    code, output = _run([sys.executable, *files], directory)
                    found = 1, int(code != 0), output
                else:
                    found = run_tests(directory, files)
                runs, failures = runs + found[0], failures + found[1]
                if found[1]:
                    print(found[2], flush=True)
            print(f"{runs} runs, {failures} failures, {time.monotonic() - begun_s:.0f} s", flush=True)
    return runs, failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the examples of docs/testing.md again and again.")
    parser.add_argument("--runs", type=int, default=10_000, help="runs of examples (default: 10000)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after these minutes")
    parser.add_argument("--cores", type=float, default=0.3, help="CPU time of all processes, in cores; 0 is no limit (default: 0.3)")
    args = parser.parse_args()
    try:
        with limited(args.cores):
            return int(run(args.runs, 60 * args.minutes)[1] > 0)
    except PermissionError as error:
        print(f"cannot limit CPU time: {error.strerror}: {error.filename}; run as root, or say --cores 0", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
