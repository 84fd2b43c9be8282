"""A guard is valid from the request to the coordinator until the first append (P5, KIP-890)."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.replication import verification
from ottla.replication.verification import Line, VerificationGuard, Verifications
from ottla.wire.batch_header import TRANSACTIONAL_BIT, BatchHeader


def batch(sequence: int = 0, epoch: int = 3) -> BatchHeader:
    return BatchHeader(0, 100, -1, 2, 0, TRANSACTIONAL_BIT, 0, 0, 0, 7, epoch, sequence, 1)


def refusal(verifications: Verifications, header: BatchHeader, guard: VerificationGuard | None) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        verifications.check(header, guard)
    return caught.value.code


def test_a_batch_with_a_valid_guard_is_admitted() -> None:
    verifications = Verifications()
    guard = verifications.begin(7, 3, 0)
    assert verifications.begin(7, 3, 5) is guard, "several batches in flight ask once"
    verifications.check(batch(), guard)
    assert len(verifications) == 1


def test_p5_an_answer_for_an_earlier_transaction_is_void() -> None:
    verifications = Verifications()
    old = verifications.begin(7, 3, 0)
    verifications.forget(7)  # a marker was written
    assert refusal(verifications, batch(), old) is ErrorCode.INVALID_TXN_STATE
    new = verifications.begin(7, 3, 0)
    assert refusal(verifications, batch(), old) is ErrorCode.INVALID_TXN_STATE
    verifications.check(batch(), new)


def test_a_batch_without_a_guard_is_refused() -> None:
    verifications = Verifications()
    assert refusal(verifications, batch(), None) is ErrorCode.INVALID_TXN_STATE
    guard = verifications.begin(7, 3, 0)
    assert refusal(verifications, batch(epoch=4), guard) is ErrorCode.INVALID_TXN_STATE
    assert refusal(verifications, batch(), None) is ErrorCode.INVALID_TXN_STATE


def test_i19_of_batches_in_flight_the_first_goes_first() -> None:
    verifications = Verifications()
    guard = verifications.begin(7, 3, 4)
    assert verifications.begin(7, 3, 2) is guard
    assert refusal(verifications, batch(sequence=4), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    verifications.check(batch(sequence=2), guard)


def test_each_epoch_asks_for_itself() -> None:
    verifications = Verifications()
    old = verifications.begin(7, 3, 0)
    new = verifications.begin(7, 4, 0)
    assert new is not old
    assert refusal(verifications, batch(epoch=3), new) is ErrorCode.INVALID_TXN_STATE
    assert refusal(verifications, batch(epoch=4), old) is ErrorCode.INVALID_TXN_STATE


def test_a_made_up_epoch_does_not_void_the_guard_of_the_real_one() -> None:
    """The coordinator refuses the invented epoch. The current producer asks later, with its next sequence."""
    verifications = Verifications()
    verifications.begin(7, 4, 0)
    guard = verifications.begin(7, 3, 5)
    verifications.check(batch(sequence=5, epoch=3), guard)
    assert verifications.stands(7, 3, guard)


def test_i46_guards_that_are_never_used_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_PENDING_MAX", 3)
    verifications = Verifications()
    for producer_id in range(9):
        verifications.begin(producer_id, 0, 0)
    assert len(verifications) == 3
    for epoch in range(99):
        verifications.begin(8, epoch, 0)
    assert len(verifications) < 20


def test_a_coordinators_own_records_ask_whether_the_guard_stands() -> None:
    """Offsets of a group are not a client's batch, but a marker may also arrive before the coordinator's answer about them."""
    verifications = Verifications()
    old, new = verifications.begin(7, 0, -1), verifications.begin(7, 1, -1)
    assert (verifications.stands(7, 0, old), verifications.stands(7, 1, new)) == (True, True)
    assert (verifications.stands(7, 1, old), verifications.stands(7, 0, new)) == (False, False)
    verifications.forget(7)
    assert not verifications.stands(7, 0, old), "a marker came"
    assert not verifications.stands(7, 1, new)
    assert not verifications.stands(7, 1, old)


def test_a_batch_whose_append_causes_other_answers_is_done_once() -> None:
    """A disk failure in an append stops the coordinator on the same disk. The coordinator then answers all batches that wait for it."""
    line, done = Line(), []

    def fail_and_answer() -> bool:
        done.append("first")
        line.answered("second", lambda: done.append("second") is None)
        return True

    for batch in ("first", "second"):
        line.join(batch)
    line.answered("first", fail_and_answer)
    assert done == ["first", "second"] and not line


def test_a_batch_that_is_asked_about_again_and_answered_at_once_is_done() -> None:
    line, done = Line(), []

    def ask_again() -> bool:
        done.append("asked")
        line.join("batch")
        line.answered("batch", lambda: done.append("done") is None)
        return False

    line.join("batch")
    line.answered("batch", ask_again)
    assert done == ["asked", "done"] and not line
