"""Applies `cordoned.log.dirs` to the log directories of this broker (KIP-1066). Directories are in the order of `log.dirs`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ottla.base.config import BrokerConfig
from ottla.base.settings.cordons import CORDONED, cordoned
from ottla.server.directories.log_directories import LogDirectoryState


def cordon(config: BrokerConfig, directories: Sequence[LogDirectoryState]) -> None:
    """Marks the directories that the current value names, as `log.dirs` does or by their absolute paths."""
    for directory, is_cordoned in zip(directories, _cordons(config.cordoned_log_dirs, config, directories), strict=True):
        directory.is_cordoned = is_cordoned


def file_cordons(config: BrokerConfig, directories: Sequence[LogDirectoryState]) -> dict[str, bool]:
    """Returns the path of each directory, and whether the configuration file cordons it."""
    cordons = _cordons(config.static_value(CORDONED), config, directories)
    return {directory.path: is_cordoned for directory, is_cordoned in zip(directories, cordons, strict=True)}


def _cordons(entries: Collection[str], config: BrokerConfig, directories: Sequence[LogDirectoryState]) -> list[bool]:
    names = zip(config.data_directories, (directory.path for directory in directories), strict=True)
    return [bool(cordoned(entries, both)) for both in names]
