"""A test that needs a missing program is skipped for developers and fails in CI, and a failing test does not affect other tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

LEAKS = """
import gc
import socket

def test_that_fails():
    first, second = socket.socketpair()
    cycle = [first, second]
    cycle.append(cycle)
    assert not cycle

def test_that_passes():
    gc.collect()
"""


def test_a_missing_program_skips_here_and_fails_in_ci(need_program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert need_program("sh").endswith("/sh")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="nothing-like-it is not installed"):
        need_program("nothing-like-it")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="in CI it has to be"):
        need_program("nothing-like-it")


def test_what_a_failed_test_leaves_open_is_not_charged_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "test_leaks.py").write_text(LEAKS)
    command = [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "-p", "tests.conftest", "-p", "no:randomly", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines()[-1].startswith("1 failed, 1 passed"), done.stdout
