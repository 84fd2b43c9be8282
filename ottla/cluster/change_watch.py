"""Keeps the content below some nodes of the metadata store up to date: reads everything once, and then the nodes that changes name.

A writer adds a sequential node to a folder of changes in the same write, which names the written path. This broker watches these folders
and reads the path of each new node. Once a watch is lost (the connection broke, the session ended) everything is read again; meanwhile the
last known state stays in force. A change is removed after a quarter of an hour, when every broker with a connection has read it; all
brokers try. Settings have a watch of their own (`config_watch.py`), because only the controller's broker removes their changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from ottla.base.immutable import immutable
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Create, Delete, MetadataStore, Outcome, StoreNode, StoreResult, Timers, WatchEvent
from ottla.controller.loading import read_nodes, read_paths
from ottla.metadata_store.znodes import NodeError

log = logging.getLogger("ottla.cluster")

PURGE_MS = 15 * 60 * 1000

Subject = TypeVar("Subject")
Nodes = Mapping[str, StoreNode]


@immutable(kw_only=True)
class Watched(Generic[Subject]):
    """The nodes to watch, and the functions that take their content."""

    name: str
    """For the log."""
    base_paths: Sequence[str]
    """Folders that are made where they are missing."""
    roots: Sequence[str]
    """Paths that are read with everything below them."""
    changes: Sequence[str]
    """Folders of changes; none where no other broker writes."""
    subject_of: Callable[[str, bytes], tuple[str, Subject]]
    """Returns the path of the written node and its subject, from the path and content of a change. Raises `NodeError`."""
    take_all: Callable[[Nodes], object]
    """Is given everything."""
    take: Callable[[Subject, str, StoreNode | None], object]
    """Takes the subject of a change, its path, and the present node; None if the node was removed."""


class ChangeWatch(Generic[Subject]):
    """See the module."""

    def __init__(self, store: MetadataStore, retries: StoreRetries, timers: Timers, watched: Watched[Subject]) -> None:
        self._store = store
        self._retries = retries
        self._timers = timers
        self._watched = watched
        self._generation = 0
        self._seen: dict[str, frozenset[str]] = {}

    def start(self) -> None:
        """Reads everything and watches from then on; again in a new session of the store, which knows nothing of earlier watches."""
        self._generation += 1
        self._seen = {}
        read_paths(self._store, self._watched.base_paths, self._guarded(self._make_folders))

    def _make_folders(self, result: StoreResult, found: Nodes) -> None:
        """Makes the folders that are missing, before the first write; another broker may be doing the same."""
        missing = [path for path in self._watched.base_paths if path not in found]
        if result is not StoreResult.OK:
            self._begin_again(result)
        elif missing:
            self._store.multi([Create(path) for path in missing], self._guarded(self._made_folders))
        else:
            self._read_all()

    def _made_folders(self, outcome: Outcome) -> None:
        if outcome.result is StoreResult.OK:
            self._read_all()
        else:
            self._begin_again(outcome.result)

    def _read_all(self) -> None:
        for folder in self._watched.changes:
            self._look(folder)
        read_nodes(self._store, self._watched.roots, self._guarded(self._on_everything))

    def _on_everything(self, result: StoreResult, nodes: Nodes) -> None:
        if result is StoreResult.OK:
            self._watched.take_all(nodes)
        else:
            self._begin_again(result)

    def _begin_again(self, result: StoreResult) -> None:
        """Reads everything again, in this session or the next one."""
        self._generation += 1
        generation = self._generation
        log.warning("%s: %s; reading all of them again", self._watched.name, result.name)
        self._retries.again(lambda: self.start() if generation == self._generation else None)

    def _look(self, folder: str) -> None:
        def changed(event: WatchEvent) -> None:
            if event is WatchEvent.LOST:
                self._begin_again(StoreResult.CONNECTION_LOST)
            else:
                self._look(folder)

        def listed(result: StoreResult, names: list[str]) -> None:
            if result is StoreResult.OK:
                self._on_names(folder, names)
            else:
                self._begin_again(result)

        self._store.children(folder, self._guarded(listed), watch=self._guarded(changed))

    def _on_names(self, folder: str, names: Sequence[str]) -> None:
        known, self._seen[folder] = self._seen.get(folder), frozenset(names)
        new = [f"{folder}/{name}" for name in names if known is None or name not in known]
        if new:
            self._timers.call_later(PURGE_MS, lambda: self._purge(new))
        if known is not None and new:  # what was there before the first look is read with everything
            read_paths(self._store, new, self._guarded(self._on_changes))

    def _on_changes(self, result: StoreResult, nodes: Nodes) -> None:
        if result is not StoreResult.OK:
            self._begin_again(result)
            return
        subjects: dict[str, Subject] = {}
        for path, node in sorted(nodes.items()):
            try:
                written, subject = self._watched.subject_of(path, node.data)
            except NodeError as error:
                log.warning("%s in the metadata store is passed over: %s", path, error)
                continue
            subjects[written] = subject

        def read(result: StoreResult, found: Nodes) -> None:
            if result is not StoreResult.OK:
                self._begin_again(result)
                return
            for path, subject in subjects.items():
                self._watched.take(subject, path, found.get(path))

        read_paths(self._store, list(subjects), self._guarded(read))

    def _purge(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._store.multi([Delete(path)], lambda _outcome: None)

    def _guarded(self, take: Callable[..., object]) -> Callable[..., None]:
        """Ignores the results of an earlier reading of everything."""
        generation = self._generation

        def taken(*arguments: object) -> None:
            if generation == self._generation:
                take(*arguments)

        return taken
