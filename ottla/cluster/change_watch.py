"""Follows the content below some nodes of the metadata store: reads everything once, then each node that a notification names.

In the write of a node, a writer also adds a change: a sequential node in a folder of changes that names the written path. This broker
watches these folders and reads the path of each new change. If a watch is lost (lost connection, expired session) or a read fails,
everything is read again; meanwhile the last known state stays in force. A broker removes a change 15 minutes after it has seen it; by then
all connected brokers have read it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from ottla.base.immutable import immutable
from ottla.base.loop.procedure import Mailbox, Procedure, Runner
from ottla.base.loop.store_reads import StoreFailure, list_children, write
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Create, Delete, MetadataStore, Operation, StoreNode, StoreResult, Timers, WatchEvent
from ottla.controller.damage_notes import damaged_line
from ottla.controller.loading import NodesRead, read_nodes, read_paths
from ottla.metadata_store.znodes import NodeError

log = logging.getLogger("ottla.cluster")

PURGE_MS = 15 * 60 * 1000

Subject = TypeVar("Subject")
Nodes = Mapping[str, StoreNode]
Events = Mailbox[tuple[str, WatchEvent]]
"""Folders of changes with a watch event."""


@immutable(kw_only=True)
class WatchedNodes(Generic[Subject]):
    """The nodes to watch, and the functions that take their content."""

    name: str
    """Name in log lines."""
    base_paths: Sequence[str]
    """Nodes that are created if they are missing."""
    roots: Sequence[str]
    """Paths to read, with all nodes below them."""
    changes: Sequence[str]
    """Folders of changes; none for a single broker, which is the only writer."""
    subject_of: Callable[[str, bytes], tuple[str, Subject] | None]
    """Takes the path and content of a change. Returns the path of the node that it names, and the subject of the node (for example an ACL
    pattern); None if the node is not watched. Raises `NodeError`."""
    take_all: Callable[[Nodes], object]
    """Called with all nodes after each complete reading."""
    take: Callable[[Sequence[tuple[Subject, str, StoreNode | None]]], object]
    """Called with (subject, path, node) of some changes; the node is None if it was removed."""
    removal_of: Callable[[str], Sequence[Operation]] = lambda path: (Delete(path),)
    """Returns the write that removes a change, or an empty list if another broker removes the change."""


class ChangeWatch(Generic[Subject]):
    """Follows the nodes of one `WatchedNodes`."""

    def __init__(self, store: MetadataStore, retries: StoreRetries, timers: Timers, watched: WatchedNodes[Subject]) -> None:
        self._store = store
        self._retries = retries
        self._timers = timers
        self._watched = watched
        self._following = Runner()

    def start(self) -> None:
        """Reads everything and watches for changes. Called again in each new session of the store, which has no watches yet."""
        self._following.start(self._follow())

    def stop(self) -> None:
        self._following.cancel()

    def _follow(self) -> Procedure[None]:
        while True:
            try:
                yield from self._make_folders()
                yield from self._read_and_watch()
                return
            except StoreFailure as failure:
                log.warning("%s: %s; reading all of them again", self._watched.name, failure.result.name)
            yield self._retries.again

    def _make_folders(self) -> Procedure[None]:
        """Creates the missing base nodes. Raises `StoreFailure` if another broker creates them at the same time."""
        found = yield from self._read(read_paths, self._watched.base_paths)
        missing = [Create(path) for path in self._watched.base_paths if path not in found]
        if missing:
            outcome = yield from write(self._store, missing)
            if outcome.result is not StoreResult.OK:
                raise StoreFailure(outcome.result)

    def _read_and_watch(self) -> Procedure[None]:
        """Reads everything, then follows changes until a watch is lost, which raises `StoreFailure`. Returns if there are no folders to
        watch."""
        seen: dict[str, frozenset[str]] = {}
        events: Events = Mailbox()
        for folder in self._watched.changes:
            yield from self._new_changes(folder, seen, events)  # Their nodes are part of the complete reading below.
        self._watched.take_all((yield from self._read(read_nodes, self._watched.roots)))
        while seen:
            folder, event = yield from events.take()
            if event is WatchEvent.LOST:
                raise StoreFailure(StoreResult.CONNECTION_LOST)
            yield from self._read_changes((yield from self._new_changes(folder, seen, events)))

    def _new_changes(self, folder: str, seen: dict[str, frozenset[str]], events: Events) -> Procedure[list[str]]:
        """Watches a folder. Returns the paths of changes that are not in `seen`, and schedules their removal."""
        names = yield from list_children(self._store, folder, lambda event: events.put((folder, event)))
        if names is None:
            raise StoreFailure(StoreResult.NO_NODE)
        known, seen[folder] = seen.get(folder, frozenset()), frozenset(names)
        new = [f"{folder}/{name}" for name in names if name not in known]
        if new:
            self._timers.call_later(PURGE_MS, lambda: self._purge(new))
        return new

    def _read_changes(self, paths: Sequence[str]) -> Procedure[None]:
        """Reads the nodes that these changes name, and passes them to `take`."""
        subjects: dict[str, Subject] = {}
        changes = yield from self._read(read_paths, paths)
        for path, node in sorted(changes.items()):
            try:
                found = self._watched.subject_of(path, node.data)
            except NodeError as error:
                log.warning(damaged_line(path, error))
                continue
            if found is not None:
                subjects[found[0]] = found[1]
        if subjects:
            nodes = yield from self._read(read_paths, list(subjects))
            self._watched.take([(subject, path, nodes.get(path)) for path, subject in subjects.items()])

    def _read(self, read: Callable[[MetadataStore, Sequence[str], NodesRead], None], paths: Sequence[str]) -> Procedure[Nodes]:
        result, nodes = yield partial(read, self._store, paths)
        if result is not StoreResult.OK:
            raise StoreFailure(result)
        found: Nodes = nodes
        return found

    def _purge(self, paths: Sequence[str]) -> None:
        for path in paths:
            operations = self._watched.removal_of(path)
            if operations:
                self._store.multi(operations, lambda _outcome: None)
