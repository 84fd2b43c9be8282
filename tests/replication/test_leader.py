"""The rules of a leader: appends, acknowledgements, markers, terms, the ISR (I11-I14, I19-I21, I25, I44)."""

from __future__ import annotations

import functools

import pytest

from ottla.base.errors import ErrorCode
from ottla.machine.contract import LogRecord, Transactional
from ottla.replication.isr import IsrProposal, IsrState
from ottla.replication.partition import AppendResult, Partition
from ottla.replication.progress import FollowerFetch
from ottla.wire.batch_header import read_batch_header
from ottla.wire.records import CODEC_GZIP, iter_batches
from tests.fakes.log_settings import log_settings
from tests.replication.records import NOW, OpenLog, append, batch, fetch, mine, refusal, three, values

# One replica


def test_an_append_is_acknowledged_and_visible_at_once(alone: Partition) -> None:
    result = append(alone, batch("a", "b"), acks=-1)
    assert result == AppendResult(0, 1, -1, 0, False)
    assert alone.require_leading().acknowledgement(1, -1) is ErrorCode.NONE
    assert append(alone, batch("c")).base_offset == 2
    assert (alone.high_watermark, alone.last_stable_offset, alone.log.log_end_offset) == (3, 3, 3)
    assert values(alone) == ["a", "b", "c"] and values(alone, 1) == ["b", "c"]


def test_a_bytearray_is_stamped_in_place(alone: Partition) -> None:
    append(alone, batch("a"))
    data = bytearray(batch("b"))
    alone.require_leading().append(data, acks=1, now_ms=NOW)
    assert data[7] == 1 and values(alone) == ["a", "b"]


def test_min_insync_of_a_single_replica_is_1(open_log: OpenLog) -> None:
    partition = Partition(open_log(log_settings(min_insync_replicas=2)), broker_id=1)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    append(partition, batch("a"), acks=-1)
    assert partition.require_leading().acknowledgement(0, -1) is ErrorCode.NONE


def test_log_append_time_is_answered(open_log: OpenLog) -> None:
    partition = Partition(open_log(log_settings(is_log_append_time=True)), broker_id=1)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    first = partition.require_leading().append(mine("a", sequence=0), acks=1, now_ms=5_000)
    again = partition.require_leading().append(mine("a", sequence=0), acks=1, now_ms=6_000)
    assert first.log_append_time_ms == 5_000
    assert again == first._replace(is_duplicate=True)
    assert (partition.traffic.produces, partition.traffic.messages_in) == (2, 1)


def test_settings_take_effect_when_they_change(alone: Partition) -> None:
    alone.log.configure(log_settings(compression_type="gzip", max_message_bytes=300))
    append(alone, batch("a" * 50))
    read = alone.read(0, 1 << 20)
    assert read.slice is not None and next(iter_batches(read.slice.read()))[1].codec == CODEC_GZIP
    assert refusal(lambda: append(alone, batch("a" * 300))) is ErrorCode.MESSAGE_TOO_LARGE


def test_i19_i20_sequences_are_held(alone: Partition) -> None:
    append(alone, mine("a", "b", sequence=0))
    assert refusal(lambda: append(alone, mine("d", sequence=3))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = append(alone, mine("a", "b", sequence=0))
    assert again == AppendResult(0, 1, -1, 0, True)
    assert values(alone) == ["a", "b"]


def test_i20_a_retry_is_recognised_after_a_restart_and_after_deletion(alone: Partition, open_log: OpenLog) -> None:
    for number in range(6):
        append(alone, mine("x", sequence=number))
    alone.require_leading().delete_records(-1)
    alone.log.close(clean=True)
    for was_clean in (True, False):
        partition = Partition(open_log(was_clean=was_clean, recovery_point=6 if was_clean else 0), broker_id=1)
        partition.become_leader(leader_epoch=1, partition_epoch=1, replicas=[1], isr=[1], now_ms=0)
        for number in range(1, 6):
            assert append(partition, mine("x", sequence=number)).base_offset == number
        assert refusal(lambda made=partition: append(made, mine("x", sequence=0))) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_i21_a_fenced_producer_is_refused(alone: Partition) -> None:
    append(alone, mine("a", sequence=0, epoch=1))
    assert refusal(lambda: append(alone, mine("b", sequence=1, epoch=0))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(alone) == ["a"]


# Roles and fencing


# Terms


def test_an_acknowledgement_does_not_survive_the_term_of_its_append(alone: Partition) -> None:
    leader = alone.require_leading()
    append(alone, batch("a"))
    assert leader.acknowledgement(0, 1) is ErrorCode.NONE
    alone.become_leader(leader_epoch=1, partition_epoch=1, replicas=[1], isr=[1], now_ms=0)
    assert leader.acknowledgement(0, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_acknowledgement_is_refused_when_leadership_was_lost_and_won_again(open_log: OpenLog) -> None:
    """The offset is below the high watermark again, but another batch may have it."""
    partition = three(open_log, min_insync=1)
    leader = partition.require_leading()
    called: list[str] = []
    append(partition, batch("lost"), acks=-1)
    leader.call_when_acknowledged(0, -1, lambda: called.append("lost"))
    partition.become_follower(leader_id=2, leader_epoch=5, partition_epoch=11, replicas=[1, 2, 3], isr=[2])
    assert called == ["lost"], "called when the term ends"
    assert partition.follower_log is not None
    partition.follower_log.truncate(0)
    partition.become_leader(leader_epoch=6, partition_epoch=12, replicas=[1, 2, 3], isr=[1], now_ms=0)
    append(partition, batch("other"), acks=-1)
    assert partition.high_watermark == 1 and partition.require_leading().acknowledgement(0, -1) is ErrorCode.NONE
    assert leader.acknowledgement(0, -1) is leader.acknowledgement(0, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: leader.append(batch("late"), acks=1, now_ms=NOW)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: leader.append_records([LogRecord(b"k", b"v")], None, NOW)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: leader.write_marker(7, 0, 1, True, NOW)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: leader.delete_records(1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.committed_end() < 0
    leader.call_when_acknowledged(0, -1, lambda: called.append("late"))
    assert called == ["lost", "late"]


def test_a_repeated_request_keeps_a_pending_isr_and_a_newer_one_ends_it(open_log: OpenLog) -> None:
    partition = three(open_log, isr=(1, 2))
    fetch(partition, 3, 0)
    pending = partition.isr_state
    assert pending.moving == (3,)
    for partition_epoch in (9, 10):
        partition.become_leader(leader_epoch=4, partition_epoch=partition_epoch, replicas=[1, 2, 3], isr=[1, 2], now_ms=0)
        assert partition.isr_state is pending and partition.partition_epoch == 10
    partition.become_leader(leader_epoch=4, partition_epoch=11, replicas=[1, 2, 3], isr=[1, 2, 3], now_ms=0)
    assert partition.isr_state == IsrState(members=(1, 2, 3))


def test_a_state_whose_isr_was_answered_already_still_brings_its_replicas(open_log: OpenLog) -> None:
    """A reassignment begins between a leader's proposal and the answer. The answer has the partition epoch of the reassignment, but not its
    replicas."""
    partition = three(open_log, isr=(1, 2))
    fetch(partition, 3, 0)
    leader = partition.require_leading()
    leader.on_isr_answer([1, 2], leader_epoch=4, partition_epoch=11)
    partition.become_leader(leader_epoch=4, partition_epoch=11, replicas=[4, 1, 2, 3], isr=[1, 2], now_ms=0)
    assert partition.state.replicas == (4, 1, 2, 3) and sorted(leader.followers) == [2, 3, 4]
    fetch(partition, 4, 0)
    pending = partition.isr_state
    partition.become_leader(leader_epoch=4, partition_epoch=10, replicas=[1, 2, 3], isr=[1, 2], now_ms=0)
    assert partition.state.replicas == (4, 1, 2, 3) and partition.isr_state is pending


# Several replicas


def test_i12_i14_the_high_watermark_follows_the_slowest_in_sync(open_log: OpenLog) -> None:
    partition = three(open_log)
    append(partition, batch("a", "b"), acks=-1)
    assert partition.require_leading().acknowledgement(1, 1) is ErrorCode.NONE
    assert partition.require_leading().acknowledgement(1, -1) is None and values(partition) == []
    fetch(partition, 2, 2)
    assert partition.require_leading().acknowledgement(1, -1) is None
    fetch(partition, 3, 1)
    assert partition.high_watermark == 1
    fetch(partition, 3, 2)
    assert partition.require_leading().acknowledgement(1, -1) is ErrorCode.NONE and values(partition) == ["a", "b"]


def test_i14_too_few_in_sync_is_refused_before_and_after(open_log: OpenLog) -> None:
    partition = three(open_log, min_insync=2, isr=(1, 2))
    append(partition, batch("a"), acks=-1)
    fetch(partition, 2, 1)
    assert partition.require_leading().acknowledgement(0, -1) is ErrorCode.NONE
    partition.require_leading().on_isr_answer([1], leader_epoch=4, partition_epoch=11)
    assert partition.require_leading().acknowledgement(0, -1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert refusal(lambda: append(partition, batch("b"), acks=-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refusal(lambda: partition.require_leading().write_marker(7, 0, 0, True, NOW)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert append(partition, batch("b"), acks=1).base_offset == 1
    assert partition.high_watermark == 1, "KIP-966: it stands still"


def test_kip_966_the_watermark_stands_still_while_there_are_eligible_replicas(open_log: OpenLog) -> None:
    """The controller may have a changed setting before this leader. So the leader does not compare with its own setting, but with whether
    the controller keeps eligible replicas."""
    partition = three(open_log, min_insync=1, isr=(1, 2))
    append(partition, batch("a"), acks=-1)
    partition.require_leading().on_isr_answer([1], leader_epoch=4, partition_epoch=11, eligible=[2])
    assert partition.high_watermark == 0 and partition.require_leading().acknowledgement(0, -1) is None
    assert refusal(lambda: append(partition, batch("b"), acks=-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.require_leading().on_isr_answer(None, leader_epoch=4, partition_epoch=12)
    assert partition.high_watermark == 0, "a refusal says nothing of them"
    partition.become_leader(leader_epoch=4, partition_epoch=13, replicas=[1, 2, 3], isr=[1], now_ms=0)
    assert partition.high_watermark == 1
    partition.become_leader(leader_epoch=5, partition_epoch=14, replicas=[1, 2, 3], isr=[1], eligible=[3], now_ms=0)
    append(partition, batch("b"))
    assert partition.high_watermark == 1
    partition.require_leading().on_isr_answer([1, 2], leader_epoch=5, partition_epoch=15)
    fetch(partition, 2, 2, epoch=5)
    assert partition.high_watermark == 2


def test_i11_i12_a_pending_member_holds_the_high_watermark(open_log: OpenLog) -> None:
    partition = three(open_log, isr=(1, 2))
    proposals: list[IsrProposal] = []
    partition.state.on_isr_proposal = lambda _state, proposal: proposals.append(proposal)
    append(partition, batch("a"))
    fetch(partition, 2, 1)
    fetch(partition, 3, 1, replica_epoch=77)
    assert proposals == [IsrProposal(members=((1, -1), (2, 1), (3, 77)), leader_epoch=4, partition_epoch=10)]
    append(partition, batch("b"))
    fetch(partition, 2, 2)
    assert partition.high_watermark == 1, "3 may be in the ISR by now"
    partition.require_leading().on_isr_answer(None, leader_epoch=4, partition_epoch=10)
    assert partition.high_watermark == 2 and partition.isr == (1, 2)


def test_a_leader_with_an_open_log_ends_what_is_eligible_for_that_alone(open_log: OpenLog) -> None:
    partition = Partition(open_log(log_settings(min_insync_replicas=1)), broker_id=1)
    proposals: list[IsrProposal] = []
    partition.state.on_isr_proposal = lambda _state, proposal: proposals.append(proposal)
    roles = {"leader_epoch": 4, "replicas": [1, 2, 3], "isr": [1], "now_ms": 0}
    partition.become_leader(partition_epoch=10, eligible=[2, 3], **roles)  # type: ignore[arg-type]
    leader = partition.require_leading()
    assert proposals == [IsrProposal(members=((1, -1),), leader_epoch=4, partition_epoch=10)] and leader.has_proposed(proposals[0])
    assert refusal(lambda: append(partition, batch("early"), acks=-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    leader.on_isr_answer([1], leader_epoch=4, partition_epoch=10, eligible=[2, 3])
    assert len(proposals) == 1, "the controller finds the set too small, and is not asked again"
    leader.on_isr_answer([1], leader_epoch=4, partition_epoch=11, eligible=[2])
    assert len(proposals) == 2, "an answer with a newer state than the proposed one"
    leader.on_isr_answer([1], leader_epoch=4, partition_epoch=12)
    append(partition, batch("a"), acks=-1)
    assert partition.high_watermark == 1 and len(proposals) == 2


def test_a_leader_ends_what_is_eligible_when_a_lower_minimum_is_set(open_log: OpenLog) -> None:
    partition = Partition(open_log(log_settings(min_insync_replicas=2)), broker_id=1)
    proposals: list[IsrProposal] = []
    partition.state.on_isr_proposal = lambda _state, proposal: proposals.append(proposal)
    partition.become_leader(leader_epoch=4, partition_epoch=10, replicas=[1, 2, 3], isr=[1], eligible=[2], now_ms=0)
    assert proposals == []
    partition.configure(log_settings(min_insync_replicas=1))
    assert proposals == [IsrProposal(members=((1, -1),), leader_epoch=4, partition_epoch=10)]
    partition.configure(log_settings(min_insync_replicas=1))
    assert len(proposals) == 1
    partition.require_leading().on_isr_answer([1], leader_epoch=4, partition_epoch=11)
    append(partition, batch("a"), acks=-1)
    assert partition.high_watermark == 1


def test_i12_a_changed_minimum_counts_before_the_next_append(open_log: OpenLog) -> None:
    partition = three(open_log, min_insync=2, isr=(1,))
    append(partition, batch("a"), acks=1)
    assert partition.high_watermark == 0
    partition.configure(log_settings(min_insync_replicas=1))
    assert partition.high_watermark == 1 and values(partition) == ["a"]
    partition.configure(log_settings(min_insync_replicas=2))
    assert partition.require_leading().acknowledgement(0, -1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_i13_kip_903_a_replica_of_an_earlier_life_is_not_proposed(open_log: OpenLog) -> None:
    partition = three(open_log, isr=(1, 2))
    partition.state.broker_epoch_of = {1: 60, 2: 61, 3: 99}.get
    fetch(partition, 3, 0, replica_epoch=62)
    assert partition.isr_state.moving == ()
    fetch(partition, 3, 0, replica_epoch=99)
    assert partition.isr_state.moving == (3,)


def test_i13_a_replica_below_the_leaders_epoch_start_stays_out(open_log: OpenLog) -> None:
    log = open_log(log_settings(min_insync_replicas=1))
    partition = Partition(log, broker_id=1)
    partition.become_leader(leader_epoch=1, partition_epoch=1, replicas=[1, 2], isr=[1, 2], now_ms=0)
    append(partition, batch("a", "b"))
    partition.become_leader(leader_epoch=2, partition_epoch=2, replicas=[1, 2, 3], isr=[1, 2], now_ms=0)
    assert partition.require_leading().epoch_start_offset == 2
    fetch(partition, 3, 1, epoch=2)
    assert partition.isr_state.moving == ()
    fetch(partition, 3, 2, epoch=2)
    assert partition.isr_state.moving == (3,)


def test_a_laggard_is_proposed_to_leave_and_counts_until_the_answer(open_log: OpenLog) -> None:
    partition = three(open_log)
    proposals: list[IsrProposal] = []
    partition.state.on_isr_proposal = lambda _state, proposal: proposals.append(proposal)
    append(partition, batch("a"))
    fetch(partition, 2, 1, now_ms=900)
    partition.require_leading().maybe_shrink_isr(1_000, 1_000)
    assert proposals == []
    partition.require_leading().maybe_shrink_isr(1_001, 1_000)
    partition.require_leading().maybe_shrink_isr(1_002, 1_000)
    assert [proposal.members for proposal in proposals] == [((1, -1), (2, 1))]
    assert partition.high_watermark == 0
    partition.require_leading().on_isr_answer([1, 2], leader_epoch=4, partition_epoch=11)
    assert partition.high_watermark == 1 and partition.isr == (1, 2) and partition.partition_epoch == 11


def test_late_answers_of_the_controller_are_ignored(open_log: OpenLog) -> None:
    partition = three(open_log)
    partition.require_leading().on_isr_answer([1], leader_epoch=3, partition_epoch=99)
    partition.require_leading().on_isr_answer([1], leader_epoch=4, partition_epoch=9)
    assert partition.isr == (1, 2, 3) and partition.partition_epoch == 10


def test_fetches_of_other_brokers_and_out_of_range_move_nothing(open_log: OpenLog) -> None:
    partition = three(open_log)
    append(partition, batch("a"))
    assert refusal(lambda: fetch(partition, 9, 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: fetch(partition, 2, 5)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.require_leading().followers[2].log_end_offset == -1


# Flush on ack


def test_p1_nothing_is_acknowledged_or_seen_before_it_is_durable(open_log: OpenLog) -> None:
    asked: list[Partition] = []
    partition = Partition(open_log(), broker_id=1, is_flush_on_ack=True, request_flush=asked.append)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    append(partition, batch("a"))
    assert asked == [partition]
    append(partition, batch("b"))
    leader = partition.require_leading()
    assert leader.acknowledgement(0, 1) is leader.acknowledgement(0, -1) is None and values(partition) == []
    for file in partition.log.unflushed_files():
        file.sync()
    partition.on_flushed(1)
    assert leader.acknowledgement(0, 1) is ErrorCode.NONE and leader.acknowledgement(1, 1) is None
    assert values(partition) == ["a"] and partition.log.recovery_point == 1
    partition.on_flushed(2)
    assert partition.require_leading().acknowledgement(1, -1) is ErrorCode.NONE


# Transactions


def test_i24_a_marker_above_the_high_watermark_does_not_move_the_last_stable_offset(open_log: OpenLog) -> None:
    partition = three(open_log)
    append(partition, mine("t", sequence=0, is_transactional=True))
    partition.require_leading().write_marker(7, 0, 1, True, NOW)
    for replica_id in (2, 3):
        fetch(partition, replica_id, 1)
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    for replica_id in (2, 3):
        fetch(partition, replica_id, 2)
    assert partition.last_stable_offset == 2


def test_i25_a_marker_is_written_once(alone: Partition) -> None:
    append(alone, mine("t", sequence=0, is_transactional=True))
    assert alone.require_leading().write_marker(7, 1, 1, True, NOW, transaction_version=2) == 1
    assert alone.require_leading().write_marker(7, 1, 1, True, NOW, transaction_version=2) is None
    assert alone.log.log_end_offset == 2
    append(alone, mine("t", sequence=0, epoch=1, is_transactional=True))
    code = refusal(lambda: alone.require_leading().write_marker(7, 1, 1, True, NOW, transaction_version=2))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH and alone.require_leading().has_open_transaction(7, 1)


def test_p5_a_guard_is_asked_for_where_it_is_required(open_log: OpenLog) -> None:
    partition = Partition(open_log(), broker_id=1, is_verification_required=True)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    first = mine("t", sequence=0, is_transactional=True)
    assert refusal(lambda: append(partition, first)) is ErrorCode.INVALID_TXN_STATE
    stale = partition.require_leading().begin_verification(7, 0, 0)
    partition.require_leading().write_marker(7, 0, 1, False, NOW)
    assert stale is not None and refusal(lambda: append(partition, first, guard=stale)) is ErrorCode.INVALID_TXN_STATE
    guard = partition.require_leading().begin_verification(7, 0, 0)
    append(partition, first, guard=guard)
    append(partition, mine("u", sequence=1, is_transactional=True))
    assert len(partition.require_leading().verifications) == 0


def test_p5_a_marker_overtakes_an_answer_about_a_transaction_that_is_open_already(open_log: OpenLog) -> None:
    """After a change of leader the coordinator is asked about an open transaction, because the new leader does not know the transaction's
    principal."""
    partition = Partition(open_log(), broker_id=1, is_verification_required=True)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    leader = partition.require_leading()
    append(partition, mine("t", sequence=0, is_transactional=True), guard=leader.begin_verification(7, 0, 0))
    batch = mine("u", sequence=1, is_transactional=True)
    guard = leader.begin_verification(7, 0, 1)
    leader.write_marker(7, 0, 1, False, NOW)
    assert not leader.verifications.stands(7, 0, guard)
    assert leader.must_verify_again(read_batch_header(batch), guard), "the next transaction may have begun"
    assert refusal(lambda: append(partition, batch, guard=guard)) is ErrorCode.INVALID_TXN_STATE


def test_i19_a_late_batch_of_an_earlier_connection_does_not_stop_its_producer(open_log: OpenLog) -> None:
    """A producer of transactions v1 keeps its epoch. The first batch of its last transaction arrives again, on a connection that it has
    given up, while the coordinator is asked about the first batch of the next transaction.
    """
    partition = Partition(open_log(), broker_id=1, is_verification_required=True)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    leader = partition.require_leading()
    first = mine("a", "b", sequence=0, is_transactional=True)
    append(partition, bytearray(first), guard=leader.begin_verification(7, 0, 0))
    leader.write_marker(7, 0, 1, True, NOW)
    guard = leader.begin_verification(7, 0, 2)
    late = leader.begin_verification(7, 0, 0)
    assert append(partition, mine("c", sequence=2, is_transactional=True), guard=guard).base_offset == 3
    assert append(partition, bytearray(first), guard=late).is_duplicate
    assert values(partition) == ["a", "b", "c"]


def test_i19_without_state_the_first_of_several_batches_in_flight_goes_first(open_log: OpenLog) -> None:
    partition = Partition(open_log(), broker_id=1, is_verification_required=True)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    leader = partition.require_leading()
    guard = leader.begin_verification(7, 0, 4)
    leader.begin_verification(7, 0, 3)
    later = mine("b", sequence=4, is_transactional=True)
    assert refusal(lambda: append(partition, bytearray(later), guard=guard)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(partition, mine("a", sequence=3, is_transactional=True), guard=guard)
    append(partition, bytearray(later))
    assert values(partition) == ["a", "b"]


# The log of a machine


def test_a_machine_writes_one_batch_and_is_called_when_it_is_committed(open_log: OpenLog) -> None:
    partition = three(open_log)
    leader = partition.require_leading()
    ends: list[int] = []
    assert leader.append_records([LogRecord(b"k", b"v"), LogRecord(b"k", None)], None, NOW) == 2
    leader.call_when_committed(2, lambda: ends.append(leader.committed_end()))
    fetch(partition, 2, 2)
    assert ends == []
    fetch(partition, 3, 2)
    assert ends == [2]
    partition.become_follower(leader_id=2, leader_epoch=5, partition_epoch=11, replicas=[1, 2, 3], isr=[2])
    assert refusal(lambda: leader.append_records([LogRecord(b"k", b"v")], None, NOW)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_of_a_coordinator_have_the_codec_of_their_topic(alone: Partition) -> None:
    alone.log.configure(log_settings(compression_type="gzip", is_compacted=True))
    assert alone.require_leading().append_records([LogRecord(b"k", b"v" * 100)], None, NOW) == 1
    read = alone.read(0, 1 << 20)
    assert read.slice is not None and next(iter_batches(read.slice.read()))[1].codec == CODEC_GZIP
    assert values(alone) == ["v" * 100]


def test_records_of_a_machine_may_stand_in_a_clients_transaction(alone: Partition) -> None:
    for _ in range(2):
        alone.require_leading().append_records([LogRecord(b"k", b"v")], Transactional(7, 3), NOW)
    assert alone.last_stable_offset == 0 and alone.require_leading().has_open_transaction(7, 3)
    code = refusal(lambda: alone.require_leading().append_records([LogRecord(b"k", b"v")], Transactional(7, 2), NOW))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    alone.require_leading().write_marker(7, 3, 1, True, NOW)
    assert alone.last_stable_offset == 3


def test_a_machine_cannot_write_more_than_a_message(alone: Partition) -> None:
    code = refusal(lambda: alone.require_leading().append_records([LogRecord(b"k", bytes(2 << 20))], None, NOW))
    assert code is ErrorCode.RECORD_LIST_TOO_LARGE and alone.log.log_end_offset == 0


# Waiting


@pytest.mark.parametrize("acks", [1, -1])
def test_a_waiter_is_called_once_when_its_offset_is_there_and_not_before(open_log: OpenLog, acks: int) -> None:
    partition = Partition(open_log(), broker_id=1, is_flush_on_ack=True, request_flush=lambda _partition: None)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,), now_ms=0)
    called: list[str] = []
    waiting = {name: functools.partial(called.append, name) for name in "abcd"}
    for name, function in waiting.items():
        append(partition, batch(name))
        partition.require_leading().call_when_acknowledged(partition.log.log_end_offset - 1, acks, function)
    partition.require_leading().forget_acknowledgement(waiting["b"])
    partition.require_leading().forget_acknowledgement(waiting["b"])
    partition.on_flushed(3)
    assert called == ["a", "c"], "b was forgotten, d is not on the disk yet"
    partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2), isr=(2,))
    assert called == ["a", "c", "d"], "the term is over"


def test_a_flush_that_may_have_begun_before_a_truncation_is_followed_by_another(open_log: OpenLog) -> None:
    """The leader does not know whether a flush was running at the truncation."""
    asked: list[Partition] = []
    partition = Partition(open_log(), broker_id=1, is_flush_on_ack=True, request_flush=asked.append)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(1, 2), isr=(1, 2), now_ms=0)
    append(partition, batch("a"))
    append(partition, batch("lost"))
    partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
    assert partition.follower_log is not None
    partition.follower_log.truncate(1)
    partition.become_leader(leader_epoch=2, partition_epoch=2, replicas=(1, 2), isr=(1, 2), now_ms=0)
    append(partition, batch("b"))
    asked.clear()
    partition.on_flushed(2)
    assert partition.state.durable_end == 1 and asked == [partition]
    partition.on_flushed(2)
    assert partition.state.durable_end == 2 and asked == [partition]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_that_came_again_waits_no_longer_than_where_it_was_first_written(open_log: OpenLog, acks: int) -> None:
    partition = Partition(open_log(), broker_id=1, is_flush_on_ack=True, request_flush=lambda _partition: None)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,), now_ms=0)
    called: list[str] = []
    for name in "abcd":
        append(partition, batch(name))
    twice = functools.partial(called.append, "twice")
    for offset, name in ((3, "d"), (0, "a again"), (1, "b again")):
        partition.require_leading().call_when_acknowledged(offset, acks, functools.partial(called.append, name))
    partition.require_leading().call_when_acknowledged(2, acks, twice)
    partition.require_leading().call_when_acknowledged(0, acks, twice)
    partition.on_flushed(1)
    assert called == ["a again"]
    partition.on_flushed(2)
    assert called == ["a again", "b again"]
    partition.on_flushed(4)
    assert called == ["a again", "b again", "twice", "d"], "a waiter for two offsets is called at the later one"


def test_delete_records_moves_the_start_up_to_the_high_watermark(open_log: OpenLog) -> None:
    """I7: an offset above the high watermark is refused."""
    partition = three(open_log)
    append(partition, batch("a", "b", "c"))
    for replica_id in (2, 3):
        fetch(partition, replica_id, 2, log_start_offset=0)
    assert refusal(lambda: partition.require_leading().delete_records(3)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(lambda: partition.require_leading().delete_records(-2)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.require_leading().delete_records(-1) == 2
    assert partition.log.log_start_offset == 2
    assert partition.require_leading().low_watermark() == 0, "the followers have not deleted yet"
    fetch(partition, 2, 3, log_start_offset=2)
    fetch(partition, 3, 3, log_start_offset=1)
    assert partition.require_leading().low_watermark() == 1
    assert partition.require_leading().low_watermark([1, 2]) == 1, "3 is not alive, but may be elected"
    leader = partition.require_leading()
    leader.on_isr_answer([1, 2], leader_epoch=leader.epoch, partition_epoch=11)
    assert leader.low_watermark([1, 2]) == 2, "it cannot any more"
    leader.on_isr_answer([1], leader_epoch=leader.epoch, partition_epoch=12, eligible=[2])
    assert leader.low_watermark([1]) == 1, "who may be elected is not known here"


def test_p1_the_high_watermark_counts_what_followers_have_synced(open_log: OpenLog) -> None:
    partition = Partition(open_log(), broker_id=1, is_flush_on_ack=True, request_flush=lambda _partition: None)
    partition.become_leader(leader_epoch=4, partition_epoch=0, replicas=[1, 2, 3], isr=[1, 2, 3], now_ms=0)
    append(partition, batch("a", "b"))
    partition.on_flushed(2)
    partition.note_follower(FollowerFetch(2, 1, 2, 0, 0, 1))
    partition.note_follower(FollowerFetch(3, 1, 2, 0, 0))
    assert partition.high_watermark == 1, "of 2 one is durable; 3 does not wait for its disk, as its operator wants it"
    partition.note_follower(FollowerFetch(2, 1, 2, 0, 0, 9))
    assert partition.high_watermark == 2, "no more than it has"
