"""Writes to the broker's log what a partition's log reports about its files: repairs, damage, removed files."""

from __future__ import annotations

import logging

from ottla.base.types import TopicPartition

log = logging.getLogger("ottla.storage")


class Notes(list[str]):
    """The notes of one log, at its opening and after later damage."""

    __slots__ = ("_key",)

    def __init__(self, key: TopicPartition) -> None:
        super().__init__()
        self._key = key

    def append(self, note: str) -> None:
        super().append(note)
        prefix = f"{self._key}: "
        log.warning("%s%s", "" if note.startswith(prefix) else prefix, note)
