"""InitProducerId: gives a transactional id its producer id and epoch, and fences the previous owner.

Every successful call that is not a retry gives the id a new identity (producer id and epoch), which fences the previous owner (I26). An
open transaction is aborted first, with markers in the next epoch. Until the abort is complete the result is CONCURRENT_TRANSACTIONS, and
`coordinators.py` or the client repeats the request. When the epochs are used up, the new identity is a new producer id with epoch 0.

A client that sends its current identity (KIP-360) gets the next one only if no other client has taken over. If the client sends its
previous identity, its last answer was lost or its transaction timed out. It then gets the current identity (or a new producer id if the
epochs are used up), because no other client can know the previous one. This also holds after a change of the producer id and after a
failover (KAFKA-20357). While a transaction is being completed, only the producer id is compared, as in Kafka. Stricter than Kafka: only
the current identity (or none) can abort an ongoing transaction. Otherwise a delayed request could abort a later transaction of its own
sender (P5).

Two-phase commit (KIP-939), if it is enabled: with `is_two_phase` the transaction has no timeout. With `keeps_prepared` the ongoing
transaction stays open. The answer then has two identities: the transaction's, and a new one that the client uses to end it.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import logged
from ottla.machine.memory import NO_OWNER, SHARED_PART
from ottla.transactions.end_transaction import fetch_producer_id, send_markers
from ottla.transactions.metadata import (
    EPOCH_MAX,
    NO_IDENTITY,
    NO_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
    initialised,
    kept,
    prepared_with_bump,
)
from ottla.transactions.records import state_record
from ottla.transactions.settings import TransactionCoordinatorSettings
from ottla.transactions.shard import EndResult, Shard, answer_end, held_bytes
from ottla.transactions.states import ONGOING, PREPARED


class InitProducerId(NamedTuple):
    """The request; `expected` is the identity that the client holds, `NO_IDENTITY` if it names none."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch = NO_IDENTITY
    is_two_phase: bool = False
    keeps_prepared: bool = False
    owner: str = NO_OWNER
    """The principal of the request. A new id is charged to its share of the memory."""


def validate(command: InitProducerId, settings: TransactionCoordinatorSettings) -> ErrorCode:
    """Returns the result of the checks that need no state, `NONE` if all succeed."""
    if not command.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if (command.is_two_phase or command.keeps_prepared) and not settings.is_two_phase_enabled:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not command.is_two_phase and not 0 < command.timeout_ms <= settings.timeout_max_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def decide_init(shard: Shard, now_ms: int, command: InitProducerId, reply: Reply) -> Decision:
    code = validate(command, shard.settings)
    if code:
        return answer_end(reply, code)
    metadata = shard.transactions.get(command.transactional_id)
    if metadata is None:
        return _begin(shard, now_ms, command, reply)
    if metadata.state in PREPARED:
        is_fenced = command.expected != NO_IDENTITY and command.expected.producer_id not in _producer_ids(metadata)
        return answer_end(reply, ErrorCode.PRODUCER_FENCED if is_fenced else ErrorCode.CONCURRENT_TRANSACTIONS)
    if metadata.state is ONGOING:
        return _take_over(shard, now_ms, command, metadata, reply)
    return _give_identity(shard, now_ms, command, metadata, reply)


def _producer_ids(metadata: TransactionMetadata) -> tuple[int, ...]:
    """Returns the producer ids that a client may name while a transaction is completed: the transaction's, the client's next and its
    previous one.
    """
    return (metadata.producer_id, metadata.identity.producer_id, metadata.last_identity.producer_id)


def _begin(shard: Shard, now_ms: int, command: InitProducerId, reply: Reply) -> Decision:
    """Creates an id that is unknown or has expired. A client that names an old identity gets a new identity too."""
    if _is_over_limit(shard, command.owner):
        return answer_end(reply, ErrorCode.POLICY_VIOLATION)
    try:
        shard.memory.admit(held_bytes(command.transactional_id, ()), command.owner)
    except ApiError as error:
        return answer_end(reply, error.code)
    producer_id = shard.producer_ids.take()
    if producer_id is None:
        return _refill(shard, command, reply)
    created = TransactionMetadata(command.transactional_id, producer_id, NO_PRODUCER_EPOCH, command.timeout_ms)
    return _log_identity(created, ProducerIdAndEpoch(producer_id, 0), NO_PRODUCER_ID, now_ms, command, reply)


def _is_over_limit(shard: Shard, owner: str) -> bool:
    """Whether a new id is refused: this broker has `ottla.transactions.max` ids, or at most a quarter of that number is free and `owner`
    has at least as many ids as are free (estimated from its memory)."""
    ids_max = shard.settings.transactions_max
    known = shard.memory.total_things()
    free = ids_max - known
    if free <= 0 or owner == NO_OWNER or free > ids_max // SHARED_PART:
        return free <= 0
    shard.memory.count_on()  # some of its ids may have expired
    return shard.memory.part_of(owner) * known >= free


def _give_identity(shard: Shard, now_ms: int, command: InitProducerId, metadata: TransactionMetadata, reply: Reply) -> Decision:
    """Gives the next identity, or the current one to a retry, when no transaction is open."""
    current, expected = metadata.identity, command.expected
    is_retry = expected != NO_IDENTITY and expected == metadata.last_identity
    if expected not in (NO_IDENTITY, current) and not is_retry:
        return answer_end(reply, ErrorCode.PRODUCER_FENCED)
    if is_retry and current.epoch < EPOCH_MAX:
        return _log_identity(metadata, current, metadata.previous_producer_id, now_ms, command, reply)
    previous_producer_id = NO_PRODUCER_ID if expected == NO_IDENTITY else current.producer_id
    following = next_identity(shard, current)
    if following is None:
        return _refill(shard, command, reply)
    return _log_identity(metadata, following, previous_producer_id, now_ms, command, reply)


def _take_over(shard: Shard, now_ms: int, command: InitProducerId, metadata: TransactionMetadata, reply: Reply) -> Decision:
    """Aborts the open transaction, or keeps it open if the request says so (KIP-939)."""
    if command.expected not in (NO_IDENTITY, metadata.identity):
        return answer_end(reply, ErrorCode.PRODUCER_FENCED)
    if command.keeps_prepared:
        return _keep(shard, now_ms, command, metadata, reply)
    ended = prepared_with_bump(metadata, False, now_ms, is_remembered=command.expected != NO_IDENTITY)
    result = EndResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    return logged(state_record(ended), reply, result, EndResult, send_markers(shard, ended))


def _keep(shard: Shard, now_ms: int, command: InitProducerId, metadata: TransactionMetadata, reply: Reply) -> Decision:
    following = next_identity(shard, metadata.identity)
    if following is None:
        return _refill(shard, command, reply)
    result = EndResult(ErrorCode.NONE, *following, metadata.producer_id, metadata.producer_epoch)
    return logged(state_record(kept(metadata, following, _timeout_ms(command), now_ms)), reply, result, EndResult)


def next_identity(shard: Shard, current: ProducerIdAndEpoch) -> ProducerIdAndEpoch | None:
    """Returns the next epoch, or epoch 0 of a new producer id; None if producer ids must be fetched first."""
    if not current.is_exhausted:
        return ProducerIdAndEpoch(current.producer_id, current.epoch + 1)
    producer_id = shard.producer_ids.take()
    return ProducerIdAndEpoch(producer_id, 0) if producer_id is not None else None


def _log_identity(
    metadata: TransactionMetadata,
    identity: ProducerIdAndEpoch,
    previous_producer_id: int,
    now_ms: int,
    command: InitProducerId,
    reply: Reply,
) -> Decision:
    record = state_record(initialised(metadata, identity, previous_producer_id, _timeout_ms(command), now_ms))
    return logged(record, reply, EndResult(ErrorCode.NONE, *identity), EndResult)


def _refill(shard: Shard, command: InitProducerId, reply: Reply) -> Decision:
    return fetch_producer_id(shard, lambda now_ms: decide_init(shard, now_ms, command, reply), reply)


def _timeout_ms(command: InitProducerId) -> int:
    return NO_TIMEOUT_MS if command.is_two_phase else command.timeout_ms
