"""Quotas of users, client ids and addresses, for code that may block.

Each function is the procedure of the same name in `core/quota_admin.py`, run to its end on a `Cluster`.
"""

from __future__ import annotations

from ottla.client.blocking.cluster import blocking
from ottla.client.core import quota_admin as procedures
from ottla.client.core.quota_admin import ANY, CLIENT_ID, DEFAULT, EXACT, IP, USER, Entity

__all__ = [
    "ANY",
    "CLIENT_ID",
    "DEFAULT",
    "EXACT",
    "Entity",
    "IP",
    "USER",
    "describe_quotas",
    "alter_quotas",
]

describe_quotas = blocking(procedures.describe_quotas)
alter_quotas = blocking(procedures.alter_quotas)
