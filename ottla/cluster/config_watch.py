"""Reads settings, quotas and credentials in the metadata store when this broker registers, and each changed node afterwards
(`change_watch.py`).

The writer of a setting adds a sequential node below `/config/changes` that names the path, in the same write. The controller's broker
removes these nodes. Settings of topics are part of the topics' metadata instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from ottla.base.cluster_metadata import CONFIG_TOPIC, ConfigPut, QuotaPut, ScramPut, SettingPut
from ottla.base.control_messages import UpdateConfigs
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import MetadataStore, Operation, StoreNode, Timers
from ottla.cluster.change_watch import ChangeWatch, Nodes, WatchedNodes
from ottla.controller.damage_notes import DamageNotes, damaged_line
from ottla.controller.loading import settings_in
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.cluster")

FOLDERS = tuple(folder for resource_type, folder in znodes.CONFIG_FOLDERS.items() if resource_type != CONFIG_TOPIC)
ROOTS = (*FOLDERS, znodes.USERS, znodes.CLIENTS, znodes.IPS)

SettingSubject = ConfigPut | QuotaPut
"""The resource or entity of a change, with empty settings."""


def config_watch(
    store: MetadataStore,
    retries: StoreRetries,
    timers: Timers,
    on_settings: Callable[[UpdateConfigs], object],
    removal_of: Callable[[str], list[Operation]],
    damage: DamageNotes,
) -> ChangeWatch[SettingSubject]:
    """Returns a watch that calls `on_settings` with the changed settings, or, if `is_complete` is set in its argument, with all settings.
    On the controller, `removal_of(path)` returns the write that removes a node; on other brokers it returns an empty list."""

    def send(settings: Sequence[SettingPut], *, is_complete: bool) -> None:
        on_settings(UpdateConfigs(controller_id=-1, controller_epoch=-1, broker_epoch=-1, changes=settings, is_complete=is_complete))

    def take_all(nodes: Nodes) -> None:
        settings, notes = settings_in(nodes)
        for note in filter(damage.is_new, notes):
            log.warning(note)
        send(settings, is_complete=True)

    def take(changed: Sequence[tuple[SettingSubject, str, StoreNode | None]]) -> None:
        send([put for subject, path, node in changed for put in _puts(path, subject, node)], is_complete=False)

    watched = WatchedNodes(
        name="settings", base_paths=(), roots=ROOTS, changes=(znodes.CONFIG_CHANGES,), subject_of=_subject_of, take_all=take_all,
        take=take, removal_of=removal_of,
    )  # fmt: skip
    return ChangeWatch(store, retries, timers, watched)


def _subject_of(_path: str, data: bytes) -> tuple[str, SettingSubject] | None:
    """Returns the path that a change names and its subject, or None if the path is not watched. Raises `NodeError`."""
    subject = znodes.setting_at(znodes.read_change(data))
    if isinstance(subject, QuotaPut):
        return znodes.quota_path(subject.entity), subject
    if subject is None or subject.resource_type == CONFIG_TOPIC:
        return None
    return znodes.config_path(subject.resource_type, subject.name), subject


def _puts(path: str, subject: ConfigPut | QuotaPut, node: StoreNode | None) -> list[SettingPut]:
    """Returns the present settings in a node. A missing or damaged node is read as empty, so its former settings end."""
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
