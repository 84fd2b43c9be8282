"""Claims the log directories of a broker at its start, and finds out which cluster they belong to.

A directory that cannot be read is offline, unless all of them are. A directory of another broker or cluster refuses the start. The cluster
id comes from the directories, else from the metadata store, else from the configuration, else it is a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.base.config import BrokerConfig
from ottla.base.errors import DirectoryRefused, StorageError
from ottla.base.ports import MetadataStore, Ports
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.controller import znodes
from ottla.server.log_directories import LogDirectoryState

log = logging.getLogger("ottla")


def lock_directories(directories: Sequence[LogDirectoryState]) -> None:
    """Takes all directories for this process. Raises `StorageError`."""
    for directory in directories:
        _try(directory, directories, directory.lock)


def online(directories: Sequence[LogDirectoryState]) -> list[LogDirectoryState]:
    return [directory for directory in directories if directory.is_online]


def claim_directories(ports: Ports, config: BrokerConfig, directories: Sequence[LogDirectoryState], store_name: str) -> str:
    """Makes the directories this broker's and reads their checkpoints; returns the cluster id. Raises `StorageError`."""
    cluster_id = _find_cluster_id(ports.store, online(directories), store_name)
    cluster_id = cluster_id or config.ottla_cluster_id or uuid_to_text(fresh_uuid(ports.random.token_bytes(16)))
    for directory in directories:
        directory.belong_to(config.this_broker_id, cluster_id, ports.random)
    for directory in online(directories):
        _try(directory, directories, lambda: directory.claim(config.this_broker_id, cluster_id, ports.random))  # noqa: B023
    return cluster_id


def _find_cluster_id(store: MetadataStore, directories: Sequence[LogDirectoryState], store_name: str) -> str:
    """The cluster id that is known already, else an empty string."""
    stored: list[str] = []
    store.get(znodes.CLUSTER_ID, lambda _result, node: stored.append(znodes.read_cluster_id(node.data)) if node else None)
    for directory in directories:
        found = directory.cluster_id()
        if found is not None and not stored and directory.partition_names():
            message = f"{store_name} is new, but {directory.path} holds logs of cluster {found}"
            raise StorageError(f"{message}; restore the file from a copy, or start in an empty directory")
        if found is not None:
            return found
    return stored[0] if stored else ""


def _try(directory: LogDirectoryState, directories: Sequence[LogDirectoryState], work: Callable[[], None]) -> None:
    """Does `work` for a directory; takes it offline if that fails, and refuses the start if it was the last one."""
    try:
        work()
    except DirectoryRefused:
        raise
    except StorageError as error:
        if len(online(directories)) <= 1:
            raise
        log.error("log directory %s is offline: %s", directory.path, error)
        directory.go_offline(str(error))
