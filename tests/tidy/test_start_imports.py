"""What a single broker's process imports: start-up time and memory are won or lost there, so the list of what must stay out is a test.

Modules are counted, never seconds: a busy machine must not make a test fail.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.tidy.sources import PACKAGE, ROOT

FORBIDDEN = ("rich", "pydantic", "kazoo", "starlette", "click", "typer", "pyspark", "pyarrow", "numpy", "kio", "re2", "crc32c")
LIST_MODULES = "import sys, json, importlib; importlib.import_module(sys.argv[1]); print(json.dumps(sorted(sys.modules)))"


def _imported_by(module: str) -> set[str]:
    command = [sys.executable, "-c", LIST_MODULES, module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout))


def test_the_package_itself_imports_nothing_of_ours() -> None:
    assert {name for name in _imported_by("ottla") if name.startswith("ottla")} == {"ottla"}


@pytest.mark.parametrize(
    "module", [f"ottla.{part}" for part in ("server.app", "cli.main") if (PACKAGE / f"{part.replace('.', '/')}.py").exists()] or ["ottla"]
)
def test_heavy_libraries_stay_out(module: str) -> None:
    assert sorted(set(FORBIDDEN) & _imported_by(module)) == []
