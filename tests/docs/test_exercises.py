"""Each fault of docs/exercises.md makes the test fail that the page names. Without a fault all of these tests pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

ROW = re.compile(r"^\| (\d+) \| [^|]+ \| `([\w/]+)` \| `([\w.:]+)` \|$", re.MULTILINE)
EXERCISES = [(number, f"{folder}/{test}") for number, folder, test in ROW.findall((DOCS / "exercises.md").read_text(encoding="utf-8"))]
PATCHES = ROOT / "tests" / "exercises"
FAILED = 1
"""The exit code of pytest when all tests ran and some of them failed."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Path:
    """The sources and their tests."""
    need_program("git")
    directory = tmp_path_factory.mktemp("copy")
    for part in ("ottla", "tests"):
        shutil.copytree(ROOT / part, directory / part)
    shutil.copy2(ROOT / "pyproject.toml", directory)
    return directory


def run(copy: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Without cached bytecode: a file with a fault and the file without it can have the same size and the same second."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300, check=False)


def apply(copy: Path, number: str, *options: str) -> None:
    subprocess.run(["git", "apply", *options, str(PATCHES / f"{number}.patch")], cwd=copy, check=True, timeout=60)


def test_every_patch_has_a_row() -> None:
    assert [number for number, _ in EXERCISES] == sorted(path.stem for path in PATCHES.glob("*.patch"))


def test_without_a_fault_all_tests_pass(copy: Path) -> None:
    done = run(copy, *(test for _, test in EXERCISES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("number", "test"), EXERCISES)
def test_a_fault_is_found(copy: Path, number: str, test: str) -> None:
    apply(copy, number)
    try:
        done = run(copy, test)
    finally:
        apply(copy, number, "--reverse")
    assert done.returncode == FAILED, done.stdout + done.stderr
