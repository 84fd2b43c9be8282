"""Files that only this user may read, whatever the umask: they hold what clients have sent, names, or secrets."""

from __future__ import annotations

import os


def private(path: str, flags: int) -> int:
    """An opener for `open`; returns the descriptor."""
    return os.open(path, flags, 0o600)
