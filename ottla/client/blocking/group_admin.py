"""Administration of groups and their committed offsets, for code that may block.

Each function is the procedure of the same name in `core/group_admin.py`, run to its end on a `Cluster`.
"""

from __future__ import annotations

from ottla.client.blocking.cluster import blocking
from ottla.client.core import group_admin as procedures
from ottla.client.core.group_admin import INACTIVE_STATES, Committed, GroupDescription, GroupMember, ListedGroup, read_assignment

__all__ = [
    "Committed",
    "GroupDescription",
    "GroupMember",
    "INACTIVE_STATES",
    "ListedGroup",
    "read_assignment",
    "list_groups",
    "describe_group",
    "committed_offsets",
    "commit_offsets",
    "delete_group",
    "delete_offsets",
]

list_groups = blocking(procedures.list_groups)
describe_group = blocking(procedures.describe_group)
committed_offsets = blocking(procedures.committed_offsets)
commit_offsets = blocking(procedures.commit_offsets)
delete_group = blocking(procedures.delete_group)
delete_offsets = blocking(procedures.delete_offsets)
