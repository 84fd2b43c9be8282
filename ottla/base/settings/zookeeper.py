"""Settings of the metadata store of a cluster, and the form of `zookeeper.connect`: `host:port,host:port/chroot`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.settings.setting import (
    OneOf,
    SettingError,
    at_least,
    boolean,
    integer,
    maybe_integer,
    maybe_password,
    maybe_string,
    settings_of,
    string,
)

PORT = 2181
_TLS_ENABLED = "zookeeper.ssl.client.enable"
PEM = OneOf("PEM", any_case=True)


def name_and_password(text: str | None) -> str:
    """Returns the reason why a text is not `user:password`, or an empty text if it is, or if it is None."""
    user, _, password = (text or "").partition(":")
    return "" if text is None or (user and password) else "Expected user:password"


class ZooKeeperSettings:
    """ZooKeeper's address, and the broker's authentication at ZooKeeper."""

    zookeeper_connect = maybe_string(
        "zookeeper.connect", "ZooKeeper servers of the cluster, host:port,host:port/chroot; not set: a single broker."
    )
    zookeeper_session_timeout_ms = integer(
        "zookeeper.session.timeout.ms",
        18000,
        "A broker that is disconnected from ZooKeeper for longer loses its registration.",
        valid=at_least(1),
    )
    zookeeper_connection_timeout_ms = maybe_integer(
        "zookeeper.connection.timeout.ms", "Time that the start waits for ZooKeeper; not set: zookeeper.session.timeout.ms."
    )
    zookeeper_set_acl = boolean(
        "zookeeper.set.acl",
        False,
        "Whether only the brokers' identity (ottla.zookeeper.digest or ottla.zookeeper.sasl) may change the nodes that they create.",
    )
    zookeeper_ssl_client_enable = boolean("zookeeper.ssl.client.enable", False, "Whether connections to ZooKeeper use TLS.")
    zookeeper_ssl_keystore_location = maybe_string(
        "zookeeper.ssl.keystore.location", "PEM file with the private key and certificate of the broker for ZooKeeper."
    )
    zookeeper_ssl_keystore_password = maybe_password("zookeeper.ssl.keystore.password", "Password of the private key.")
    zookeeper_ssl_keystore_type = string("zookeeper.ssl.keystore.type", "PEM", "Only PEM is supported.", valid=PEM)
    zookeeper_ssl_truststore_location = maybe_string(
        "zookeeper.ssl.truststore.location", "PEM file with the certificate authorities of ZooKeeper; not set: the system's."
    )
    zookeeper_ssl_truststore_type = string("zookeeper.ssl.truststore.type", "PEM", "Only PEM is supported.", valid=PEM)
    zookeeper_ssl_endpoint_identification_algorithm = string(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        "HTTPS: ZooKeeper's certificate must have its host's name. Empty: no check.",
        valid=OneOf("HTTPS", "", any_case=True),
    )
    ottla_zookeeper_digest = maybe_password("ottla.zookeeper.digest", "Identity of the brokers in ZooKeeper, user:password.")
    ottla_zookeeper_sasl = maybe_password(
        "ottla.zookeeper.sasl",
        "SASL login of the brokers at ZooKeeper (DIGEST-MD5), user:password. It is an identity, too.",
        valid=name_and_password,
    )


class ZooKeeperAccess(NamedTuple):
    """The authentication of a tool at ZooKeeper."""

    is_tls: bool = False
    certificate: str | None = None
    password: str | None = None
    """The password of the certificate's key."""
    authorities: str | None = None
    is_host_checked: bool = True
    digest: str | None = None
    login: tuple[str, str] | None = None
    """User and password for SASL."""

    @property
    def has_identity(self) -> bool:
        """Whether the tool has an identity that can own nodes in ZooKeeper's ACLs."""
        return self.digest is not None or self.login is not None


class ZooKeeperAddress(NamedTuple):
    """Servers and chroot; the chroot is empty or begins with a slash."""

    servers: tuple[tuple[str, int], ...]
    chroot: str


def parse_login(text: str) -> tuple[str, str]:
    """Splits `user:password`. The password may have colons."""
    user, _, password = text.partition(":")
    return user, password


def parse_access(texts: Mapping[str, str]) -> ZooKeeperAccess:
    """Parses the settings of `ZooKeeperSettings` by name; other names are ignored, as in Kafka's tools. TLS is used if any setting of TLS
    is given, unless `zookeeper.ssl.client.enable` is false. Raises `SettingError`.
    """
    settings = {setting.name: setting for setting in settings_of(ZooKeeperSettings)}
    values = {name: setting.parse(texts[name]) for name, setting in settings.items() if name in texts}
    login = values.get("ottla.zookeeper.sasl")
    return ZooKeeperAccess(
        is_tls=bool(values.get(_TLS_ENABLED, any(name.startswith("zookeeper.ssl.") for name in values))),
        certificate=values.get("zookeeper.ssl.keystore.location"),
        password=values.get("zookeeper.ssl.keystore.password"),
        authorities=values.get("zookeeper.ssl.truststore.location"),
        is_host_checked=bool(values.get("zookeeper.ssl.endpoint.identification.algorithm", "HTTPS")),
        digest=values.get("ottla.zookeeper.digest"),
        login=None if login is None else parse_login(login),
    )


def parse_connect(text: str) -> ZooKeeperAddress:
    """Parses `zookeeper.connect`. Raises `SettingError` with one sentence."""
    hosts, slash, path = text.strip().partition("/")
    chroot = (slash + path).rstrip("/")
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise SettingError(f"Invalid value {text} for configuration zookeeper.connect: {chroot} is no path of ZooKeeper's")
    return ZooKeeperAddress(tuple(_server(entry.strip(), text) for entry in hosts.split(",")), chroot)


def _server(entry: str, text: str) -> tuple[str, int]:
    host, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        host, port = entry, str(PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16 or (":" in host and not host.startswith("[")):
        raise SettingError(f"Invalid value {text} for configuration zookeeper.connect: Expected host:port,host:port/chroot")
    return host.strip("[]"), int(port)
