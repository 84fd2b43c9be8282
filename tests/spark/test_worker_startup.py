"""Workers import the installed pyspark to which the archive belongs, and no other; the user's own `sitecustomize` is run too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.session import WORKER_STARTUP, workers_path
from ottla.spark.worker_startup.sitecustomize import installed_first

pyspark = pytest.importorskip("pyspark")

PACKAGE = Path(pyspark.__file__).parent
ARCHIVES = [str(PACKAGE / "python" / "lib" / "pyspark.zip"), *map(str, (PACKAGE / "python" / "lib").glob("py4j-*.zip"))]


def _run(program: str, *path: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_a_worker_imports_the_installed_pyspark() -> None:
    program = "import pyspark, py4j; print(pyspark.__file__); print(py4j.__file__)"
    assert "pyspark.zip" in _run(program, *ARCHIVES), "as Spark starts it"
    found = _run(program, *ARCHIVES, WORKER_STARTUP).splitlines()
    assert found == [str(PACKAGE / "__init__.py"), str(PACKAGE.parent / "py4j" / "__init__.py")]


def test_the_user_s_own_sitecustomize_is_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("ran = True\n")
    assert _run("import sitecustomize; print(sitecustomize.ran)", *ARCHIVES, WORKER_STARTUP, str(tmp_path)) == "True"


def test_the_archive_of_another_spark_stays_first(tmp_path: Path) -> None:
    elsewhere = "/opt/spark/python/lib/pyspark.zip", "/venv/site-packages/pyspark/python/lib/pyspark.zip", str(tmp_path / "lib" / "a.zip")
    for archive in elsewhere:
        path = [archive, *sys.path]
        assert installed_first(path) == path


def test_the_environment_is_as_it_was_once_spark_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    with workers_path():
        assert os.environ["PYTHONPATH"] == os.pathsep.join([WORKER_STARTUP, "/mine"])
    assert os.environ["PYTHONPATH"] == "/mine"
    monkeypatch.delenv("PYTHONPATH")
    with pytest.raises(ZeroDivisionError), workers_path():
        assert os.environ["PYTHONPATH"] == WORKER_STARTUP
        print(1 / 0)
    assert "PYTHONPATH" not in os.environ
