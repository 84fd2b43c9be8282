"""The form of `zookeeper.connect`."""

from __future__ import annotations

import pytest

from ottla.base.settings.setting import SettingError
from ottla.base.settings.zookeeper import ZooKeeperAccess, parse_access, parse_connect


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


@pytest.mark.parametrize(
    ("texts", "access"),
    [
        ({}, ZooKeeperAccess()),
        ({"zookeeper.connect": "zoo", "other": "x", "ottla.zookeeper.digest": "a:b"}, ZooKeeperAccess(digest="a:b")),
        ({"ottla.zookeeper.sasl": "brokers:with:colon"}, ZooKeeperAccess(login=("brokers", "with:colon"))),
        ({"zookeeper.ssl.truststore.location": "ca.pem"}, ZooKeeperAccess(is_tls=True, authorities="ca.pem")),
        ({"zookeeper.ssl.client.enable": "false", "zookeeper.ssl.truststore.location": "ca"}, ZooKeeperAccess(authorities="ca")),
        (
            {
                "zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": "k.pem", "zookeeper.ssl.keystore.password": "p",
                "zookeeper.ssl.endpoint.identification.algorithm": "",
            },
            ZooKeeperAccess(is_tls=True, certificate="k.pem", password="p", is_host_checked=False),
        ),
    ],
)  # fmt: skip
def test_an_identity_from_settings(texts: dict[str, str], access: ZooKeeperAccess) -> None:
    assert parse_access(texts) == access
    assert access.has_identity is bool({"ottla.zookeeper.sasl", "ottla.zookeeper.digest"} & set(texts))
