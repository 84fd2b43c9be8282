"""Placement and moves of replicas, for code that may block.

Each function is the procedure of the same name in `core/replica_admin.py`, run to its end on a `Cluster`.
"""

from __future__ import annotations

from ottla.client.blocking.cluster import blocking
from ottla.client.core import replica_admin as procedures
from ottla.client.core.replica_admin import Move, Replica

__all__ = [
    "Move",
    "Replica",
    "replicas_of",
    "move_replicas",
    "moves_under_way",
    "log_dirs_of",
    "move_log_dirs",
    "throttle_moves",
    "throttle_log_dirs",
    "clear_throttles",
]

replicas_of = blocking(procedures.replicas_of)
move_replicas = blocking(procedures.move_replicas)
moves_under_way = blocking(procedures.moves_under_way)
log_dirs_of = blocking(procedures.log_dirs_of)
move_log_dirs = blocking(procedures.move_log_dirs)
throttle_moves = blocking(procedures.throttle_moves)
throttle_log_dirs = blocking(procedures.throttle_log_dirs)
clear_throttles = blocking(procedures.clear_throttles)
