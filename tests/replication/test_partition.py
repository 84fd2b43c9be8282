"""A leader by rule: appends, acknowledgements, markers, fencing, ISR (I11-I14, I18-I21, I24, I25, I44)."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable

import pytest

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.types import READ_COMMITTED
from ottla.machine.contract import LogRecord, Transactional
from ottla.replication.isr import IsrProposal
from ottla.replication.partition import AppendResult, Partition
from ottla.storage.log import Log
from ottla.wire.records import CODEC_GZIP, Record, encode_batch, iter_batches, read_records
from tests.fakes.disk import MemDisk

NOW = 1_000
OpenLog = Callable[..., Log]


def batch(
    *values: str, sequence: int = -1, epoch: int = -1, producer_id: int = -1, is_transactional: bool = False, codec: int = 0
) -> memoryview:
    records = [Record(0, NOW, None, value.encode()) for value in values]
    return memoryview(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
            codec=codec,
        )
    )


def mine(*values: str, sequence: int, epoch: int = 0, is_transactional: bool = False) -> memoryview:
    return batch(*values, sequence=sequence, epoch=epoch, producer_id=7, is_transactional=is_transactional)


def append(partition: Partition, data: memoryview, *, acks: int = 1, **more: object) -> AppendResult:
    return partition.append(data, acks=acks, now_ms=NOW, **more)  # type: ignore[arg-type]


def refusal(function: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        function()
    return caught.value.code


def values(partition: Partition, offset: int = 0, *, isolation: int = 0) -> list[str]:
    """What a reader sees from `offset` on, aborted transactions left in."""
    seen = []
    while True:
        read = partition.read(offset, 1 << 20, isolation=isolation)
        if read.slice is None:
            return seen
        data = read.slice.read()
        for position, header in iter_batches(data):
            if not header.is_control:
                seen += [(record.value or b"").decode() for record in read_records(data[position:]) if record.offset >= offset]
            offset = header.next_offset


def three(open_log: OpenLog, *, min_insync: int = 2, isr: tuple[int, ...] = (1, 2, 3)) -> Partition:
    partition = Partition(open_log(LogConfig(min_insync_replicas=min_insync)), broker_id=1)
    partition.become_leader(leader_epoch=4, partition_epoch=10, replicas=[1, 2, 3], isr=isr, now_ms=0)
    return partition


def fetch(partition: Partition, replica_id: int, offset: int, *, now_ms: int = 0, epoch: int = 4, replica_epoch: int = -1) -> None:
    partition.read(offset, 1 << 20, current_leader_epoch=epoch, replica_id=replica_id, now_ms=now_ms, replica_epoch=replica_epoch)


# One replica


def test_an_append_is_acknowledged_and_visible_at_once(alone: Partition) -> None:
    result = append(alone, batch("a", "b"), acks=-1)
    assert result == AppendResult(0, 1, -1, 0, False)
    assert alone.acknowledgement(1, -1) is ErrorCode.NONE
    assert append(alone, batch("c")).base_offset == 2
    assert (alone.high_watermark, alone.last_stable_offset, alone.log.log_end_offset) == (3, 3, 3)
    assert values(alone) == ["a", "b", "c"] and values(alone, 1) == ["b", "c"]


def test_a_bytearray_is_stamped_in_place(alone: Partition) -> None:
    append(alone, batch("a"))
    data = bytearray(batch("b"))
    alone.append(data, acks=1, now_ms=NOW)
    assert data[7] == 1 and values(alone) == ["a", "b"]


def test_min_insync_of_a_single_replica_is_1(open_log: OpenLog) -> None:
    partition = Partition(open_log(LogConfig(min_insync_replicas=2)), broker_id=1)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    append(partition, batch("a"), acks=-1)
    assert partition.acknowledgement(0, -1) is ErrorCode.NONE


def test_log_append_time_is_answered(open_log: OpenLog) -> None:
    partition = Partition(open_log(LogConfig(is_log_append_time=True)), broker_id=1)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    first = partition.append(mine("a", sequence=0), acks=1, now_ms=5_000)
    again = partition.append(mine("a", sequence=0), acks=1, now_ms=6_000)
    assert first.log_append_time_ms == 5_000
    assert again == first._replace(is_duplicate=True)


def test_settings_take_effect_when_they_change(alone: Partition) -> None:
    alone.log.configure(LogConfig(compression_type="gzip", max_message_bytes=300))
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
    alone.delete_records(-1)
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


def test_i18_another_leader_epoch_is_fenced_without_effect(open_log: OpenLog) -> None:
    partition = three(open_log)
    append(partition, batch("a"))
    for epoch, code in ((3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert refusal(lambda e=epoch: fetch(partition, 2, 1, epoch=e)) is code
        assert refusal(lambda e=epoch: partition.list_offset(-1, 0, e)) is code
        assert refusal(lambda e=epoch: partition.end_offset_for_epoch(4, e)) is code
    assert partition.remotes[2].log_end_offset == -1 and partition.high_watermark == 0


def test_a_follower_refuses_clients_and_says_who_leads(alone: Partition) -> None:
    append(alone, batch("a"))
    alone.become_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=[1, 2], isr=[2])
    for function in (lambda: append(alone, batch("b")), lambda: alone.read(0, 100), lambda: alone.list_offset(-1, 0)):
        assert refusal(function) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert alone.acknowledgement(0, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert alone.leader_id == 2


def test_i15_epochs_do_not_go_back(alone: Partition) -> None:
    alone.become_leader(leader_epoch=3, partition_epoch=1, replicas=[1], isr=[1], now_ms=0)
    with pytest.raises(AssertionError):
        alone.become_leader(leader_epoch=2, partition_epoch=1, replicas=[1], isr=[1], now_ms=0)
    with pytest.raises(AssertionError):
        alone.become_follower(leader_id=2, leader_epoch=2, partition_epoch=1, replicas=[1, 2], isr=[2])


def test_an_acknowledgement_does_not_survive_the_term_of_its_append(alone: Partition) -> None:
    append(alone, batch("a"))
    assert alone.acknowledgement(0, 1, leader_epoch=0) is ErrorCode.NONE
    alone.become_leader(leader_epoch=1, partition_epoch=1, replicas=[1], isr=[1], now_ms=0)
    assert alone.acknowledgement(0, 1, leader_epoch=0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_i44_a_failed_write_takes_the_partition_offline(alone: Partition, disk: MemDisk) -> None:
    append(alone, batch("a"))
    heard: list[str] = []
    alone.add_watcher(lambda: heard.append(alone.offline_reason))
    disk.fail_next("write", errno.ENOSPC, path_part=".log")
    told: list[StorageError] = []
    alone.on_storage_error = lambda _partition, error: told.append(error)
    assert refusal(lambda: append(alone, batch("b"))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(told) == 1
    assert len(heard) == 1 and heard[0]
    for function in (lambda: append(alone, batch("c")), lambda: alone.read(0, 100)):
        assert refusal(function) is ErrorCode.KAFKA_STORAGE_ERROR
    assert alone.acknowledgement(0, -1) is ErrorCode.KAFKA_STORAGE_ERROR


def test_i44_a_failed_read_takes_the_partition_offline(open_log: OpenLog, disk: MemDisk) -> None:
    log = open_log()
    partition = Partition(log, broker_id=1)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    append(partition, batch("a"))
    log.roll()
    append(partition, batch("b"))
    log.close(clean=True)
    disk.fail_next("open", errno.EIO)
    assert refusal(lambda: partition.read(0, 100)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not partition.is_online


# Several replicas


def test_i12_i14_the_high_watermark_follows_the_slowest_in_sync(open_log: OpenLog) -> None:
    partition = three(open_log)
    append(partition, batch("a", "b"), acks=-1)
    assert partition.acknowledgement(1, 1) is ErrorCode.NONE
    assert partition.acknowledgement(1, -1) is None and values(partition) == []
    fetch(partition, 2, 2)
    assert partition.acknowledgement(1, -1) is None
    fetch(partition, 3, 1)
    assert partition.high_watermark == 1
    fetch(partition, 3, 2)
    assert partition.acknowledgement(1, -1) is ErrorCode.NONE and values(partition) == ["a", "b"]


def test_i14_too_few_in_sync_is_said_before_and_after(open_log: OpenLog) -> None:
    partition = three(open_log, min_insync=2, isr=(1, 2))
    append(partition, batch("a"), acks=-1)
    fetch(partition, 2, 1)
    assert partition.acknowledgement(0, -1) is ErrorCode.NONE
    partition.on_isr_answer([1], leader_epoch=4, partition_epoch=11)
    assert partition.acknowledgement(0, -1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert refusal(lambda: append(partition, batch("b"), acks=-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refusal(lambda: partition.write_marker(7, 0, 0, True, NOW)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert append(partition, batch("b"), acks=1).base_offset == 1
    assert partition.high_watermark == 1, "KIP-966: it stands still"


def test_i11_i12_a_pending_member_holds_the_high_watermark(open_log: OpenLog) -> None:
    partition = three(open_log, isr=(1, 2))
    proposals: list[IsrProposal] = []
    partition.on_isr_proposal = lambda _partition, proposal: proposals.append(proposal)
    append(partition, batch("a"))
    fetch(partition, 2, 1)
    fetch(partition, 3, 1, replica_epoch=77)
    assert proposals == [IsrProposal(members=((1, -1), (2, -1), (3, 77)), leader_epoch=4, partition_epoch=10)]
    append(partition, batch("b"))
    fetch(partition, 2, 2)
    assert partition.high_watermark == 1, "3 may be in the ISR by now"
    partition.on_isr_answer(None, leader_epoch=4, partition_epoch=10)
    assert partition.high_watermark == 2 and partition.isr == (1, 2)


def test_i13_kip_903_a_replica_of_an_earlier_life_is_not_proposed(open_log: OpenLog) -> None:
    partition = three(open_log, isr=(1, 2))
    partition.broker_epoch_of = {1: 60, 2: 61, 3: 99}.get
    fetch(partition, 3, 0, replica_epoch=62)
    assert partition.isr_state.moving == ()
    fetch(partition, 3, 0, replica_epoch=99)
    assert partition.isr_state.moving == (3,)


def test_i13_a_replica_below_the_leaders_epoch_start_stays_out(open_log: OpenLog) -> None:
    log = open_log(LogConfig(min_insync_replicas=1))
    partition = Partition(log, broker_id=1)
    partition.become_leader(leader_epoch=1, partition_epoch=1, replicas=[1, 2], isr=[1, 2], now_ms=0)
    append(partition, batch("a", "b"))
    partition.become_leader(leader_epoch=2, partition_epoch=2, replicas=[1, 2, 3], isr=[1, 2], now_ms=0)
    assert partition.epoch_start_offset == 2
    fetch(partition, 3, 1, epoch=2)
    assert partition.isr_state.moving == ()
    fetch(partition, 3, 2, epoch=2)
    assert partition.isr_state.moving == (3,)


def test_a_laggard_is_proposed_to_leave_and_counts_until_the_answer(open_log: OpenLog) -> None:
    partition = three(open_log)
    proposals: list[IsrProposal] = []
    partition.on_isr_proposal = lambda _partition, proposal: proposals.append(proposal)
    append(partition, batch("a"))
    fetch(partition, 2, 1, now_ms=900)
    partition.maybe_shrink_isr(1_000, 1_000)
    assert proposals == []
    partition.maybe_shrink_isr(1_001, 1_000)
    partition.maybe_shrink_isr(1_002, 1_000)
    assert [proposal.members for proposal in proposals] == [((1, -1), (2, -1))]
    assert partition.high_watermark == 0
    partition.on_isr_answer([1, 2], leader_epoch=4, partition_epoch=11)
    assert partition.high_watermark == 1 and partition.isr == (1, 2) and partition.partition_epoch == 11


def test_late_answers_of_the_controller_say_nothing(open_log: OpenLog) -> None:
    partition = three(open_log)
    partition.on_isr_answer([1], leader_epoch=3, partition_epoch=99)
    partition.on_isr_answer([1], leader_epoch=4, partition_epoch=9)
    assert partition.isr == (1, 2, 3) and partition.partition_epoch == 10


def test_strangers_and_offsets_out_of_range_move_nothing(open_log: OpenLog) -> None:
    partition = three(open_log)
    append(partition, batch("a"))
    assert refusal(lambda: fetch(partition, 9, 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: fetch(partition, 2, 5)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.remotes[2].log_end_offset == -1


# Flush on ack


def test_p1_nothing_is_acknowledged_or_seen_before_it_is_durable(open_log: OpenLog) -> None:
    asked: list[Partition] = []
    partition = Partition(open_log(), broker_id=1, is_flush_on_ack=True, request_flush=asked.append)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    append(partition, batch("a"))
    assert asked == [partition]
    append(partition, batch("b"))
    assert partition.acknowledgement(0, 1) is None and partition.acknowledgement(0, -1) is None and values(partition) == []
    for file in partition.log.unflushed_files():
        file.sync()
    partition.on_flushed(1)
    assert partition.acknowledgement(0, 1) is ErrorCode.NONE and partition.acknowledgement(1, 1) is None
    assert values(partition) == ["a"] and partition.log.recovery_point == 1
    partition.on_flushed(2)
    assert partition.acknowledgement(1, -1) is ErrorCode.NONE


# Transactions


def test_i24_readers_of_committed_data_stop_before_an_open_transaction(alone: Partition) -> None:
    append(alone, batch("plain"))
    append(alone, mine("t1", "t2", sequence=0, is_transactional=True))
    append(alone, batch("later"))
    assert alone.last_stable_offset == 1 and values(alone, isolation=READ_COMMITTED) == ["plain"]
    assert values(alone) == ["plain", "t1", "t2", "later"]
    assert alone.write_marker(7, 0, 1, True, NOW) == 4
    assert alone.last_stable_offset == 5
    assert values(alone, isolation=READ_COMMITTED) == ["plain", "t1", "t2", "later"]
    read = alone.read(0, 1 << 20, isolation=READ_COMMITTED)
    assert read.aborted == []


def test_i24_aborted_transactions_are_named_to_the_reader(alone: Partition) -> None:
    append(alone, mine("t", sequence=0, is_transactional=True))
    alone.write_marker(7, 0, 1, False, NOW)
    assert alone.read(0, 1 << 20, isolation=READ_COMMITTED).aborted == [(7, 0)]
    assert alone.read(0, 1 << 20).aborted is None


def test_i24_aborted_transactions_of_sealed_segments(alone: Partition) -> None:
    """The transaction begins in one segment and its marker stands in another."""
    append(alone, mine("t1", sequence=0, is_transactional=True))
    alone.log.roll()
    append(alone, mine("t2", sequence=1, is_transactional=True))
    alone.log.roll()
    alone.write_marker(7, 0, 1, False, NOW)
    append(alone, batch("x"))
    alone.log.roll()
    append(alone, batch("y"))
    for offset in (0, 1, 2):
        assert alone.read(offset, 1 << 20, isolation=READ_COMMITTED).aborted == [(7, 0)]
    assert alone.read(3, 1 << 20, isolation=READ_COMMITTED).aborted == []
    assert alone.read(4, 1 << 20, isolation=READ_COMMITTED).aborted == []


def test_i24_a_marker_above_the_high_watermark_releases_nobody(open_log: OpenLog) -> None:
    partition = three(open_log)
    append(partition, mine("t", sequence=0, is_transactional=True))
    partition.write_marker(7, 0, 1, True, NOW)
    for replica_id in (2, 3):
        fetch(partition, replica_id, 1)
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    for replica_id in (2, 3):
        fetch(partition, replica_id, 2)
    assert partition.last_stable_offset == 2


def test_i25_a_marker_is_written_once(alone: Partition) -> None:
    append(alone, mine("t", sequence=0, is_transactional=True))
    assert alone.write_marker(7, 1, 1, True, NOW, transaction_version=2) == 1
    assert alone.write_marker(7, 1, 1, True, NOW, transaction_version=2) is None
    assert alone.log.log_end_offset == 2
    append(alone, mine("t", sequence=0, epoch=1, is_transactional=True))
    code = refusal(lambda: alone.write_marker(7, 1, 1, True, NOW, transaction_version=2))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH and alone.has_open_transaction(7, 1)


def test_p5_a_guard_is_asked_for_where_it_is_required(open_log: OpenLog) -> None:
    partition = Partition(open_log(), broker_id=1, is_verification_required=True)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    first = mine("t", sequence=0, is_transactional=True)
    assert refusal(lambda: append(partition, first)) is ErrorCode.INVALID_TXN_STATE
    stale = partition.begin_verification(7, 0, 0)
    partition.write_marker(7, 0, 1, False, NOW)
    assert stale is not None and refusal(lambda: append(partition, first, guard=stale)) is ErrorCode.INVALID_TXN_STATE
    guard = partition.begin_verification(7, 0, 0)
    append(partition, first, guard=guard)
    assert partition.begin_verification(7, 0, 1) is None
    append(partition, mine("u", sequence=1, is_transactional=True))
    assert len(partition.verifications) == 0


# The log of a machine


def test_a_machine_writes_one_batch_and_hears_of_commits(open_log: OpenLog) -> None:
    partition = three(open_log)
    ends: list[int] = []
    partition.on_committed(lambda: ends.append(partition.committed_end()))
    assert partition.append_records([LogRecord(b"k", b"v"), LogRecord(b"k", None)], None, NOW) == 2
    for replica_id in (2, 3):
        fetch(partition, replica_id, 2)
    assert ends[-1] == 2
    partition.become_follower(leader_id=2, leader_epoch=5, partition_epoch=11, replicas=[1, 2, 3], isr=[2])
    assert refusal(lambda: partition.append_records([LogRecord(b"k", b"v")], None, NOW)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_of_a_machine_may_stand_in_a_clients_transaction(alone: Partition) -> None:
    for _ in range(2):
        alone.append_records([LogRecord(b"k", b"v")], Transactional(7, 3), NOW)
    assert alone.last_stable_offset == 0 and alone.has_open_transaction(7, 3)
    code = refusal(lambda: alone.append_records([LogRecord(b"k", b"v")], Transactional(7, 2), NOW))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    alone.write_marker(7, 3, 1, True, NOW)
    assert alone.last_stable_offset == 3


def test_a_machine_cannot_write_more_than_a_message(alone: Partition) -> None:
    code = refusal(lambda: alone.append_records([LogRecord(b"k", bytes(2 << 20))], None, NOW))
    assert code is ErrorCode.RECORD_LIST_TOO_LARGE and alone.log.log_end_offset == 0


# Watchers


def test_watchers_hear_of_each_move_until_they_are_removed(alone: Partition) -> None:
    heard: list[int] = []

    def watcher() -> None:
        heard.append(alone.high_watermark)

    alone.add_watcher(watcher)
    append(alone, batch("a"))
    alone.write_marker(7, 0, 1, True, NOW)
    alone.remove_watcher(watcher)
    alone.remove_watcher(watcher)
    append(alone, batch("b"))
    assert heard == [1, 2]


@pytest.mark.parametrize("acks", [1, -1])
def test_who_waits_for_an_offset_is_called_once_and_nobody_before_his_turn(open_log: OpenLog, acks: int) -> None:
    partition = Partition(open_log(), broker_id=1, is_flush_on_ack=True, request_flush=lambda _partition: None)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,), now_ms=0)
    heard: list[str] = []
    waiting = {name: functools.partial(heard.append, name) for name in "abcd"}
    for name, function in waiting.items():
        append(partition, batch(name))
        partition.call_when_acknowledged(partition.log.log_end_offset - 1, acks, function)
    partition.forget_acknowledgement(waiting["b"])
    partition.forget_acknowledgement(waiting["b"])
    partition.on_flushed(3)
    assert heard == ["a", "c"], "b has gone, d is not on the disk yet"
    partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2), isr=(2,))
    assert heard == ["a", "c", "d"], "nothing will come of it any more"


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_that_came_again_waits_no_longer_than_where_it_was_first_written(open_log: OpenLog, acks: int) -> None:
    partition = Partition(open_log(), broker_id=1, is_flush_on_ack=True, request_flush=lambda _partition: None)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,), now_ms=0)
    heard: list[str] = []
    for name in "abcd":
        append(partition, batch(name))
    twice = functools.partial(heard.append, "twice")
    for offset, name in ((3, "d"), (0, "a again"), (1, "b again")):
        partition.call_when_acknowledged(offset, acks, functools.partial(heard.append, name))
    partition.call_when_acknowledged(2, acks, twice)
    partition.call_when_acknowledged(0, acks, twice)
    partition.on_flushed(1)
    assert heard == ["a again"]
    partition.on_flushed(2)
    assert heard == ["a again", "b again"]
    partition.on_flushed(4)
    assert heard == ["a again", "b again", "twice", "d"], "who waits for two offsets is called at the later one"


def test_a_watcher_may_append_and_nobody_is_called_inside_of_another(alone: Partition) -> None:
    depths: list[int] = []
    depth = 0

    def watcher() -> None:
        nonlocal depth
        depth += 1
        depths.append(depth)
        if alone.log.log_end_offset < 5:
            append(alone, batch("more"))
        depth -= 1

    alone.add_watcher(watcher)
    append(alone, batch("a"))
    assert alone.log.log_end_offset == 5 and set(depths) == {1} and len(depths) == 5


def test_a_high_watermark_from_a_checkpoint_is_kept_within_the_log(alone: Partition, open_log: OpenLog) -> None:
    append(alone, batch("a", "b"))
    alone.log.close(clean=True)
    log = open_log(was_clean=True, recovery_point=2)
    assert Partition(log, broker_id=1, high_watermark=9).high_watermark == 2
    log.advance_log_start(1)
    assert Partition(log, broker_id=1).high_watermark == 1


def test_delete_records_moves_the_start_up_to_the_high_watermark(open_log: OpenLog) -> None:
    """I7"""
    partition = three(open_log)
    append(partition, batch("a", "b", "c"))
    for replica_id in (2, 3):
        partition.read(2, 1 << 20, current_leader_epoch=4, replica_id=replica_id, log_start_offset=0)
    assert refusal(lambda: partition.delete_records(3)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(lambda: partition.delete_records(-2)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(-1) == 0, "the followers have not deleted yet"
    assert partition.log.log_start_offset == 2
    partition.read(3, 1 << 20, current_leader_epoch=4, replica_id=2, log_start_offset=2)
    partition.read(3, 1 << 20, current_leader_epoch=4, replica_id=3, log_start_offset=1)
    assert partition.low_watermark == 1
