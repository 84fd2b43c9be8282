"""Renews the generation of each log directory of a running broker. An old copy of a directory has an old generation, so it is detected when
it is put back.

A renewal is written to the directories in a thread, and then to one node of the metadata store. A write that fails is not repeated: the
next renewal writes again. At its registration a broker compares the directories with the node (`cluster/registration.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.base.cluster_metadata import Renewal
from ottla.base.errors import StorageError
from ottla.base.ports import Create, MetadataStore, Outcome, Set, StoreResult, Threads
from ottla.metadata_store import znodes
from ottla.server.directories.log_directories import LogDirectoryState

log = logging.getLogger("ottla")


class GenerationRenewals:
    """Renews the generations of one broker that is a member of a cluster."""

    def __init__(
        self, store: MetadataStore, threads: Threads, broker_id: int, directories: Callable[[], Sequence[LogDirectoryState]]
    ) -> None:
        self._store = store
        self._threads = threads
        self._path = znodes.renewals_path(broker_id)
        self._directories = directories
        self._renewed: dict[str, Renewal] = {}
        self._is_running = False

    def renew(self) -> None:
        """Begins a renewal, unless one is in progress or no online directory has a generation."""
        due = [directory for directory in self._directories() if directory.is_online and directory.generations]
        if due and not self._is_running:
            self._is_running = True
            self._threads.run(lambda: _renew(due), self._store_all)

    def _store_all(self, renewed: dict[str, Renewal]) -> None:
        """Stores the renewals of all directories. A directory whose renewal failed keeps its previous renewal."""
        self._renewed.update(renewed)
        data = znodes.renewals_bytes(self._renewed)

        def written(outcome: Outcome) -> None:
            if outcome.result is StoreResult.NO_NODE:
                self._store.multi([Create(self._path, data)], lambda _outcome: self._end())
            else:
                self._end()

        self._store.multi([Set(self._path, data, -1)], written)

    def _end(self) -> None:
        self._is_running = False


def _renew(directories: list[LogDirectoryState]) -> dict[str, Renewal]:
    renewed = {}
    for directory in directories:
        try:
            found = directory.renew_generation()
        except StorageError as error:
            log.warning("%s", error)
        else:
            if found is not None:
                renewed[directory.directory_id] = found
    return renewed
