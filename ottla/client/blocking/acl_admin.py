"""Access rules (ACLs), for code that may block.

Each function is the procedure of the same name in `core/acl_admin.py`, run to its end on a `Cluster`.
"""

from __future__ import annotations

from ottla.client.blocking.cluster import blocking
from ottla.client.core import acl_admin as procedures

__all__ = ["allowed_operations", "create_acls", "delete_acls", "describe_acls"]

allowed_operations = blocking(procedures.allowed_operations)
describe_acls = blocking(procedures.describe_acls)
create_acls = blocking(procedures.create_acls)
delete_acls = blocking(procedures.delete_acls)
