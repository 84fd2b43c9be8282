"""Ends transactions: EndTxn, the markers, and the completion.

An end has three steps, each in the log before the next one starts: Prepare* (the outcome is decided and will survive), the markers in all
partitions, Complete*. The client is answered when the Prepare* record is committed. The markers are sent just before that answer, so on a
single broker the transaction is usually complete when the client gets it.

A client of transactions v1 (EndTxn before version 5) keeps its epoch. With v2 every end moves to the next epoch. The markers have the new
epoch and partitions refuse the old epoch, so a delayed EndTxn, AddPartitions or Produce cannot touch the next transaction (P5, KIP-890). A
v2 client may abort a transaction that it never began, because it does not know whether one was opened. A retry of an answered end is
recognised by the last identity (I28).

Errors: an unknown id or another producer id is INVALID_PRODUCER_ID_MAPPING, another epoch PRODUCER_FENCED, and an end that contradicts the
state INVALID_TXN_STATE. Between Prepare* and Complete* no end is answered with success: a repeated end gets CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import ErrorCode
from ottla.base.types import NO_PRODUCER_ID
from ottla.machine.contract import NOTHING, Decision, Reply
from ottla.machine.draft import Draft, followed, logged
from ottla.transactions.metadata import (
    NO_IDENTITY,
    TRANSACTIONS_V2,
    Marker,
    ProducerIdAndEpoch,
    TransactionMetadata,
    completed,
    prepared,
    prepared_with_bump,
)
from ottla.transactions.records import state_record
from ottla.transactions.shard import EndResult, Shard, answer_end
from ottla.transactions.states import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT, PREPARED


def decide_end(
    shard: Shard, now_ms: int, transactional_id: str, identity: ProducerIdAndEpoch, is_commit: bool, version: int, reply: Reply
) -> Decision:
    metadata = shard.transactions.get(transactional_id)
    if metadata is None:
        return answer_end(reply, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    judge = _judge_v2 if version >= TRANSACTIONS_V2 else _judge_v1
    code = judge(metadata, identity, is_commit)
    if code is None:
        return _end(shard, now_ms, metadata, is_commit, version, reply)
    return answer_end(reply, code, metadata if code is ErrorCode.NONE else None)


def decide_complete(shard: Shard, now_ms: int, ended: TransactionMetadata) -> Decision:
    """Logs Complete* for `ended`, unless its state has changed. Repeats a refused append, because nothing else would repeat it."""
    metadata = shard.transactions.get(ended.transactional_id)
    if metadata != ended:
        return NOTHING

    def retry(draft: Draft, _code: ErrorCode) -> None:
        key, delay_ms = f"complete {ended.transactional_id}", shard.settings.completion_retry_ms
        draft.schedule(key, delay_ms, lambda later_ms: decide_complete(shard, later_ms, ended))

    def done() -> None:
        if metadata.state is PREPARE_COMMIT:
            shard.ended.committed += 1
        else:
            shard.ended.aborted += 1
        shard.wake(ended.transactional_id)

    return followed(state_record(completed(metadata, now_ms)), done, retry)


def send_markers(shard: Shard, metadata: TransactionMetadata) -> Callable[[], None]:
    """Returns a function that sends the markers of a prepared transaction and then completes it."""
    assert metadata.state in PREPARED

    def complete() -> None:
        shard.run(lambda now_ms: decide_complete(shard, now_ms, metadata))
        # Waiting requests run before the record is committed: their records follow it in the log, so their answers wait too.
        if not shard.is_completing(metadata.transactional_id):
            shard.wake(metadata.transactional_id)

    marker = Marker(
        metadata.producer_id,
        metadata.producer_epoch,
        shard.coordinator_epoch,
        metadata.state is PREPARE_COMMIT,
        metadata.client_transaction_version,
    )
    return lambda: shard.markers.send(marker, sorted(metadata.partitions), lambda: not shard.is_abandoned, complete)


def new_producer_id_if_exhausted(shard: Shard, metadata: TransactionMetadata) -> int | None:
    """Returns a new producer id to use after this end; NO_PRODUCER_ID if the current id has epochs left, None if new ids must be fetched
    first.
    """
    return shard.producer_ids.take() if metadata.identity.is_exhausted else NO_PRODUCER_ID


def fetch_producer_id(shard: Shard, retry: Callable[[int], Decision], reply: Reply) -> Decision:
    """Waits for the next block of producer ids, then decides again with `retry`. Replies an `EndResult` with the error if there is none."""

    def refilled(code: ErrorCode) -> None:
        if shard.is_abandoned:  # this shard decides nothing any more; the block of ids is used by other shards
            reply(EndResult(ErrorCode.NOT_COORDINATOR))
        else:
            shard.run(retry if not code else lambda _now_ms: answer_end(reply, code))

    draft = Draft()
    draft.call(lambda: shard.producer_ids.when_ready(refilled))
    draft.on_refusal(lambda repair, code: repair.answer(reply, EndResult(code), EndResult))
    return draft.decision()


def _end(shard: Shard, now_ms: int, metadata: TransactionMetadata, is_commit: bool, version: int, reply: Reply) -> Decision:
    if version >= TRANSACTIONS_V2:
        new_producer_id = new_producer_id_if_exhausted(shard, metadata)
        if new_producer_id is None:
            identity = metadata.identity
            return fetch_producer_id(
                shard, lambda later_ms: decide_end(shard, later_ms, metadata.transactional_id, identity, is_commit, version, reply), reply
            )
        ended = prepared_with_bump(metadata, is_commit, now_ms, new_producer_id=new_producer_id)
    else:
        ended = prepared(metadata, is_commit, version, now_ms)
    result = EndResult(ErrorCode.NONE, *ended.identity)
    return logged(state_record(ended), reply, result, EndResult, send_markers(shard, ended))


def _judge_v1(metadata: TransactionMetadata, identity: ProducerIdAndEpoch, is_commit: bool) -> ErrorCode | None:
    """Returns None if the transaction is to be ended, otherwise the answer. The epoch is the same before and after the end."""
    current = metadata.identity
    if current.producer_id != identity.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.epoch != identity.epoch:
        return ErrorCode.PRODUCER_FENCED
    if metadata.state is ONGOING:
        return None
    if metadata.state in PREPARED:
        is_same = is_commit == (metadata.state is PREPARE_COMMIT)
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE
    is_retry = metadata.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    return ErrorCode.NONE if is_retry else ErrorCode.INVALID_TXN_STATE


def _judge_v2(metadata: TransactionMetadata, identity: ProducerIdAndEpoch, is_commit: bool) -> ErrorCode | None:
    """Returns None if the transaction is to be ended, otherwise the answer. The current epoch means a new end, the previous one a retry."""
    if identity == metadata.identity:
        if metadata.state is ONGOING:
            return None
        if metadata.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        # Nothing was begun in this epoch: there is nothing to commit, and an abort costs one epoch.
        return ErrorCode.INVALID_TXN_STATE if is_commit else None
    if identity == metadata.last_identity and identity != NO_IDENTITY:
        return _judge_retry(metadata, is_commit)
    if identity.producer_id not in (metadata.identity.producer_id, metadata.last_identity.producer_id):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.PRODUCER_FENCED


def _judge_retry(metadata: TransactionMetadata, is_commit: bool) -> ErrorCode:
    """Returns the answer to a client that ends the transaction again because the first answer was lost."""
    if metadata.state in PREPARED:
        is_same = is_commit == (metadata.state is PREPARE_COMMIT)
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE
    if metadata.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
        return ErrorCode.NONE if metadata.client_transaction_version >= TRANSACTIONS_V2 else ErrorCode.PRODUCER_FENCED
    if metadata.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.PRODUCER_FENCED
