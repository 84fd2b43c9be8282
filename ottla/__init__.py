"""Ottla: Kafka's system in Python. Imports nothing, so the start of a program costs only the modules that the program uses.

`ottla.frame` reads a topic as a DataFrame, and `ottla.write_frame` writes one; they are imported on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers read this name as true; the module `typing` is not needed for it
if TYPE_CHECKING:
    from typing import Any

    from ottla.frames.frame import frame as frame
    from ottla.frames.writing import write_frame as write_frame

_FRAMES = {"frame": "ottla.frames.frame", "write_frame": "ottla.frames.writing"}
"""The modules of the functions for DataFrames."""


def __getattr__(name: str) -> Any:
    if name not in _FRAMES:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_FRAMES[name]), name)
    return found
