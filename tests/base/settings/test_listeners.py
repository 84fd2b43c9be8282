"""The addresses in `listeners` and `advertised.listeners`."""

from __future__ import annotations

import pytest

from ottla.base.settings.listeners import Endpoint, parse_endpoints, protocol_map
from ottla.base.settings.setting import SettingError

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INSIDE": "PLAINTEXT", "SSL": "SSL", "CONTROLLER": "SSL"}


def test_addresses() -> None:
    endpoints = parse_endpoints("listeners", ["plaintext://:0", "INSIDE://[::1]:9092"], PROTOCOLS, [])
    assert endpoints == [Endpoint("PLAINTEXT", "", 0), Endpoint("INSIDE", "::1", 9092)]
    assert str(endpoints[1]) == "INSIDE://[::1]:9092"


def test_a_controllers_listener_is_left_out_whatever_its_protocol() -> None:
    assert parse_endpoints("listeners", ["CONTROLLER://:9093"], PROTOCOLS, ["controller"]) == []


@pytest.mark.parametrize("text", ["PLAINTEXT://h:70000", "PLAINTEXT://h:-1", "h:1", "PLAINTEXT://h", "NONE://h:1", ""])
def test_refused(text: str) -> None:
    with pytest.raises(SettingError, match="listeners"):
        parse_endpoints("listeners", [text], PROTOCOLS, [])


def test_protocol_map() -> None:
    assert protocol_map(["a:ssl", "B: PLAINTEXT"]) == {"A": "SSL", "B": "PLAINTEXT"}
    with pytest.raises(SettingError, match="NAME:PROTOCOL"):
        protocol_map(["A"])
