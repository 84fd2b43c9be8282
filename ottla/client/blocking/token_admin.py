"""Delegation tokens, for code that may block.

Each function is the procedure of the same name in `core/token_admin.py`, run to its end on a `Cluster`.
"""

from __future__ import annotations

from ottla.client.blocking.cluster import blocking
from ottla.client.core import token_admin as procedures
from ottla.client.core.token_admin import Token

__all__ = ["Token", "create_token", "describe_tokens", "expire_token", "renew_token"]

describe_tokens = blocking(procedures.describe_tokens)
create_token = blocking(procedures.create_token)
renew_token = blocking(procedures.renew_token)
expire_token = blocking(procedures.expire_token)
