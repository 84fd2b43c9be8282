"""Opens a broker's session with ZooKeeper and determines the cluster id, before the event loop runs.

The start waits up to `zookeeper.connection.timeout.ms` (by default the session timeout) for the session, and then up to the same time for
the cluster id. Imported only with `zookeeper.connect`; needs kazoo (extra `ottla[cluster]`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ottla.base.config import BrokerConfig
from ottla.base.errors import StorageError, StoreUnreachable
from ottla.base.ports import Clock, MetadataStore, Random, StoreResult, Timers
from ottla.base.settings.zookeeper import parse_login
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.cluster.cluster_id import KnownCluster, agree_on_cluster_id, read_cluster_id
from ottla.metadata_store import znodes

try:
    from ottla.adapters.zookeeper import ZooKeeperOptions, ZooKeeperStore
    from ottla.adapters.zookeeper_client import TlsFiles
except ModuleNotFoundError as error:
    raise StorageError(f"zookeeper.connect needs the package {error.name}; install it: pip install {error.name}") from None

AGAIN = frozenset({StoreResult.CONNECTION_LOST, StoreResult.UNKNOWN, StoreResult.SESSION_EXPIRED})


def open_store(
    config: BrokerConfig, clock: Clock, timers: Timers, call_on_loop: Callable[[Callable[[], object]], object]
) -> ZooKeeperStore:
    """Returns a store with a session. Raises `StoreUnreachable`."""
    store = ZooKeeperStore(_options(config), clock=clock, timers=timers, call_on_loop=call_on_loop)
    store.connect(timeout_ms(config))
    return store


def timeout_ms(config: BrokerConfig) -> int:
    given = config.zookeeper_connection_timeout_ms
    return config.zookeeper_session_timeout_ms if given is None else given


def find_cluster_id(store: ZooKeeperStore, config: BrokerConfig, known: KnownCluster | None, random: Random) -> str:
    """Returns the cluster id. A new cluster gets the id in the data directories, else the configured one, else a random one.

    Raises `StorageError` if the directories hold logs but ZooKeeper has no cluster: it is another ZooKeeper, or has lost its data. Raises
    `StorageError` too if ZooKeeper refuses the request or its node cannot be read, and `StoreUnreachable` without an answer in time.
    """
    end = time.monotonic() + timeout_ms(config) / 1000
    result, text = _ask(store, read_cluster_id, end)
    if result is StoreResult.NO_NODE:
        if known is not None and known.has_logs:
            here = f"{known.directory} holds logs of cluster {known.cluster_id}"
            raise StorageError(f"zookeeper.connect={config.zookeeper_connect} knows no cluster, but {here}; is it the right chroot?")
        fresh = uuid_to_text(fresh_uuid(random.token_bytes(16)))
        proposed = known.cluster_id if known is not None else config.ottla_cluster_id or fresh
        result, text = _ask(store, lambda store, done: agree_on_cluster_id(store, proposed, done), end)
    if result is not StoreResult.OK:
        raise StorageError(text)
    return text


def _ask(
    store: ZooKeeperStore, question: Callable[[MetadataStore, Callable[[StoreResult, str], object]], object], end: float
) -> tuple[StoreResult, str]:
    """Repeats the question until it is answered. Raises `StoreUnreachable`."""
    while True:
        answers: list[tuple[StoreResult, str]] = []
        question(store, lambda *answer: answers.append(answer))  # noqa: B023
        is_answered = store.wait(lambda: bool(answers), _left_ms(end))  # noqa: B023
        if is_answered and answers[0][0] not in AGAIN:
            return answers[0]
        if not is_answered or not store.wait(store.is_connected, _left_ms(end)):
            raise StoreUnreachable("the connection to ZooKeeper was lost during the start")


def _left_ms(end: float) -> int:
    return max(0, int((end - time.monotonic()) * 1000))


def _options(config: BrokerConfig) -> ZooKeeperOptions:
    address = config.zookeeper_address
    files: dict[str, Any] = {
        "certificate": config.zookeeper_ssl_keystore_location,
        "password": config.zookeeper_ssl_keystore_password,
        "authorities": config.zookeeper_ssl_truststore_location,
        "is_host_checked": bool(config.zookeeper_ssl_endpoint_identification_algorithm),
    }
    return ZooKeeperOptions(
        servers=address.servers,
        chroot=address.chroot,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        is_acl_set=config.zookeeper_set_acl,
        digest=config.ottla_zookeeper_digest,
        login=parse_login(config.ottla_zookeeper_sasl) if config.ottla_zookeeper_sasl else None,
        tls=TlsFiles(**files) if config.zookeeper_ssl_client_enable else None,
        sensitive_paths=znodes.SENSITIVE_PATHS,
    )
