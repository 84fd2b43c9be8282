"""What tools that know only ZooKeeper's address do there without a broker: they find the brokers, and write settings that must be there
before the first broker is, as Kafka's tools did until 3.9.

Needs kazoo (extra `ottla[cluster]`); every failure is one line.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Collection, Mapping
from types import TracebackType

from ottla.base.cluster_metadata import CONFIG_BROKER
from ottla.base.errors import StorageError, StoreUnreachable
from ottla.base.settings.setting import SettingError
from ottla.base.settings.zookeeper import parse_connect
from ottla.controller import znodes
from ottla.security.scram_server import SALT_BYTES, make_credential

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError
except ModuleNotFoundError as error:
    raise StorageError(f"--zookeeper needs the package {error.name}; install ottla[cluster]") from None

CONNECT_SECONDS = 10.0


class ZooKeeperTools:
    """A connection to one cluster's part of a ZooKeeper. Raises `StoreUnreachable`, and `StorageError` for what is not as it should be."""

    def __init__(self, connect: str, timeout_s: float = CONNECT_SECONDS) -> None:
        try:
            address = parse_connect(connect)
        except SettingError as error:
            raise StorageError(str(error)) from None
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self._connect = connect
        self._root = address.chroot
        self._client = KazooClient(",".join(f"{host}:{port}" for host, port in address.servers))
        try:
            self._client.start(timeout_s)
        except (KazooTimeoutError, KazooException):
            self._client.close()
            raise StoreUnreachable(f"no session with ZooKeeper at {connect} within {timeout_s:g} s") from None

    def __enter__(self) -> ZooKeeperTools:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.stop()
        self._client.close()

    def brokers(self) -> dict[int, dict[str, str]]:
        """The addresses (host:port) of the registered brokers, by protocol (PLAINTEXT ...)."""
        try:
            names = self._client.get_children(self._root + znodes.BROKER_IDS)
        except NoNodeError:
            return {}
        found: dict[int, dict[str, str]] = {}
        for name in sorted(name for name in names if name.isdigit()):
            try:
                data, _ = self._client.get(f"{self._root}{znodes.BROKER_IDS}/{name}")
            except NoNodeError:
                continue  # it has gone since
            found[int(name)] = _addresses(int(name), data)
        return found

    def alter_broker_configs(self, name: str, changes: Mapping[str, str], deletions: Collection[str]) -> None:
        """Changes the settings of one broker, or with an empty name those of all."""
        self._alter(znodes.config_path(CONFIG_BROKER, name), changes, deletions)

    def alter_credentials(self, user: str, passwords: Mapping[str, tuple[str, int]], deletions: Collection[str]) -> None:
        """`passwords`: password and iterations by mechanism."""
        made = {mechanism: scram_text(mechanism, *password) for mechanism, password in passwords.items()}
        self._alter(znodes.quota_path((("user", user),)), made, deletions)

    def _alter(self, path: str, changes: Mapping[str, str], deletions: Collection[str]) -> None:
        """Writes the node, and the note by which brokers that run learn of it, together."""
        try:
            self._client.ensure_path(self._root + path.rpartition("/")[0])
            self._client.ensure_path(self._root + znodes.CONFIG_CHANGES)
            try:
                data, version = self._client.get(self._root + path)
            except NoNodeError:
                data, version = b"", None
            configs = {**znodes.read_config(data), **changes}
            for name in deletions:
                configs.pop(name, None)
            transaction = self._client.transaction()
            if version is None:
                transaction.create(self._root + path, znodes.config_bytes(configs))
            else:
                transaction.set_data(self._root + path, znodes.config_bytes(configs), version.version)
            transaction.create(self._root + znodes.CONFIG_CHANGE_PREFIX, znodes.change_bytes(path), sequence=True)
            failures = [result for result in transaction.commit() if isinstance(result, Exception)]
        except NoAuthError:
            raise StorageError(f"ZooKeeper at {self._connect} does not let this program write {path}") from None
        except (KazooException, znodes.NodeError) as error:
            raise StorageError(f"{path} in ZooKeeper at {self._connect}: {error or type(error).__name__}") from None
        if failures:
            raise StorageError(f"{path} in ZooKeeper at {self._connect} has been changed meanwhile; try again")


def scram_text(mechanism: str, password: str, iterations: int) -> str:
    """A credential as Kafka keeps it in ZooKeeper."""
    made = make_credential(mechanism, password, os.urandom(SALT_BYTES), iterations)
    salt, stored, server = (base64.b64encode(part).decode() for part in (made.salt, made.stored_key, made.server_key))
    return f"salt={salt},stored_key={stored},server_key={server},iterations={iterations}"


def _addresses(broker_id: int, data: bytes) -> dict[str, str]:
    try:
        value = json.loads(data)
        protocols = value.get("listener_security_protocol_map", {})
        listeners = [str(text).partition("://") for text in value.get("endpoints", ())]
        return {str(protocols.get(name, name)): address for name, _, address in reversed(listeners)}
    except (ValueError, AttributeError, TypeError):
        raise StorageError(f"{znodes.BROKER_IDS}/{broker_id} in ZooKeeper is no registration of a broker") from None
