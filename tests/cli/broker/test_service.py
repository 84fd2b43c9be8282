"""The printed systemd unit."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.broker import service
from tests.cli.conftest import Ottla


def test_the_unit_is_one_that_systemd_reads() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(service.unit_text("/opt/ottla/bin/ottla", config="/etc/ottla/my server.properties"))
    assert unit["Service"]["Type"] == "notify"
    command = '/opt/ottla/bin/ottla start --data-dir /var/lib/ottla --config "/etc/ottla/my server.properties"'
    assert unit["Service"]["ExecStart"] == command
    assert unit["Service"]["StateDirectory"] == "ottla"
    assert int(unit["Service"]["LimitNOFILE"]) >= 100_000
    assert "ReadWritePaths=/data" in service.unit_text("ottla", data_dir="/data").splitlines()


def test_each_line_stands_in_its_section(offline: Ottla, tmp_path: Path) -> None:
    """systemd ignores lines of another section with a warning; where it is installed it reads the unit itself."""
    text = service.unit_text("/bin/true", config="/etc/hosts", data_dirs=["/data/a", "/var/lib/kafka"], user="root")
    unit, rest = text.split("[Service]")
    assert "RequiresMountsFor=/data/a\n" in unit and "RequiresMountsFor" not in rest
    assert "StateDirectory=kafka\nReadWritePaths=/data/a\n" in rest
    if shutil.which("systemd-analyze"):
        path = tmp_path / "ottla.service"
        path.write_text(text)
        found = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False, timeout=60)
        assert [line for line in found.stderr.splitlines() if path.name in line] == []


def test_words_are_quoted_as_systemd_reads_them() -> None:
    config = '/etc/it\'s \\ 100% of "$HOME"/server.properties'
    (line,) = [line for line in service.unit_text("/opt/ottla", config=config).splitlines() if line.startswith("ExecStart=")]
    assert line.endswith(' --config "/etc/it\'s \\\\ 100%% of \\"$$HOME\\"/server.properties"')


def test_the_unit_of_a_service(offline: Ottla) -> None:
    result = offline("service", "print-unit", "--command", "/opt/ottla", "--config", "/etc/ottla.toml", "--user", "broker")
    assert result.code == 0
    assert "ExecStart=/opt/ottla start --data-dir /var/lib/ottla --config /etc/ottla.toml" in result.out
    assert "User=broker" in result.out
    assert "Type=notify" in result.out


def unit_of(offline: Ottla, config: Path, text: str) -> list[str]:
    config.write_text(text)
    result = offline("service", "print-unit", "--command", "/opt/ottla", "--config", config)
    assert result.code == 0, result
    return result.out.splitlines()


def test_the_directories_of_a_configuration_are_granted(offline: Ottla, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    unit = unit_of(offline, config, "log.dirs=/data/a,/var/lib/kafka,/data/b c,/var/lib/ottla/100%\n")
    assert f"ExecStart=/opt/ottla start --config {config}" in unit
    assert "StateDirectory=kafka ottla/100%%" in unit
    assert 'ReadWritePaths=/data/a "/data/b c"' in unit
    assert 'RequiresMountsFor=/data/a "/data/b c"' in unit


def test_a_configuration_that_leaves_the_directory_to_the_default(offline: Ottla, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    unit = unit_of(offline, config, "num.partitions=3\n")
    assert f"ExecStart=/opt/ottla start --data-dir /var/lib/ottla --config {config}" in unit
    assert "StateDirectory=ottla" in unit
    assert not any(line.startswith("ReadWritePaths") for line in unit)


def test_a_given_directory_wins(offline: Ottla, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("log.dirs=/data/a\n")
    out = offline("service", "print-unit", "--command", "/opt/ottla", "--config", config, "-d", "/srv/kafka").out
    assert f"ExecStart=/opt/ottla start --data-dir /srv/kafka --config {config}\n" in out
    assert "ReadWritePaths=/srv/kafka\n" in out


@pytest.mark.parametrize(("place", "wanted"), [(service.HOMES[0] + "kafka", "false"), ("/srv/home", "true")])
def test_a_home_is_hidden_unless_something_that_the_broker_needs_is_there(place: str, wanted: str) -> None:
    for text in (
        service.unit_text("/opt/ottla", data_dirs=[place]),
        service.unit_text("/opt/ottla", config=f"{place}/server.properties"),
        service.unit_text(f"{place}/bin/ottla"),
    ):
        assert f"ProtectHome={wanted}" in text.splitlines()


@pytest.mark.parametrize("place", service.TEMPORARY)
def test_temporary_directories_are_the_broker_s_own_unless_it_needs_others(place: str) -> None:
    for text in (service.unit_text("/opt/ottla", data_dirs=[f"{place}data"]), service.unit_text(f"{place}bin/ottla")):
        assert "PrivateTmp=false" in text.splitlines()
    assert "PrivateTmp=true" in service.unit_text("/opt/ottla").splitlines()


def test_the_interpreter_of_this_program_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix, wanted in ((service.HOMES[0] + "me/python", "false"), ("/usr", "true")):
        monkeypatch.setattr(sys, "base_prefix", prefix)
        monkeypatch.setattr(sys, "executable", "/opt/ottla/bin/python")
        assert f"ProtectHome={wanted}" in service.unit_text("/opt/ottla/bin/ottla").splitlines()
        assert "ProtectHome=true" in service.unit_text("/opt/other/bin/ottla").splitlines()


@pytest.mark.parametrize(("text", "message"), [("log.dirs=data\n", "'data' is relative"), ("num.partitions=x\n", "num.partitions")])
def test_a_configuration_that_no_service_can_use(offline: Ottla, tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "server.properties"
    config.write_text(text)
    result = offline("service", "print-unit", "--config", config)
    assert (result.code, result.out) == (1, "")
    assert message in result.err


def test_a_configuration_may_come_later(offline: Ottla, tmp_path: Path) -> None:
    result = offline("service", "print-unit", "--config", tmp_path / "none")
    assert (result.code, result.err) == (0, f"{tmp_path}/none does not exist yet, so the unit has no log.dirs of it\n")
    assert "StateDirectory=ottla\n" in result.out
