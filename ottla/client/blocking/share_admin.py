"""Administration of share groups (KIP-932), for code that may block.

Each function is the procedure of the same name in `core/share_admin.py`, run to its end on a `Cluster`.
"""

from __future__ import annotations

from ottla.client.blocking.cluster import blocking
from ottla.client.core import share_admin as procedures
from ottla.client.core.share_admin import TYPE, ShareGroup

__all__ = [
    "ShareGroup",
    "TYPE",
    "describe_share_group",
    "share_offsets",
    "alter_share_offsets",
    "delete_share_offsets",
]

describe_share_group = blocking(procedures.describe_share_group)
share_offsets = blocking(procedures.share_offsets)
alter_share_offsets = blocking(procedures.alter_share_offsets)
delete_share_offsets = blocking(procedures.delete_share_offsets)
