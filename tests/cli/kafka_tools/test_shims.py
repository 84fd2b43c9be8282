"""`ottla shims`: scripts with the names of Kafka's tools."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ottla.cli.kafka_tools.tools import NOT_OFFERED, TOOLS
from ottla.cli.main import main
from tests.cli.conftest import Ottla


def test_install_writes_scripts_that_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shims", "install", str(tmp_path / "bin")]) == 0
    assert main(["shims", "install", str(tmp_path / "bin")]) == 0, "our own files may be written again"
    capsys.readouterr()
    names = sorted(path.name for path in (tmp_path / "bin").iterdir())
    assert names == sorted([f"{tool}.sh" for tool in (*TOOLS, *NOT_OFFERED)] + ["kafka-run-class.sh"])
    script = tmp_path / "bin" / "kafka-storage.sh"
    assert os.access(script, os.X_OK)
    done = subprocess.run([script, "random-uuid"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and len(done.stdout) == 23, done.stderr


def test_install_leaves_the_files_of_others_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = tmp_path / "kafka-topics.sh"
    theirs.write_text("#!/bin/bash\n")
    assert main(["shims", "install", str(tmp_path)]) == 1
    assert "exists and was not written by this command; --force overwrites it" in capsys.readouterr().err
    assert theirs.read_text() == "#!/bin/bash\n" and len(list(tmp_path.iterdir())) == 1
    assert main(["shims", "install", "--force", str(tmp_path)]) == 0
    assert "ottla" in theirs.read_text()


def test_scripts_of_every_tool_are_written(offline: Ottla, tmp_path: Path) -> None:
    assert offline("shims", "install", tmp_path).code == 0
    assert {"kafka-topics.sh", "kafka-run-class.sh", "kafka-acls.sh", "zookeeper-server-start.sh"} <= set(os.listdir(tmp_path))
