"""The printed systemd unit."""

from __future__ import annotations

import configparser

from ottla.cli.broker import service
from tests.cli.conftest import Ottla


def test_the_unit_is_one_that_systemd_reads() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(service.unit_text("/opt/ottla/bin/ottla", config="/etc/ottla/my server.properties"))
    assert unit["Service"]["Type"] == "notify"
    assert unit["Service"]["ExecStart"] == "/opt/ottla/bin/ottla start --data-dir /var/lib/ottla --config '/etc/ottla/my server.properties'"
    assert unit["Service"]["StateDirectory"] == "ottla"
    assert int(unit["Service"]["LimitNOFILE"]) >= 100_000
    assert "ReadWritePaths=/data" in service.unit_text("ottla", data_dir="/data").splitlines()


def test_the_unit_of_a_service(offline: Ottla) -> None:
    result = offline("service", "print-unit", "--command", "/opt/ottla", "--config", "/etc/ottla.toml", "--user", "broker")
    assert result.code == 0
    assert "ExecStart=/opt/ottla start --data-dir /var/lib/ottla --config /etc/ottla.toml" in result.out
    assert "User=broker" in result.out
    assert "Type=notify" in result.out
