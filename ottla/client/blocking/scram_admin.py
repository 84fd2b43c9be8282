"""Reads and changes SCRAM credentials of users with the blocking client: runs the conversations of `core/scram_admin.py`, with salts from
the operating system.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from ottla.client.blocking.cluster import Cluster
from ottla.client.core import scram_admin as conversations
from ottla.client.core.scram_admin import ITERATIONS, ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, SALT_BYTES, Credential, describe_scram

__all__ = [
    "ITERATIONS",
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "MECHANISMS",
    "Credential",
    "alter_scram",
    "describe_scram",
]

def alter_scram(cluster: Cluster, user: str, *, passwords: dict[str, tuple[str, int]] | None = None, deletions: Sequence[str] = ()) -> None:
    """Removes the credentials of the mechanisms in `deletions`, then sets the credentials in `passwords`: (password, iterations) by
    mechanism.
    """
    salted = conversations.alter_scram(
        cluster.core, user, new_salt=lambda: secrets.token_bytes(SALT_BYTES), passwords=passwords, deletions=deletions
    )
    cluster.run(salted)
