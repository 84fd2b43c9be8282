"""What a share session says to its broker, and what it makes of the answers; no broker here."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import WireError
from ottla.base.types import TopicPartition
from ottla.client.core.share_session import ACCEPT, FINAL_EPOCH, GAP, REJECT, RELEASE, RENEW, ConsumerShareSession, ShareFetchLimits
from ottla.wire.messages.share_fetch import AcquiredRecords, PartitionData
from ottla.wire.records import CONTROL_COMMIT, Record, encode_batch, encode_control_batch

TOPIC_ID = b"\x11" * 16
OTHER_ID = b"\x22" * 16
ZERO, ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {ZERO: TOPIC_ID, ONE: TOPIC_ID, OTHER: OTHER_ID}
LIMITS = ShareFetchLimits(500, 1, 1000, 10, 1)


def wanted(*partitions: TopicPartition) -> dict[TopicPartition, bytes]:
    return {partition: IDS[partition] for partition in partitions}


def batch(first: int, count: int) -> bytes:
    return bytes(encode_batch([Record(0, 1000 + n, None, b"%d" % (first + n), ()) for n in range(count)], base_offset=first))


def lent(records: bytes, *runs: tuple[int, int, int]) -> PartitionData:
    acquired = [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count) for first, last, count in runs]
    return PartitionData(partition_index=0, records=records, acquired_records=acquired)


@pytest.fixture
def session() -> ConsumerShareSession:
    """One that fetches from t-0 and t-1, and has begun."""
    session = ConsumerShareSession("g", "m")
    session.fetch_request(wanted(ZERO, ONE), LIMITS)
    return session


def acknowledgements_in(request: Any) -> dict[tuple[bytes, int], list[tuple[int, int, list[int]]]]:
    """Topic and partition -> runs of acknowledgements, for all that the request names."""
    return {
        (topic.topic_id, part.partition_index): [
            (found.first_offset, found.last_offset, found.acknowledge_types) for found in part.acknowledgement_batches
        ]
        for topic in request.topics
        for part in topic.partitions
    }


def test_a_session_begins_with_all_partitions_and_then_names_changes() -> None:
    session = ConsumerShareSession("g", "m")
    first = session.fetch_request(wanted(ZERO, ONE), LIMITS)
    assert (first.group_id, first.member_id, first.share_session_epoch) == ("g", "m", 0)
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes, first.max_records, first.share_acquire_mode) == (500, 1, 1000, 10, 1)
    assert acknowledgements_in(first) == {(TOPIC_ID, 0): [], (TOPIC_ID, 1): []}
    second = session.fetch_request(wanted(ZERO, ONE), LIMITS)
    assert second.share_session_epoch == 1 and acknowledgements_in(second) == {} and second.forgotten_topics_data == []
    third = session.fetch_request(wanted(ONE, OTHER), LIMITS)
    assert third.share_session_epoch == 2 and acknowledgements_in(third) == {(OTHER_ID, 0): []}
    assert [(gone.topic_id, gone.partitions) for gone in third.forgotten_topics_data] == [(TOPIC_ID, [0])]


def test_the_epoch_goes_round_without_passing_zero(session: ConsumerShareSession) -> None:
    session.epoch = 0x7FFFFFFF
    assert session.fetch_request(wanted(ZERO), LIMITS).share_session_epoch == 0x7FFFFFFF
    assert session.fetch_request(wanted(ZERO), LIMITS).share_session_epoch == 1


def test_only_acquired_records_are_delivered(session: ConsumerShareSession) -> None:
    found = session.take(ZERO, lent(batch(0, 5) + batch(5, 5) + batch(10, 5), (3, 3, 2), (11, 12, 1)))
    assert [(delivery.record.offset, delivery.number, bytes(delivery.record.value or b"")) for delivery in found] == [
        (3, 2, b"3"),
        (11, 1, b"11"),
        (12, 1, b"12"),
    ]
    assert session.open == {ZERO: {3: None, 11: None, 12: None}}
    assert session.take(ONE, lent(b"")) == [] and session.acknowledged() == []


def test_offsets_without_a_record_are_gaps(session: ConsumerShareSession) -> None:
    marker = encode_control_batch(CONTROL_COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=2)
    found = session.take(ZERO, lent(batch(0, 2) + bytes(marker) + batch(4, 1), (0, 5, 1)))
    assert [delivery.record.offset for delivery in found] == [0, 1, 4]
    session.accept_all()
    assert acknowledgements_in(session.acknowledge_request()) == {(TOPIC_ID, 0): [(0, 5, [ACCEPT, ACCEPT, GAP, GAP, ACCEPT, GAP])]}


def test_acknowledgements_travel_in_runs(session: ConsumerShareSession) -> None:
    session.take(ZERO, lent(batch(0, 6), (0, 5, 1)))
    for offset, kind in ((0, ACCEPT), (1, ACCEPT), (3, REJECT), (4, RELEASE)):
        assert session.acknowledge(ZERO, offset, kind)
    request = session.fetch_request(wanted(ZERO, ONE), LIMITS)
    assert acknowledgements_in(request) == {(TOPIC_ID, 0): [(0, 1, [ACCEPT]), (3, 4, [REJECT, RELEASE])]}
    assert [(run.first, run.last, run.size) for run in session.sent[ZERO]] == [(0, 1, 2), (3, 4, 2)]
    assert session.open == {ZERO: {2: None, 5: None}}
    assert not session.acknowledge(ZERO, 0, ACCEPT) and not session.acknowledge(ONE, 0, ACCEPT)


def test_a_renewed_record_stays_acquired(session: ConsumerShareSession) -> None:
    session.take(ZERO, lent(batch(0, 2), (0, 1, 1)))
    session.acknowledge(ZERO, 0, RENEW)
    assert session.has_renewals()
    request = session.acknowledge_request()
    assert request.is_renew_ack and acknowledgements_in(request) == {(TOPIC_ID, 0): [(0, 0, [RENEW])]}
    assert session.open == {ZERO: {0: None, 1: None}} and not session.has_renewals()
    session.accept_all()
    request = session.acknowledge_request(is_final=True)
    assert not request.is_renew_ack and request.share_session_epoch == FINAL_EPOCH
    assert acknowledgements_in(request) == {(TOPIC_ID, 0): [(0, 1, [ACCEPT])]} and session.open == {}


def test_a_lost_session_holds_nothing(session: ConsumerShareSession) -> None:
    session.take(ZERO, lent(batch(0, 2), (0, 1, 1)))
    session.reset()
    session.accept_all()
    assert session.open == {} and session.fetch_request(wanted(ZERO), LIMITS).share_session_epoch == 0


def test_an_answer_names_partitions_by_id(session: ConsumerShareSession) -> None:
    assert session.named(TOPIC_ID, 1) == ONE
    assert session.named(TOPIC_ID, 2) is None and session.named(OTHER_ID, 0) is None


@pytest.mark.parametrize(("position", "words"), [(16, "magic"), (-1, "damaged")])
def test_broken_batches_are_refused(session: ConsumerShareSession, position: int, words: str) -> None:
    data = bytearray(batch(0, 2))
    data[position] ^= 0xFF
    with pytest.raises(WireError, match=words):
        session.take(ZERO, lent(bytes(data), (0, 1, 1)))


def test_a_damaged_batch_that_was_not_acquired_is_passed_over(session: ConsumerShareSession) -> None:
    data = bytearray(batch(0, 2))
    data[-1] ^= 0xFF
    assert [delivery.record.offset for delivery in session.take(ZERO, lent(bytes(data) + batch(2, 1), (2, 2, 1)))] == [2]


def test_limits_are_a_request_s_own(session: ConsumerShareSession) -> None:
    assert session.fetch_request(wanted(ZERO), LIMITS._replace(max_records=3)).max_records == 3
