"""The form of `zookeeper.connect`."""

from __future__ import annotations

import pytest

from ottla.base.settings.setting import SettingError
from ottla.base.settings.zookeeper import parse_connect


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zoo:2181", [("zoo", 2181)], ""),
        ("zoo", [("zoo", 2181)], ""),
        (" a:1, b:2 ,c/kafka/one/", [("a", 1), ("b", 2), ("c", 2181)], "/kafka/one"),
        ("[::1]:2182,[fe80::2]/k", [("::1", 2182), ("fe80::2", 2181)], "/k"),
        ("zoo:2181/", [("zoo", 2181)], ""),
    ],
)
def test_addresses_that_are_taken(text: str, servers: list[tuple[str, int]], chroot: str) -> None:
    assert parse_connect(text) == (tuple(servers), chroot)


@pytest.mark.parametrize(
    "text", ["", ",", "zoo:", "zoo:x", "zoo:0", "zoo:65536", ":2181", "a:1,,b:2", "::1:2181", "zoo:1/a//b", "zoo:1/../x"]
)
def test_addresses_that_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(SettingError, match=r"^Invalid value .* for configuration zookeeper\.connect: .*$"):
        parse_connect(text)
