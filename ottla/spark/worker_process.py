"""Spark's Python worker processes: whether this is one, and what keeps its garbage collections short.

After each task a worker collects all garbage. With pyspark, pyarrow and numpy in memory, none of which is garbage, that takes 30 to 40 ms
of CPU, more than most tasks of a small batch. So what the imports have left is taken out of the collector's sight (`gc.freeze`).
"""

from __future__ import annotations

import gc
import sys

_frozen_counts: set[int] = set()
"""How many modules there were at each freeze: a process that has imported nothing since has nothing more to freeze."""


def is_worker_process() -> bool:
    """Whether Spark started this process to run or plan tasks."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name.startswith("pyspark.")


def freeze_imports() -> None:
    """Spares later collections the objects of imported modules. Called where a worker enters our code; does nothing in other processes."""
    count = len(sys.modules)
    if count not in _frozen_counts and is_worker_process():
        _frozen_counts.add(count)
        gc.freeze()
