"""A broker found by its data directory: its state, its end, and the removal of what it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def test_a_broker_is_found_by_its_directory_and_stopped(offline: Ottla, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data) as broker:
        found = json.loads(offline("status", "-d", data, "-o", "json").out)
        assert found["running"] is True
        assert found["address"] == broker.direct_server
        assert found["answer_ms"] > 0
        refused = offline("reset", "-d", data, "--yes")
        assert (refused.code, refused.out) == (1, "")
        assert "stop it first" in refused.err
        stopped = offline("stop", "-d", data)
        assert stopped.code == 0
        assert stopped.out.startswith(f"broker {found['pid']} has stopped")
        assert (data / ".kafka_cleanshutdown").exists()
    assert offline("status", "-d", data).code == 1
    again = offline("stop", "-d", data)
    assert (again.code, again.err) == (1, f"error: no broker runs in {data}; name its directory with --data-dir\n")


def test_reset_empties_a_brokers_directory_and_no_other(offline: Ottla, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "t-0").mkdir(parents=True)
    (data / "t-0" / "0.log").write_bytes(b"x")
    refused = offline("reset", "-d", data, "--yes")
    assert refused.code == 1
    assert "nothing was removed" in refused.err
    (data / "meta.properties").write_text("version=0\n")
    unasked = offline("reset", "-d", data)
    assert unasked.code == 2
    assert (data / "t-0" / "0.log").exists()
    assert offline("reset", "-d", data, "--force").code == 0
    assert list(data.iterdir()) == []
    assert json.loads(offline("reset", "-d", data, "--yes", "-o", "json").out) == {"removed": []}


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


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("dev", "--brokers", "3"), "runs one broker, not 3"),
        (("start", "--sasl"), "does not offer SASL"),
        (("start", "--acls"), "does not offer access control lists"),
        (("start", "--console-port", "8080"), "does not offer the console"),
        (("start", "--ports", "1,2"), "runs one broker, not 2"),
        (("start", "--config", "no-such-file"), "cannot read no-such-file"),
        (("start", "--set", "num.partitions=many"), "num.partitions"),
        (("start", "--set", "nonsense"), "not of the form key=value"),
        (("start", "--seed-topic", "a:b"), "not NAME or NAME:PARTITIONS"),
        (("start", "--as-version", "9.9", "--ephemeral"), "ottla.advertise.level"),
    ],
)
def test_what_cannot_be_started_is_one_line(offline: Ottla, words: tuple[str, ...], what: str) -> None:
    result = offline(*words)
    assert (result.code, result.out) == (1, "")
    assert what in result.err
    assert result.err.count("\n") == 1


def test_dev_leaves_nothing_behind(offline: Ottla, tmp_path: Path) -> None:
    """`dev` has a directory of its own; its one line on stdout says where it listens."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "ottla.cli.main", "dev", "--port", "0", "--seed-topic", "a:2,b", "--log-format", "json", "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("READY 127.0.0.1:")
            assert len(list(tmp_path.glob("ottla-*"))) == 1
            listed = offline("topic", "list", "-b", line.split()[1], "-o", "plain")
            assert [row.split("\t")[0] for row in listed.out.splitlines()] == ["a", "b"]
        finally:
            process.terminate()
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert list(tmp_path.glob("ottla-*")) == []
    assert all(json.loads(entry) for entry in err.splitlines())


def test_a_bad_setting_leaves_no_temporary_directory(offline: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert offline("dev", "--set", "num.partitions=x").code == 1
    assert list(tmp_path.iterdir()) == []
    assert offline("start", "--ephemeral", "-d", tmp_path / "x").code == 2


def test_ephemeral_removes_only_what_it_has_made(offline: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """log.dirs given in full is where the data lies, whatever else is said; it stays."""
    data = tmp_path / "data"
    (data / "t-0").mkdir(parents=True)
    (data / "meta.properties").write_text("damaged")
    assert offline("start", "--ephemeral", "--set", f"log.dirs={data}", "--port", "0").code == 1
    assert (data / "t-0").exists()


def test_settings_reach_the_broker(offline: Ottla, tmp_path: Path) -> None:
    with Broker(settings={"num.partitions": 4}, data_dir=tmp_path / "data") as broker:
        described = offline("config", "describe", "--broker", "0", "--all", "-b", broker.bootstrap_server, "-o", "json")
    values = {entry["key"]: entry["value"] for entry in json.loads(described.out)["configs"]}
    assert values["num.partitions"] == "4"


def test_the_unit_of_a_service(offline: Ottla) -> None:
    result = offline("service", "print-unit", "--command", "/opt/ottla", "--config", "/etc/ottla.toml", "--user", "broker")
    assert result.code == 0
    assert "ExecStart=/opt/ottla start --data-dir /var/lib/ottla --config /etc/ottla.toml" in result.out
    assert "User=broker" in result.out
    assert "Type=notify" in result.out
