"""`ottla restore`: see `snapshot.py`."""

from __future__ import annotations

from ottla.cli.broker.snapshot import RESTORE

COMMAND = RESTORE
