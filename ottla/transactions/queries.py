"""DescribeTransactions and ListTransactions, over one shard.

Queries are decisions without records. The host answers a query when all records applied so far are committed. If leadership is lost before,
DescribeTransactions gets an error and ListTransactions an empty list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import answered, same_code
from ottla.transactions.metadata import TransactionMetadata
from ottla.transactions.shard import Shard
from ottla.transactions.states import TransactionState


class ListFilter(NamedTuple):
    """Which transactions to list; an empty field matches all. `duration_ms` selects transactions that began longer ago, also completed ones
    (as in Kafka). `matches` tests the transactional id."""

    states: frozenset[TransactionState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    matches: Callable[[str], bool] | None = None


def decide_describe(shard: Shard, transactional_id: str, reply: Reply) -> Decision:
    """Replies the `TransactionMetadata`, or None if the id is unknown."""
    return answered(reply, shard.transactions.get(transactional_id), same_code)


def decide_list(shard: Shard, now_ms: int, wanted: ListFilter, reply: Reply) -> Decision:
    """Answers with a list of `TransactionMetadata`; an empty list if the host closes first."""
    found = [metadata for metadata in shard.transactions.values() if _is_wanted(metadata, wanted, now_ms)]
    return answered(reply, found, lambda _code: [])


def _is_wanted(metadata: TransactionMetadata, wanted: ListFilter, now_ms: int) -> bool:
    if wanted.states and metadata.state not in wanted.states:
        return False
    if wanted.producer_ids and metadata.producer_id not in wanted.producer_ids:
        return False
    if wanted.duration_ms >= 0 and (metadata.start_timestamp_ms < 0 or now_ms - metadata.start_timestamp_ms <= wanted.duration_ms):
        return False
    return wanted.matches is None or wanted.matches(metadata.transactional_id)
