"""The transaction index: Kafka's bytes, overlaps, the early stop, damage."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import StorageError
from ottla.storage.aborted import ENTRY_BYTES, AbortedTransaction, AbortedTransactions, decode_aborted, encode_aborted

FIRST = AbortedTransaction(producer_id=7, first_offset=0, last_offset=5, last_stable_offset=2)
SECOND = AbortedTransaction(producer_id=8, first_offset=2, last_offset=9, last_stable_offset=10)


def test_an_entry_is_kafkas() -> None:
    assert encode_aborted(FIRST) == pack(">hqqqq", 0, 7, 0, 5, 2)
    assert len(encode_aborted(FIRST)) == ENTRY_BYTES == 34
    assert list(decode_aborted(encode_aborted(FIRST) + encode_aborted(SECOND), "x.txnindex")) == [FIRST, SECOND]


@pytest.mark.parametrize(
    "data",
    [
        encode_aborted(FIRST)[:-1],
        pack(">hqqqq", 1, 7, 0, 5, 2),
        encode_aborted(SECOND) + encode_aborted(FIRST),
        pack(">hqqqq", 0, 7, 6, 5, 2),
    ],
)
def test_damage_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError, match=r"x\.txnindex"):
        decode_aborted(data, "x.txnindex")


def test_truncation_cuts_the_markers_that_are_gone() -> None:
    entries = AbortedTransactions([FIRST, SECOND])
    assert [entries.count_below(offset) for offset in (5, 9, 10)] == [0, 1, 2]


def test_i24_the_search_stops_when_the_last_stable_offset_has_passed() -> None:
    found: list[tuple[int, int]] = []
    assert not AbortedTransactions([FIRST]).collect(0, 8, found), "a later marker may have ended what began below 8"
    assert AbortedTransactions([SECOND]).collect(0, 8, found)
    assert found == [(7, 0), (8, 2)]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["data", "abort", "commit"])), max_size=40), st.data())
def test_i24_the_early_stop_loses_nothing(steps: list[tuple[int, str]], draw: st.DataObject) -> None:
    """Compares the search with a look at every entry. The entries are made as a log makes them."""
    opened: dict[int, int] = {}
    entries: list[AbortedTransaction] = []
    for offset, (producer_id, step) in enumerate(steps):
        if step == "data":
            opened.setdefault(producer_id, offset)
        elif producer_id in opened:
            first = opened.pop(producer_id)
            if step == "abort":
                entries.append(AbortedTransaction(producer_id, first, offset, min(opened.values(), default=offset + 1)))
    start = draw.draw(st.integers(0, len(steps)))
    end = draw.draw(st.integers(start, len(steps)))
    found: list[tuple[int, int]] = []
    AbortedTransactions(entries).collect(start, end, found)
    assert found == [(e.producer_id, e.first_offset) for e in entries if e.last_offset >= start and e.first_offset < end]
