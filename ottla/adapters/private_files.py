"""Creates files that only this user may read, whatever the umask, for data of clients, names and secrets."""

from __future__ import annotations

import os


def private(path: str, flags: int) -> int:
    """An opener for `open`; returns the descriptor."""
    return os.open(path, flags, 0o600)
