"""Administration of transactions, for code that may block.

Each function is the procedure of the same name in `core/transaction_admin.py`, run to its end on a `Cluster`.
"""

from __future__ import annotations

from ottla.client.blocking.cluster import blocking
from ottla.client.core import transaction_admin as procedures
from ottla.client.core.transaction_admin import TransactionDescription

__all__ = [
    "TransactionDescription",
    "list_transactions",
    "describe_transaction",
    "describe_producers",
    "write_abort_marker",
    "fence_producer",
    "list_prepared",
    "finish_prepared",
    "owners_of",
]

list_transactions = blocking(procedures.list_transactions)
describe_transaction = blocking(procedures.describe_transaction)
describe_producers = blocking(procedures.describe_producers)
write_abort_marker = blocking(procedures.write_abort_marker)
fence_producer = blocking(procedures.fence_producer)
list_prepared = blocking(procedures.list_prepared)
finish_prepared = blocking(procedures.finish_prepared)
owners_of = blocking(procedures.owners_of)
