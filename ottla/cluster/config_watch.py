"""The settings and quotas in the metadata store: read when this broker registers, and again for each change.

The writer of a setting adds a sequential node below `/config/changes` that names the path, in the same write. This broker watches these
nodes and reads the path of each new one. Once the watch is lost (the connection broke, the session ended) everything is read again. The
controller's broker removes the nodes after a quarter of an hour, when every connected broker has seen them. Settings of topics are left
out: they are part of the topics' metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ottla.base.cluster_metadata import CONFIG_TOPIC, ConfigPut, QuotaPut, ScramPut, SettingPut
from ottla.base.control_messages import UpdateConfigs
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import MetadataStore, Operation, StoreNode, StoreResult, Timers, WatchEvent
from ottla.controller.damage_notes import DamageNotes, damaged_line
from ottla.controller.loading import read_nodes, read_paths, settings_in
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.cluster")

PURGE_MS = 15 * 60 * 1000
FOLDERS = tuple(folder for resource_type, folder in znodes.CONFIG_FOLDERS.items() if resource_type != CONFIG_TOPIC)
ROOTS = (*FOLDERS, znodes.USERS, znodes.CLIENTS, znodes.IPS)

Settings = Sequence[SettingPut]
Nodes = Mapping[str, StoreNode]
NodesRead = Callable[[StoreResult, dict[str, StoreNode]], object]


class ConfigWatch:
    """Calls `on_settings` with what has changed; a message that is complete names all there is."""

    def __init__(
        self,
        store: MetadataStore,
        retries: StoreRetries,
        timers: Timers,
        on_settings: Callable[[UpdateConfigs], object],
        removal_of: Callable[[str], list[Operation]],
        damage: DamageNotes,
    ) -> None:
        """`removal_of(path)`: the controller's write that removes a node; empty on other brokers."""
        self._store = store
        self._retries = retries
        self._timers = timers
        self._on_settings = on_settings
        self._removal_of = removal_of
        self._damage = damage
        self._seen: set[str] | None = None
        self._generation = 0

    def start(self) -> None:
        """Reads everything, and watches from then on."""
        self._generation += 1
        self._seen = None
        self._look()

    def stop(self) -> None:
        self._generation += 1

    def _look(self) -> None:
        generation = self._generation
        self._store.children(
            znodes.CONFIG_CHANGES,
            lambda result, names: self._on_names(result, names) if generation == self._generation else None,
            watch=lambda event: self._on_change(event) if generation == self._generation else None,
        )

    def _on_change(self, event: WatchEvent) -> None:
        if event is WatchEvent.LOST:
            self._begin_anew()
        else:
            self._look()

    def _begin_anew(self) -> None:
        self._generation += 1
        generation = self._generation
        self._retries.again(lambda: self.start() if generation == self._generation else None)

    def _on_names(self, result: StoreResult, names: list[str]) -> None:
        if result is not StoreResult.OK:
            self._begin_anew()
            return
        known, self._seen = self._seen, set(names)
        new = [name for name in names if known is None or name not in known]
        if new:
            self._timers.call_later(PURGE_MS, lambda: self._purge(new))
        if known is None:
            read_nodes(self._store, ROOTS, self._guarded(self._on_everything))
        elif new:
            read_paths(self._store, [f"{znodes.CONFIG_CHANGES}/{name}" for name in new], self._guarded(self._on_changes))

    def _guarded(self, take: Callable[[Nodes], object]) -> NodesRead:
        """Ignores answers that arrive after the watch was lost: everything is read again."""
        generation = self._generation

        def read(result: StoreResult, nodes: dict[str, StoreNode]) -> None:
            if generation == self._generation:
                if result is StoreResult.OK:
                    take(nodes)
                else:
                    self._begin_anew()

        return read

    def _on_everything(self, nodes: Nodes) -> None:
        settings, notes = settings_in(nodes)
        for note in filter(self._damage.is_new, notes):
            log.warning(note)
        self._send(settings, is_complete=True)

    def _on_changes(self, nodes: Nodes) -> None:
        subjects = [subject for path, node in sorted(nodes.items()) if (subject := _subject(path, node)) is not None]
        paths = {_path_of(subject): subject for subject in subjects}

        def take(found: Nodes) -> None:
            self._send([put for path, subject in paths.items() for put in _puts(path, subject, found.get(path))])

        if paths:
            read_paths(self._store, list(paths), self._guarded(take))

    def _send(self, settings: Settings, *, is_complete: bool = False) -> None:
        message = UpdateConfigs(controller_id=-1, controller_epoch=-1, broker_epoch=-1, changes=settings, is_complete=is_complete)
        self._on_settings(message)

    def _purge(self, names: Sequence[str]) -> None:
        for name in names:
            operations = self._removal_of(f"{znodes.CONFIG_CHANGES}/{name}")
            if operations:
                self._store.multi(operations, lambda _outcome: None)


def _subject(path: str, node: StoreNode) -> ConfigPut | QuotaPut | None:
    """The subject of a change, without its settings; None if it is not watched."""
    try:
        subject = znodes.setting_at(znodes.read_change(node.data))
    except znodes.NodeError as error:
        log.warning(damaged_line(path, error))
        return None
    return None if isinstance(subject, ConfigPut) and subject.resource_type == CONFIG_TOPIC else subject


def _path_of(subject: ConfigPut | QuotaPut) -> str:
    if isinstance(subject, ConfigPut):
        return znodes.config_path(subject.resource_type, subject.name)
    return znodes.quota_path(subject.entity)


def _puts(path: str, subject: ConfigPut | QuotaPut, node: StoreNode | None) -> list[SettingPut]:
    """The present settings in a node. A missing or damaged node sets nothing."""
    user = znodes.user_of(subject.entity) if isinstance(subject, QuotaPut) else None
    nothing: list[SettingPut] = [subject] if user is None else [subject, ScramPut(user, {})]
    if node is None:
        return nothing
    try:
        if isinstance(subject, ConfigPut):
            return [replace(subject, configs=znodes.read_config(node.data))]
        quotas = replace(subject, quotas=znodes.read_quotas(node.data))
        return [quotas] if user is None else [quotas, ScramPut(user, znodes.read_scram(node.data))]
    except znodes.NodeError as error:
        log.warning(damaged_line(path, error))
        return nothing
