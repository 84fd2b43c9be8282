"""Transactions step by step in the blocking client: each method runs a conversation of `core/transaction.py` to its end."""

from __future__ import annotations

from ottla.client.blocking.cluster import Cluster
from ottla.client.core.arguments import checked
from ottla.client.core.operation import operation
from ottla.client.core.transaction import TransactionCore


class Transaction:
    """The transactions of one transactional id, one after another. Not for use by two threads at once.

    `with` initializes the id if needed and begins a transaction. Its end commits the transaction, or aborts it after an exception. After a
    `FencedError` the program must stop: another producer uses the id. After `OutcomeUnknownError` the program calls `initialize` and
    compares the committed offsets; if `commit` raised the error, it may also repeat the commit.
    """

    def __init__(self, cluster: Cluster, core: TransactionCore) -> None:
        self.run = cluster.run
        self.core = core

    @property
    def transactional_id(self) -> str:
        return self.core.transactional_id or ""

    @property
    def producer_id(self) -> int:
        """The producer id, -1 before `initialize`."""
        return self.core.producer_id

    @property
    def epoch(self) -> int:
        """The producer epoch. `initialize` changes it. With version 2 of the transaction protocol, `commit` and `abort` of a transaction
        that is not empty change it too. With version 1, only `abort` after a failed batch changes it.
        """
        return self.core.epoch

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self.core.is_open

    @property
    def uses_v2(self) -> bool:
        """Whether version 2 of the transaction protocol (KIP-890) is in use."""
        return self.core.uses_v2

    def __enter__(self) -> Transaction:
        if self.producer_id < 0:
            self.initialize()
        self.begin()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.is_open:
            if kind is None:
                self.commit()
            else:
                self.abort()

    initialize = operation(TransactionCore.initialize)

    @checked
    def begin(self) -> None:
        """Opens a transaction; nothing is sent."""
        self.core.begin()

    add_partitions = operation(TransactionCore.add_partitions)
    produce = operation(TransactionCore.produce)
    attach = operation(TransactionCore.attach)
    commit_offsets = operation(TransactionCore.commit_offsets)
    commit = operation(TransactionCore.commit)
    abort = operation(TransactionCore.abort)
