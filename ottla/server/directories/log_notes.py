"""The notes of a log about its files, as lines of the broker's log."""

from __future__ import annotations

import logging

from ottla.base.types import TopicPartition

log = logging.getLogger("ottla.storage")


class Notes(list[str]):
    """The notes of one log, when it is opened and whenever it finds damage later."""

    __slots__ = ("_key",)

    def __init__(self, key: TopicPartition) -> None:
        super().__init__()
        self._key = key

    def append(self, note: str) -> None:
        super().append(note)
        prefix = f"{self._key}: "
        log.warning("%s%s", "" if note.startswith(prefix) else prefix, note)
