"""The rules of producer states, and a comparison with a slow model that checks every batch against the whole log (I19, I20, I21, I24,
I25)."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.types import TopicPartition
from ottla.storage.producers import CACHED_BATCHES_MAX, ProducerStates
from ottla.wire.batch_header import CONTROL_BIT, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.wire.records import CONTROL_ABORT, CONTROL_COMMIT

KEY = TopicPartition("flights", 0)
LAST = (1 << 31) - 1


def data(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    crc: int = 0,
    is_transactional: bool = False,
    attributes: int = 0,
) -> BatchHeader:
    attributes |= TRANSACTIONAL_BIT if is_transactional else 0
    return BatchHeader(0, 100, -1, 2, crc, attributes, count - 1, 5, 5, producer_id, epoch, sequence, count)


def marker(*, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return BatchHeader(0, 66, -1, 2, 0, TRANSACTIONAL_BIT | CONTROL_BIT, 0, 6, 6, producer_id, epoch, -1, 1)


def states_after(*headers: BatchHeader) -> ProducerStates:
    states, offset = ProducerStates(KEY), 0
    for header in headers:
        states.apply(header, offset)
        offset += header.record_count
    return states


def refusal(states: ProducerStates, header: BatchHeader, *, transaction_version: int = 0) -> ErrorCode:
    before = states.snapshot()
    with pytest.raises(ApiError) as caught:
        states.check(header, transaction_version=transaction_version)
    assert states.snapshot() == before, "a refusal changed something"
    return caught.value.code


def test_i19_a_gap_is_out_of_order() -> None:
    assert refusal(states_after(data(0, 3)), data(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_i19_sequences_wrap_behind_the_last() -> None:
    states = states_after(data(LAST - 1, 3))
    assert states.check(data(1)) is None
    assert refusal(states, data(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    wrapped = states.check(data(LAST - 1, 3))
    assert wrapped is not None and (wrapped.last_sequence, wrapped.base_offset) == (0, 0)


def test_a_producer_without_state_may_begin_anywhere() -> None:
    """Retention may have deleted the producer's earlier batches."""
    assert ProducerStates(KEY).check(data(41)) is None


def test_the_first_batch_of_a_version_2_transaction_is_number_0() -> None:
    """Each such transaction has its own epoch, so a higher sequence means that an earlier batch has not arrived yet."""
    states = ProducerStates(KEY)
    late = data(3, is_transactional=True)
    assert refusal(states, late, transaction_version=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.apply_marker(marker(), 0, CONTROL_ABORT, 1)
    assert refusal(states, late, transaction_version=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(data(0, is_transactional=True), transaction_version=2) is None


@pytest.mark.parametrize("back", range(1, CACHED_BATCHES_MAX + 1))
def test_i20_each_of_the_last_five_batches_is_recognised(back: int) -> None:
    headers = [data(number * 2, 2, crc=number) for number in range(8)]
    duplicate = states_after(*headers).check(headers[-back])
    assert duplicate is not None
    assert (duplicate.base_offset, duplicate.last_offset) == (2 * (8 - back), 2 * (8 - back) + 1)


def test_a_batch_that_certainly_was_appended_before_those_is_a_duplicate_sequence() -> None:
    states = states_after(*[data(number * 2, 2) for number in range(8)])
    assert refusal(states, data(4, 2)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert refusal(states, data(4, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "it reaches into the cached ones with other borders"


def test_a_batch_from_before_all_that_is_known_is_not_called_a_duplicate() -> None:
    """The producer's state was removed, and the producer sends again. The earlier batch may never have been appended."""
    states = states_after(*[data(10 + number, 1) for number in range(8)])
    assert refusal(states, data(9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(states, data(10)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_the_same_sequences_with_other_bytes_are_refused() -> None:
    states = states_after(data(0, crc=1))
    assert states.check(data(0, crc=1)) is not None
    assert refusal(states, data(0, crc=2)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("stored", [TIMESTAMP_TYPE_BIT, 3])
def test_bytes_are_not_compared_where_the_broker_changed_them(stored: int) -> None:
    """With LogAppendTime or another codec, the CRC in the log is the broker's. The bytes are not compared after a restart either."""
    states = states_after(data(0, crc=1, attributes=stored))
    assert states.check(data(0, crc=2)) is not None


def test_i21_an_older_epoch_is_fenced() -> None:
    assert refusal(states_after(data(0, epoch=3)), data(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_i29_a_new_epoch_begins_at_0_and_forgets_the_old_batches() -> None:
    states = states_after(data(0, epoch=0), data(1, epoch=0))
    assert refusal(states, data(2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.apply(data(0, epoch=1), 2)
    duplicate = states.check(data(0, epoch=1))
    assert duplicate is not None and duplicate.base_offset == 2
    assert refusal(states, data(0, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_plain_batch_inside_of_a_transaction_is_refused() -> None:
    states = states_after(data(0, is_transactional=True))
    assert refusal(states, data(1)) is ErrorCode.INVALID_TXN_STATE
    assert refusal(states, data(0, epoch=1)) is ErrorCode.INVALID_TXN_STATE


def test_coordinators_write_without_sequences() -> None:
    states = states_after(data(-1, is_transactional=True))
    assert states.check(data(-1, is_transactional=True), is_client=False) is None


def test_i24_the_first_unstable_offset_is_held_until_the_marker_is_final() -> None:
    states = ProducerStates(KEY)
    states.apply(data(0, producer_id=1, is_transactional=True), 10)
    states.apply(data(0, producer_id=2, is_transactional=True), 11)
    assert states.first_unstable_offset == 10
    ended = states.apply_marker(marker(producer_id=1), 12, CONTROL_ABORT, 0)
    assert ended is not None and ended[:4] == (1, 10, 12, 11) and ended.is_aborted
    states.on_high_watermark(12)
    assert states.first_unstable_offset == 10, "the marker at 12 may still be lost"
    states.on_high_watermark(13)
    assert states.first_unstable_offset == 11
    last = states.apply_marker(marker(producer_id=2), 13, CONTROL_COMMIT, 0)
    assert last is not None and last.last_stable_offset == 14 and not last.is_aborted
    states.on_high_watermark(14)
    assert states.first_unstable_offset is None


def test_a_marker_without_data_ends_nothing_but_fences() -> None:
    states = ProducerStates(KEY)
    assert states.apply_marker(marker(epoch=4), 0, CONTROL_ABORT, 2) is None
    assert refusal(states, data(0, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def marker_refusal(states: ProducerStates, epoch: int, coordinator_epoch: int, version: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        states.check_marker(7, epoch, coordinator_epoch, version)
    return caught.value.code


def test_i25_markers_of_fenced_producers_and_coordinators_are_refused() -> None:
    states = states_after(data(0, epoch=2, is_transactional=True))
    assert marker_refusal(states, 1, 5, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    states.apply_marker(marker(epoch=2), 1, CONTROL_COMMIT, 5)
    assert marker_refusal(states, 2, 4, 0) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_kafka_19999_a_repeated_marker_is_distinguished_from_a_new_one() -> None:
    states = states_after(data(0, epoch=2, is_transactional=True))
    assert not states.check_marker(7, 3, 5, 2)
    states.apply_marker(marker(epoch=3), 1, CONTROL_COMMIT, 5)
    assert states.check_marker(7, 3, 5, 2), "it is in the log already"
    assert not states.check_marker(7, 3, 6, 2), "a new coordinator's epoch has to be written down"


def test_kafka_17754_a_late_marker_does_not_end_the_next_transaction() -> None:
    states = states_after(data(0, epoch=2, is_transactional=True))
    states.apply_marker(marker(epoch=3), 1, CONTROL_COMMIT, 5)
    states.apply(data(0, epoch=3, is_transactional=True), 2)
    assert marker_refusal(states, 3, 5, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not states.check_marker(7, 4, 5, 2)


def test_a_producer_expires_after_silence_by_the_brokers_clock() -> None:
    """Timestamps of records that are years old do not make a producer expire, and an open transaction keeps it. A marker ends the idle time
    (KAFKA-9144)."""
    states = states_after(data(0), data(0, producer_id=8, is_transactional=True))
    day = 86_400_000
    assert states.expire(now_ms=100 * day, expiration_ms=day) == 0
    assert states.expire(now_ms=101 * day - 1, expiration_ms=day) == 0
    assert states.expire(now_ms=101 * day, expiration_ms=day) == 1
    assert states.get(7) is None and states.get(8) is not None
    states.apply_marker(marker(producer_id=8), 2, CONTROL_COMMIT, 0)
    assert states.expire(now_ms=200 * day, expiration_ms=day) == 0
    assert states.expire(now_ms=201 * day, expiration_ms=day) == 1


def restored(states: ProducerStates) -> ProducerStates:
    other = ProducerStates(KEY)
    other.restore(states.snapshot())
    return other


@pytest.mark.parametrize("is_swept_since", [True, False])
def test_idleness_counts_over_restarts(is_swept_since: bool) -> None:
    """Idle time is measured with wall time, so it continues after a reboot and on another machine. It begins with a sweep, so it is never
    too long."""
    minute, day = 60_000, 86_400_000
    states = states_after()
    for sweep in (98, 99, 100):
        states.expire(now_ms=sweep * minute, expiration_ms=day)
    states.apply(data(0), 0)
    if is_swept_since:
        states.expire(now_ms=101 * minute, expiration_ms=day)
    for later in range(102, 1541, 100):  # several starts, each with a sweep and a snapshot
        states = restored(states)
        assert states.expire(now_ms=later * minute, expiration_ms=day) == 0
    assert states.expire(now_ms=101 * minute + day - 1, expiration_ms=day) == 0
    assert states.expire(now_ms=101 * minute + day, expiration_ms=day) == 1


def test_a_clock_that_was_ahead_keeps_no_producer_for_ever() -> None:
    states = states_after(data(0))
    states.expire(now_ms=1_000_000, expiration_ms=10)
    states = restored(states)
    assert states.expire(now_ms=1_000, expiration_ms=10) == 0
    assert states.expire(now_ms=1_010, expiration_ms=10) == 1


def test_i20_deleting_old_records_forgets_no_producer() -> None:
    states = states_after(data(0), data(1))
    states.truncate_head(2)
    assert states.check(data(1)) is not None


def test_a_damaged_snapshot_is_refused() -> None:
    with pytest.raises(StorageError):
        ProducerStates(KEY).restore(b"\0\1" + bytes(20))


class Event(NamedTuple):
    offset: int
    header: BatchHeader
    coordinator_epoch: int | None  # only a marker has one

    @property
    def end(self) -> int:
        return self.offset + self.header.record_count


def judge(log: list[Event], header: BatchHeader) -> str:
    """Returns the right result for a client's batch, computed from the whole log."""
    mine = [event for event in log if event.header.producer_id == header.producer_id]
    if not mine:
        return "append"
    epoch = mine[-1].header.producer_epoch
    if header.producer_epoch < epoch:
        return "INVALID_PRODUCER_EPOCH"
    of_epoch = []
    for event in reversed(mine):
        if event.header.producer_epoch != epoch:
            break
        if event.coordinator_epoch is None:
            of_epoch.insert(0, event)
    after_marker = [event for event in mine if event.offset > max([e.offset for e in mine if e.coordinator_epoch is not None], default=-1)]
    is_open = any(event.header.is_transactional for event in after_marker)
    if header.producer_epoch > epoch:
        expected = 0
    else:
        for event in of_epoch[-5:]:
            if (event.header.base_sequence, event.header.record_count) == (header.base_sequence, header.record_count):
                return f"duplicate {event.offset}" if event.header.crc == header.crc else "INVALID_RECORD"
        expected = (of_epoch[-1].header.last_sequence + 1) % (LAST + 1) if of_epoch else 0
        older = {(e.header.base_sequence + i) % (LAST + 1) for e in of_epoch[:-5] for i in range(e.header.record_count)}
        if {(header.base_sequence + i) % (LAST + 1) for i in range(header.record_count)} <= older:
            return "DUPLICATE_SEQUENCE_NUMBER"
    if header.base_sequence != expected:
        return "OUT_OF_ORDER_SEQUENCE_NUMBER"
    return "INVALID_TXN_STATE" if is_open and not header.is_transactional else "append"


class ProducersMachine(RuleBasedStateMachine):
    """Runs any mix of batches, retries, markers, high watermarks, truncations and restarts. The state must always be the one that the log
    gives."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates(KEY)
        self.log: list[Event] = []
        self.high_watermark = 0

    @property
    def end(self) -> int:
        return self.log[-1].end if self.log else 0

    def answer(self, header: BatchHeader) -> str:
        try:
            duplicate = self.states.check(header)
        except ApiError as error:
            return error.code.name
        return "append" if duplicate is None else f"duplicate {duplicate.base_offset}"

    def write(self, header: BatchHeader, coordinator_epoch: int | None = None) -> None:
        event = Event(self.end, header, coordinator_epoch)
        apply_event(self.states, event)
        self.log.append(event)

    @rule(
        producer_id=st.integers(1, 2),
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        step=st.sampled_from([0, 0, 0, 0, 0, 1, -1, -2, -6, -9]),
        start=st.sampled_from([0, LAST - 3, 5]),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
        crc=st.integers(0, 1),
    )
    def produce(self, producer_id: int, epoch_step: int, step: int, start: int, count: int, is_transactional: bool, crc: int) -> None:
        entry = self.states.get(producer_id)
        sequence, epoch = (start, 1) if entry is None else (entry.next_sequence + step, max(0, entry.epoch + epoch_step))
        sequence = 0 if epoch_step == 1 else sequence % (LAST + 1)
        header = data(sequence, count, producer_id=producer_id, epoch=epoch, crc=crc, is_transactional=is_transactional)
        answer = self.answer(header)
        assert answer == judge(self.log, header)
        if answer == "append":
            self.write(header)

    @rule(pick=st.integers(0, 11), crc=st.sampled_from([0, 0, 1]))
    @precondition(lambda self: self.log)
    def retry(self, pick: int, crc: int) -> None:
        header = self.log[-1 - pick % len(self.log)].header._replace(crc=crc)
        if not header.is_control:
            assert self.answer(header) == judge(self.log, header)

    @rule(producer_id=st.integers(1, 2), bump=st.integers(0, 1), kind=st.sampled_from([CONTROL_ABORT, CONTROL_COMMIT]))
    def end_transaction(self, producer_id: int, bump: int, kind: int) -> None:
        entry = self.states.get(producer_id)
        epoch = (entry.epoch if entry is not None else 0) + bump
        self.states.check_marker(producer_id, epoch, 9, 0)
        self.write(marker(producer_id=producer_id, epoch=epoch), coordinator_epoch=9)

    @rule(forward=st.integers(0, 5))
    def advance(self, forward: int) -> None:
        self.high_watermark = min(self.end, self.high_watermark + forward)
        self.states.on_high_watermark(self.high_watermark)

    @rule(keep=st.integers(0, 20))
    def restart(self, keep: int) -> None:
        """Restores the state from a snapshot at any point of the log and the batches after it."""
        cut = min(keep, len(self.log))
        early = replayed(self.log[:cut])
        restored = ProducerStates(KEY)
        restored.restore(early.snapshot())
        for event in self.log[cut:]:
            apply_event(restored, event)
        restored.on_high_watermark(self.high_watermark)
        assert restored.snapshot() == self.states.snapshot()
        self.states = restored

    @rule(lost=st.integers(1, 3))
    def truncate(self, lost: int) -> None:
        kept = self.log[: max(0, len(self.log) - lost)]
        if (kept[-1].end if kept else 0) >= self.high_watermark:
            self.log = kept
            self.states = replayed(kept)
            self.states.on_high_watermark(self.high_watermark)

    @invariant()
    def first_unstable_offset_is_that_of_the_log(self) -> None:
        unstable = []
        opened: dict[int, int] = {}
        for event in self.log:
            producer_id = event.header.producer_id
            if event.coordinator_epoch is None:
                if event.header.is_transactional:
                    opened.setdefault(producer_id, event.offset)
            elif producer_id in opened:
                first = opened.pop(producer_id)
                if event.offset >= self.high_watermark:
                    unstable.append(first)
        assert self.states.first_unstable_offset == min([*unstable, *opened.values()], default=None)


def apply_event(states: ProducerStates, event: Event) -> None:
    if event.coordinator_epoch is None:
        states.apply(event.header, event.offset)
    else:
        states.apply_marker(event.header, event.offset, CONTROL_COMMIT, event.coordinator_epoch)


def replayed(log: list[Event]) -> ProducerStates:
    states = ProducerStates(KEY)
    for event in log:
        apply_event(states, event)
    return states


TestProducersMachine = ProducersMachine.TestCase
