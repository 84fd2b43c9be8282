"""Adds partitions to a transaction: AddPartitionsToTxn, AddOffsetsToTxn, implicitly by Produce with transactions v2; and verifies them.

The first partition opens the transaction. Partitions that the transaction already has cause no record. The offsets of a group are one
partition of `__consumer_offsets` like any other.

Verification (KIP-890) answers whether a partition belongs to the ongoing transaction, and changes nothing. Without it a late Produce of an
older client could open a transaction that no client ever ends (I30). Clients of v2 are protected by their epoch, because each end
increments it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import answered, logged, same_code
from ottla.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata, with_partitions
from ottla.transactions.records import state_record
from ottla.transactions.shard import PARTITION_BYTES, Shard, answer_code
from ottla.transactions.states import ONGOING, PREPARED


def decide_add(
    shard: Shard,
    now_ms: int,
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    partitions: frozenset[TopicPartition],
    version: int,
    reply: Reply,
) -> Decision:
    """Replies one `ErrorCode` for all partitions: either all partitions are added or none."""
    metadata = shard.transactions.get(transactional_id)
    if metadata is None:
        return answer_code(reply, ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else ErrorCode.INVALID_REQUEST)
    code = _judge_add(metadata, identity)
    if code or (metadata.state is ONGOING and partitions <= metadata.partitions):
        return answer_code(reply, code)
    more = len(partitions - metadata.partitions) if metadata.state is ONGOING else len(partitions)
    try:
        shard.memory.admit(more * PARTITION_BYTES, shard.owner_of(transactional_id))
    except ApiError as error:
        return answer_code(reply, error.code)
    return logged(state_record(with_partitions(metadata, partitions, version, now_ms)), reply, ErrorCode.NONE, same_code)


def decide_verify(
    shard: Shard, transactional_id: str, identity: ProducerIdAndEpoch, partitions: Sequence[TopicPartition], reply: Reply
) -> Decision:
    """Answers with an `ErrorCode` for each partition."""

    def for_all(code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(partitions, code)

    metadata = shard.transactions.get(transactional_id)
    if metadata is None:
        codes = for_all(ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else ErrorCode.INVALID_REQUEST)
    elif metadata.identity.producer_id != identity.producer_id:
        codes = for_all(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif metadata.identity.epoch != identity.epoch:
        codes = for_all(ErrorCode.PRODUCER_FENCED)
    elif metadata.state in PREPARED:
        codes = for_all(ErrorCode.CONCURRENT_TRANSACTIONS)
    else:
        members = metadata.partitions if metadata.state is ONGOING else frozenset()
        codes = {partition: ErrorCode.NONE if partition in members else ErrorCode.TRANSACTION_ABORTABLE for partition in partitions}
    return answered(reply, codes, for_all)


def _judge_add(metadata: TransactionMetadata, identity: ProducerIdAndEpoch) -> ErrorCode:
    # Checked before the identity: until the end is complete, the client repeats the request, whether it has its next identity or not.
    if metadata.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if metadata.identity.producer_id != identity.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.identity.epoch != identity.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_TXN_STATE if metadata.is_kept else ErrorCode.NONE
