"""Claims the log directories of a broker at its start, and determines the cluster id.

An unreadable directory is taken offline; if all are unreadable, the start fails. A directory of another broker or cluster prevents the
start. The cluster id is read from the directories, else from the metadata store, else from the configuration, else a new one is made. In a
cluster of several brokers the metadata store decides: `cluster/cluster_id.py` asks it before the claim.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.base.broker_ports import Ports
from ottla.base.config import BrokerConfig
from ottla.base.errors import DirectoryRefused, StorageError
from ottla.base.ports import Disk, MetadataStore
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.cluster.cluster_id import KnownCluster
from ottla.metadata_store import znodes
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.storage.companion_directories import note_companions, refuse_absent

log = logging.getLogger("ottla")


def lock_directories(directories: Sequence[LogDirectoryState]) -> None:
    """Locks the directories for this process. A directory that cannot be locked because its disk fails is taken offline. Raises
    `StorageError`."""
    for directory in directories:
        _try(directory, directories, directory.lock)


def online(directories: Sequence[LogDirectoryState]) -> list[LogDirectoryState]:
    return [directory for directory in directories if directory.is_online]


def known_cluster(directories: Sequence[LogDirectoryState]) -> KnownCluster | None:
    """Returns the cluster of the first directory with logs, else of the first directory that is not new; None if all are new. An
    unreadable directory is taken offline. Raises `StorageError` if none is left."""
    found: list[KnownCluster] = []

    def read(directory: LogDirectoryState) -> None:
        cluster_id = directory.cluster_id()
        if cluster_id is not None:
            found.append(KnownCluster(cluster_id=cluster_id, directory=directory.path, has_logs=bool(directory.partition_names())))

    for directory in directories:
        _try(directory, directories, lambda: read(directory))  # noqa: B023
    return next((known for known in found if known.has_logs), found[0] if found else None)


def claim_directories(
    ports: Ports, config: BrokerConfig, directories: Sequence[LogDirectoryState], store_name: str, cluster_id: str = ""
) -> str:
    """Claims the directories for this broker and reads their checkpoints. Returns the cluster id. Raises `StorageError`, also if the
    configuration has another cluster id. `cluster_id` is the id in the metadata store if it is known already. Otherwise it is read here
    from the embedded store.
    """
    cluster_id = cluster_id or _find_cluster_id(ports.store, online(directories), store_name)
    wanted = config.ottla_cluster_id
    if cluster_id and wanted and wanted != cluster_id:
        message = f"the cluster that this broker belongs to is {cluster_id}, and CLUSTER_ID (ottla.cluster.id) names {wanted}"
        raise StorageError(f"{message}; leave it out, or start in an empty directory")
    cluster_id = cluster_id or wanted or uuid_to_text(fresh_uuid(ports.random.token_bytes(16)))
    paths = [directory.path for directory in directories]
    for directory in directories:
        directory.belong_to(config.this_broker_id, cluster_id, ports.random)
        if config.is_single_broker:
            directory.before_first_claim = lambda: refuse_absent(ports.disk, paths)
    if config.is_single_broker and len(online(directories)) == len(directories):
        refuse_absent(ports.disk, paths)
    for directory in online(directories):
        _try(directory, directories, lambda: directory.claim(config.this_broker_id, cluster_id, ports.random))  # noqa: B023
    if not config.is_single_broker:
        for directory in online(directories):
            _try(directory, directories, lambda: directory.begin_generation(ports.random))  # noqa: B023
    return cluster_id


def note_start(disk: Disk, config: BrokerConfig, directories: Sequence[LogDirectoryState]) -> None:
    """Notes the boot of the machine and, on a single broker, which directories belong together. The next start compares its directories
    with these notes. Called when this start has succeeded. A failed write is logged."""
    notes = [directory.note_boot for directory in online(directories)]
    if config.is_single_broker:
        paths = {directory.directory_id: directory.path for directory in directories if directory.is_claimed}
        notes.append(lambda: note_companions(disk, paths, are_all=len(paths) == len(directories)))
    for note in notes:
        try:
            note()
        except StorageError as error:
            log.error("%s", error)


def _find_cluster_id(store: MetadataStore, directories: Sequence[LogDirectoryState], store_name: str) -> str:
    """Returns the cluster id of the directories, else of the embedded store, else an empty string. Raises `StorageError` if the store is
    new and a directory holds logs, because the store's file was lost."""
    stored: list[str] = []
    store.get(znodes.CLUSTER_ID, lambda _result, node: stored.append(znodes.read_cluster_id(node.data)) if node else None)
    known = known_cluster(directories)
    if known is None:
        return stored[0] if stored else ""
    if known.has_logs and not stored:
        message = f"{store_name} is new, but {known.directory} holds logs of cluster {known.cluster_id}"
        raise StorageError(f"{message}; restore the file from a copy, or start in an empty directory")
    return known.cluster_id


def _try(directory: LogDirectoryState, directories: Sequence[LogDirectoryState], work: Callable[[], None]) -> None:
    """Runs `work` for a directory. If it fails, takes the directory offline. Raises `StorageError` if this was the last online directory,
    and `DirectoryRefused` for a directory of another broker, cluster or process."""
    try:
        work()
    except DirectoryRefused:
        raise
    except StorageError as error:
        if len(online(directories)) <= 1:
            raise
        log.error("log directory %s is offline: %s", directory.path, error)
        directory.go_offline(str(error))
