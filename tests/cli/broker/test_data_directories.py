"""The directories that stop, status and reset are about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ottla


def test_the_directory_comes_from_the_configuration_too(offline: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}\n")
    found = json.loads(offline("status", "--config", config, "-o", "json").out)
    assert found["data_dir"] == [str(tmp_path / "a"), str(tmp_path / "b")]
    monkeypatch.setenv("KAFKA_LOG_DIRS", str(tmp_path / "c"))
    assert json.loads(offline("status", "-o", "json").out)["data_dir"] == [str(tmp_path / "c")]
    monkeypatch.delenv("KAFKA_LOG_DIRS")
    monkeypatch.chdir(tmp_path)
    assert json.loads(offline("status", "-o", "json").out)["data_dir"] == [str(tmp_path / "ottla-data")]
    assert offline("status", "--config", tmp_path / "none").code == 2
