"""The transitions of one transactional id, and the identities after them."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition
from ottla.transactions.metadata import (
    EPOCH_MAX,
    NO_IDENTITY,
    NO_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
    completed,
    initialised,
    kept,
    prepared,
    prepared_with_bump,
    with_partitions,
)
from ottla.transactions.states import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def ongoing(epoch: int = 3, **changes: object) -> TransactionMetadata:
    metadata = TransactionMetadata("tx", 7, epoch, 1_000)
    return with_partitions(metadata, frozenset({T0}), 0, 50)._replace(**changes)  # type: ignore[arg-type]


def test_the_first_partitions_start_the_clock_and_more_do_not() -> None:
    first = ongoing()
    more = with_partitions(first, frozenset({T1}), 2, 90)
    assert (first.start_timestamp_ms, more.start_timestamp_ms, more.update_timestamp_ms) == (50, 50, 90)
    assert more.partitions == {T0, T1}


def test_a_move_that_the_table_does_not_allow_breaks_an_invariant() -> None:
    with pytest.raises(AssertionError, match="CompleteCommit -> PrepareCommit"):
        prepared(ongoing(state=COMPLETE_COMMIT), True, 0, 60)


def test_v1_keeps_the_epoch_and_v2_moves_on() -> None:
    v1, v2 = prepared(ongoing(), True, 0, 60), prepared_with_bump(ongoing(), True, 60)
    assert (v1.identity, v1.last_identity) == ((7, 3), NO_IDENTITY)
    assert (v2.identity, v2.last_identity) == ((7, 4), (7, 3))
    assert completed(v2, 70).last_identity == (7, 3)


def test_a_takeover_leaves_no_last_identity() -> None:
    fenced = prepared_with_bump(ongoing(), False, 60, is_remembered=False)
    assert (fenced.identity, fenced.last_identity) == ((7, 4), NO_IDENTITY)


def test_exhausted_epochs_lead_to_the_new_producer_id() -> None:
    """KAFKA-20357: the last identity is known from the record alone."""
    ended = prepared_with_bump(ongoing(EPOCH_MAX - 1), True, 60, new_producer_id=8)
    done = completed(ended, 70)
    assert ended.producer_epoch == EPOCH_MAX, "the markers carry the epoch that no client is given"
    assert done.state is COMPLETE_COMMIT and not done.partitions
    assert (done.identity, done.last_identity) == ((8, 0), (7, EPOCH_MAX - 1))


def test_without_a_new_producer_id_the_epoch_stops_at_its_maximum() -> None:
    ended = prepared_with_bump(ongoing(EPOCH_MAX), False, 60)
    assert completed(ended, 70).identity == (7, EPOCH_MAX)


def test_epoch_zero_has_no_epoch_before() -> None:
    assert initialised(TransactionMetadata("tx", 7, -1, 1), ProducerIdAndEpoch(7, 0), 7, 1, 1).last_identity == NO_IDENTITY


def test_a_kept_transaction_is_marked_below_the_identity_that_ends_it() -> None:
    """KIP-939: the markers have a lower epoch than the identity that ends the transaction."""
    mine = kept(kept(ongoing(), ProducerIdAndEpoch(7, 4), NO_TIMEOUT_MS, 60), ProducerIdAndEpoch(7, 5), NO_TIMEOUT_MS, 61)
    assert mine.is_kept and mine.identity == (7, 5) and mine.producer_epoch == 3
    ended = prepared_with_bump(mine, True, 70)
    assert (ended.state, ended.producer_epoch, ended.identity, ended.last_identity) == (PREPARE_COMMIT, 4, (7, 6), (7, 5))
    assert completed(ended, 80).identity == (7, 6)
    with pytest.raises(AssertionError, match="does not grow"):
        with_partitions(mine, frozenset({T1}), 2, 90)


def test_a_kept_transaction_ended_by_a_v1_client_keeps_the_identity() -> None:
    mine = kept(ongoing(), ProducerIdAndEpoch(7, 4), 1_000, 60)
    ended = prepared(mine, False, 0, 70)
    assert (ended.producer_epoch, ended.identity) == (4, (7, 4))
    assert completed(ended, 80).state is COMPLETE_ABORT


def test_only_open_transactions_with_a_timeout_time_out() -> None:
    assert not ongoing().is_timed_out(1_050)
    assert ongoing().is_timed_out(1_051)
    assert not ongoing(timeout_ms=NO_TIMEOUT_MS).is_timed_out(1 << 50)
    assert not ongoing(state=EMPTY).is_timed_out(1 << 50)
    assert ongoing().state is ONGOING
