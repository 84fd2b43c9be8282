"""Reads and writes ZooKeeper for tools that connect to ZooKeeper instead of a broker, as Kafka's tools did until 3.9. Such a tool finds
brokers, and writes settings that must exist before the first broker starts.

A tool can have an identity in ZooKeeper, by a login (a JAAS file) or a TLS certificate. This identity then owns the nodes that the tool
creates, and no other identity can read nodes with secrets. Needs kazoo (extra `ottla[cluster]`). Every failure is one line."""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from ottla.adapters.clock import SystemClock
from ottla.base.cluster_metadata import CONFIG_BROKER
from ottla.base.errors import StorageError, StoreUnreachable
from ottla.base.settings.setting import SettingError
from ottla.base.settings.zookeeper import ZooKeeperAccess, parse_connect
from ottla.metadata_store import znodes
from ottla.security.scram_server import SALT_BYTES, make_credential

try:
    from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
    from kazoo.security import OPEN_ACL_UNSAFE

    from ottla.adapters.zookeeper_client import LinkState, TlsFiles, ZooKeeperClient, creator_acl, tls_context
except ModuleNotFoundError as error:
    raise StorageError(f"--zookeeper needs the package {error.name}; install it: pip install {error.name}") from None

CONNECT_SECONDS = 30.0
"""Limit for opening the session, in seconds, as in Kafka's tools."""
END_SECONDS_MAX = 5.0
SESSION_TIMEOUT_MS = 10_000


class StoredNode(NamedTuple):
    """A node. `data` is None if the node may have secrets, or if this identity may not read it. `size` is in bytes."""

    data: bytes | None
    size: int
    children: list[str]
    version: int
    modified_ms: int
    is_ephemeral: bool


class ZooKeeperTools:
    """A session with the ZooKeeper of one cluster. Raises `StoreUnreachable`, and `StorageError` for any other failure."""

    def __init__(self, connect: str, access: ZooKeeperAccess | None = None, timeout_s: float = CONNECT_SECONDS) -> None:
        try:
            address = parse_connect(connect)
        except SettingError as error:
            raise StorageError(str(error)) from None
        self._connect = connect
        self._root = address.chroot
        self._access = access or ZooKeeperAccess()
        logging.getLogger("ottla.zookeeper").addHandler(logging.NullHandler())  # a refused login raises, so it is not logged as well
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in address.servers)
        self._client = self._begin(hosts, timeout_s)

    def _begin(self, hosts: str, timeout_s: float) -> ZooKeeperClient:
        access, has_begun = self._access, threading.Event()
        files = TlsFiles(
            certificate=access.certificate, password=access.password, authorities=access.authorities, is_host_checked=access.is_host_checked
        )  # fmt: skip
        try:
            tls = tls_context(files) if access.is_tls else None
        except OSError as error:
            raise StorageError(f"zookeeper.ssl: {error}") from None
        client = ZooKeeperClient(
            hosts, session_timeout_ms=SESSION_TIMEOUT_MS, digest=access.digest, login=access.login, tls=tls,
            now_ms=SystemClock().monotonic_ms, on_refusal=has_begun.set,
            on_link=lambda state, _: has_begun.set() if state is LinkState.UP else None,
        )  # fmt: skip
        client.start_async()
        is_reached = has_begun.wait(timeout_s)
        if is_reached and not client.refusal:
            return client
        reason = f": {client.refusal}" if client.refusal else f" within {timeout_s:g} s"
        client.end(END_SECONDS_MAX)
        raise StoreUnreachable(f"no session with ZooKeeper at {self._connect}{reason}")

    def __enter__(self) -> ZooKeeperTools:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.end(END_SECONDS_MAX)

    def brokers(self) -> dict[int, dict[str, str]]:
        """Returns the addresses (host:port) of the registered brokers, by broker id and protocol (PLAINTEXT ...). Brokers that
        this identity may not read are not included.
        """
        found: dict[int, dict[str, str]] = {}
        try:
            names = self._client.get_children(self._root + znodes.BROKER_IDS)
            for name in sorted(name for name in names if name.isdecimal()):
                with suppress(NoNodeError, NoAuthError):  # deleted meanwhile, or not readable for this identity
                    data, _ = self._client.get(f"{self._root}{znodes.BROKER_IDS}/{name}")
                    found[int(name)] = _addresses(int(name), data)
        except NoNodeError:
            return {}
        except NoAuthError:
            raise StorageError(self._not_let("read", znodes.BROKER_IDS)) from None
        except KazooException as error:
            raise StorageError(f"{znodes.BROKER_IDS} in ZooKeeper at {self._connect}: {str(error) or type(error).__name__}") from None
        return found

    def other_chroots(self) -> list[str]:
        """If this chroot has no cluster, returns the chroots that have one, sorted: the ensemble's root ("/") and its children are
        searched. Nodes that this identity may not read are not included. Raises `StorageError`.
        """
        try:
            if self._client.exists(self._root + znodes.BROKER_IDS) is not None:
                return []
            found = ["/"] if self._client.exists(znodes.BROKER_IDS) is not None else []
            with suppress(NoAuthError):
                names = sorted(self._client.get_children("/"))
                found += [f"/{name}" for name in names if self._client.exists(f"/{name}{znodes.BROKER_IDS}") is not None]
        except KazooException as error:
            raise StorageError(f"{znodes.BROKER_IDS} in ZooKeeper at {self._connect}: {str(error) or type(error).__name__}") from None
        return found

    def node(self, path: str) -> StoredNode | None:
        """Returns the node at a path below the cluster's root; None if there is no such node. Raises `StorageError`."""
        where = (self._root + path.rstrip("/")) or "/"
        try:
            stat = self._client.exists(where)
            if stat is None:
                return None
            children, data = [], None
            with suppress(NoAuthError):
                children = sorted(self._client.get_children(where))
                if not any(path == secret or path.startswith(f"{secret}/") for secret in znodes.SENSITIVE_PATHS):
                    data = bytes(self._client.get(where)[0])
        except NoNodeError:
            return None
        except (KazooException, ValueError) as error:
            raise StorageError(f"{path} in ZooKeeper at {self._connect}: {str(error) or type(error).__name__}") from None
        return StoredNode(data, stat.dataLength, children, stat.version, stat.mtime, bool(stat.ephemeralOwner))

    def alter_broker_configs(self, name: str, changes: Mapping[str, str], deletions: Collection[str]) -> None:
        """Changes the settings of one broker; the empty name changes the defaults of all brokers."""
        self._alter(znodes.config_path(CONFIG_BROKER, name), changes, deletions)

    def alter_credentials(self, user: str, passwords: Mapping[str, tuple[str, int]], deletions: Collection[str]) -> None:
        """Changes SCRAM credentials. `passwords` has password and iterations by mechanism."""
        made = {mechanism: scram_text(mechanism, *password) for mechanism, password in passwords.items()}
        self._alter(znodes.quota_path((("user", user),)), made, deletions)

    def _alter(self, path: str, changes: Mapping[str, str], deletions: Collection[str]) -> None:
        """Writes the node and, in the same transaction, the change notification for running brokers."""
        try:
            self._make(path.rpartition("/")[0])
            self._make(znodes.CONFIG_CHANGES)
            try:
                data, version = self._client.get(self._root + path)
            except NoNodeError:
                data, version = b"", None
            configs = {**znodes.read_config(data), **changes}
            for name in deletions:
                configs.pop(name, None)
            transaction = self._client.transaction()
            if version is None:
                transaction.create(self._root + path, znodes.config_bytes(configs), self._acl(path))
            else:
                transaction.set_data(self._root + path, znodes.config_bytes(configs), version.version)
            note = self._root + znodes.CONFIG_CHANGE_PREFIX, znodes.change_bytes(path), self._acl(znodes.CONFIG_CHANGES)
            transaction.create(*note, sequence=True)
            failures = [result for result in transaction.commit() if isinstance(result, Exception)]
        except NoAuthError:
            raise StorageError(self._not_let("write", path)) from None
        except (KazooException, znodes.NodeError) as error:
            raise StorageError(f"{path} in ZooKeeper at {self._connect}: {str(error) or type(error).__name__}") from None
        if failures:
            raise StorageError(f"{path} in ZooKeeper at {self._connect} has been changed meanwhile; try again")

    def _make(self, path: str) -> None:
        if self._root:
            self._client.ensure_path(self._root, self._acl(""))
        names = path.split("/")
        for count in range(2, len(names) + 1):
            upper = "/".join(names[:count])
            self._client.ensure_path(self._root + upper, self._acl(upper))

    def _acl(self, path: str) -> Any:
        return creator_acl(path, znodes.SENSITIVE_PATHS) if self._access.has_identity else OPEN_ACL_UNSAFE

    def _not_let(self, what: str, path: str) -> str:
        how = "" if self._access.has_identity else "; it has no identity there (a JAAS file in KAFKA_OPTS, or --zk-tls-config-file)"
        return f"ZooKeeper at {self._connect} does not let this program {what} {path}{how}"


def scram_text(mechanism: str, password: str, iterations: int) -> str:
    """Returns a credential in Kafka's format in ZooKeeper."""
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
