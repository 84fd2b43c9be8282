"""Each fault of docs/exercises.md makes the test fail that the page names, and that test passes without the fault."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

ROW = re.compile(r"^\| (\d+) \| [^|]+ \| `([\w/]+)` \| `([\w.:]+)` \|$", re.MULTILINE)
PAGE = ROOT / "docs" / "exercises.md"
EXERCISES = [(number, f"{folder}/{test}") for number, folder, test in ROW.findall(PAGE.read_text(encoding="utf-8"))]
FAILED = 1
"""The exit code of pytest when all tests ran and some of them failed."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources and their tests."""
    directory = tmp_path_factory.mktemp("copy")
    for part in ("ottla", "tests"):
        shutil.copytree(ROOT / part, directory / part)
    shutil.copy2(ROOT / "pyproject.toml", directory)
    return directory


def run_test(copy: Path, test: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300, check=False)


def apply(copy: Path, number: str, *options: str) -> None:
    patch = ROOT / "tests" / "exercises" / f"{number}.patch"
    subprocess.run(["git", "apply", *options, str(patch)], cwd=copy, check=True, timeout=60)


def test_every_patch_has_a_row() -> None:
    assert [number for number, _ in EXERCISES] == sorted(path.stem for path in (ROOT / "tests" / "exercises").glob("*.patch"))


@pytest.mark.parametrize(("number", "test"), EXERCISES)
def test_the_fault_is_found(copy: Path, number: str, test: str) -> None:
    apply(copy, number)
    try:
        planted = run_test(copy, test)
    finally:
        apply(copy, number, "--reverse")
    assert planted.returncode == FAILED, planted.stdout + planted.stderr
    sound = run_test(copy, test)
    assert sound.returncode == 0, sound.stdout + sound.stderr
