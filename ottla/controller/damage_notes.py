"""Remembers the logged lines about damaged nodes of the metadata store, so that repeated readings do not log them again.

A broker reads settings by itself, and again if it is the controller. A controller reads the whole tree again after each write that met
another version.
"""

from __future__ import annotations

LINES_MAX = 10_000
"""Maximum number of remembered lines. The oldest one is forgotten first."""


def damaged_line(path: str, error: Exception) -> str:
    return f"{path} in the metadata store is damaged and skipped: {error}"


class DamageNotes:
    def __init__(self) -> None:
        self._logged: dict[str, None] = {}

    def is_new(self, line: str) -> bool:
        """Returns whether the line is not remembered yet, and remembers it."""
        if line in self._logged:
            return False
        self._logged[line] = None
        if len(self._logged) > LINES_MAX:
            del self._logged[next(iter(self._logged))]
        return True
