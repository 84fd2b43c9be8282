"""Produce: which requests are refused, with which errors, and when an answer may be sent (I14)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.base.types import TopicPartition
from ottla.handlers.context import Pending
from ottla.handlers.records.produce import Produce, handle
from ottla.replication.refused_batches import PRODUCERS_MAX, RefusedBatches
from ottla.wire.compression import CODEC_LZ4, CODEC_ZSTD
from ottla.wire.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.records import Record, encode_batch, read_batch_header
from tests.fakes.log_settings import log_settings
from tests.handlers.records_world import NOW_MS, TOPIC_ID, RecordsWorld, batch, request


def body(records: dict[int, memoryview | None], *, topic: str = "t", acks: int = -1, topic_id: bytes = TOPIC_ID) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=one) for index, one in records.items()]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)])


def results(answer: object) -> list[PartitionProduceResponse]:
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses


def codes(answer: object) -> list[int]:
    return [result.error_code for result in results(answer)]


@pytest.mark.parametrize("acks", [1, -1])
def test_an_append_is_answered_with_its_offset(acks: int) -> None:
    world = RecordsWorld()
    first = results(handle(world.broker, request(9), body({0: batch(b"a", b"b"), 1: batch(b"c")}, acks=acks)))
    second = results(handle(world.broker, request(9), body({0: batch(b"d")}, acks=acks)))
    assert [(r.index, r.error_code, r.base_offset, r.log_start_offset) for r in first] == [(0, 0, 0, 0), (1, 0, 0, 0)]
    assert second[0].base_offset == 2
    assert world.partitions[0].high_watermark == 3


def test_one_bad_partition_does_not_spoil_the_others() -> None:
    world = RecordsWorld()
    broken = bytearray(batch(b"x"))
    broken[-1] ^= 1
    records = {0: memoryview(broken), 1: batch(b"c"), 7: batch(b"d")}
    answer = handle(world.broker, request(9), body(records))
    assert codes(answer) == [ErrorCode.CORRUPT_MESSAGE, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert results(answer)[0].base_offset == -1 and results(answer)[0].error_message


@pytest.mark.parametrize(
    ("topic", "acks", "records", "code"),
    [
        ("t", 2, batch(b"x"), ErrorCode.INVALID_REQUIRED_ACKS),
        ("t", -1, None, ErrorCode.INVALID_RECORD),
        ("t", -1, memoryview(b"short"), ErrorCode.INVALID_RECORD),
        ("u", 2, batch(b"x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", -1, batch(b"x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", -1, batch(b"x"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", -1, batch(b"x", producer_id=5, producer_epoch=0, base_sequence=3, is_transactional=True), 53),
        ("t", -1, memoryview(b"x" * 100), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_refusals(topic: str, acks: int, records: memoryview | None, code: int) -> None:
    world = RecordsWorld()
    assert codes(handle(world.broker, request(9), body({0: records}, topic=topic, acks=acks))) == [code]
    assert world.partitions[0].log.log_end_offset == 0


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (6, 76), (7, 0), (13, 0)])
def test_zstd_is_taken_since_version_7(version: int, code: int) -> None:
    """A client of an older version could not read such records again."""
    assert codes(handle(RecordsWorld().broker, request(version), body({0: batch(b"x", codec=CODEC_ZSTD)}))) == [code]


def test_topics_by_id_since_version_13() -> None:
    world = RecordsWorld()
    assert codes(handle(world.broker, request(13), body({0: batch(b"x")}, topic=""))) == [0]
    answer = handle(world.broker, request(13), body({0: batch(b"x")}, topic="", topic_id=bytes(16)))
    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_i40_without_a_lease_acks_1_waits_for_the_in_sync_replicas() -> None:
    """Without a lease, another broker may already lead, and would lack a record that only this broker has."""
    world = RecordsWorld()
    partition = world.partitions[0]
    partition.become_leader(leader_epoch=0, partition_epoch=1, replicas=(0, 1), isr=(0, 1), now_ms=0)
    assert codes(handle(world.broker, request(9), body({0: batch(b"x")}, acks=1))) == [0]
    world.broker.lease = SimpleNamespace(is_held=lambda: True)
    assert codes(handle(world.broker, request(9), body({0: batch(b"x")}, acks=1))) == [0]
    world.broker.lease = SimpleNamespace(is_held=lambda: False)
    assert isinstance(handle(world.broker, request(9), body({0: batch(b"x")}, acks=1)), Pending)


def test_acks_0_has_no_answer_and_a_refusal_closes_the_connection() -> None:
    world = RecordsWorld()
    assert handle(world.broker, request(9), body({0: batch(b"x")}, acks=0)) is None
    assert world.partitions[0].log.log_end_offset == 1
    with pytest.raises(WireError):
        handle(world.broker, request(9), body({9: batch(b"x")}, acks=0))


@pytest.mark.parametrize("is_refused", [False, True])
def test_acks_0_that_is_refused_only_later_closes_the_connection_too(is_refused: bool) -> None:
    world = RecordsWorld(config=log_settings(is_compacted=True))
    records = memoryview(encode_batch([Record(0, NOW_MS, None if is_refused else b"k", b"v")] * 3_000))
    pending = handle(world.broker, request(9), body({0: records}, acks=0))
    assert isinstance(pending, Pending) and not pending.is_done
    world.threads.run_all()
    assert pending.is_done
    if is_refused:
        assert isinstance(pending.error, WireError) and "acks=0" in str(pending.error)
    else:
        assert pending.response is None and world.partitions[0].log.log_end_offset == 3_000


@pytest.mark.parametrize("acks", [1, -1])
def test_flush_on_ack_holds_the_answer_until_the_group_commit(acks: int) -> None:
    world = RecordsWorld(is_flush_on_ack=True)
    pending = handle(world.broker, request(9), body({0: batch(b"x"), 1: batch(b"y")}, acks=acks))
    assert isinstance(pending, Pending) and not pending.is_done
    assert world.partitions[0].high_watermark == 0, "readers do not see what is not durable"
    world.flush()
    assert pending.is_done and codes(pending.response) == [0, 0]
    assert world.partitions[0].high_watermark == 1


def test_a_wait_that_takes_too_long_is_answered_as_timed_out() -> None:
    world = RecordsWorld(is_flush_on_ack=True)
    pending = handle(world.broker, request(9), body({0: batch(b"x")}))
    assert isinstance(pending, Pending)
    world.timers.advance(1001)
    assert pending.is_done and codes(pending.response) == [ErrorCode.REQUEST_TIMED_OUT]
    world.flush()


def test_what_is_written_meanwhile_does_not_give_a_produce_more_time() -> None:
    world = RecordsWorld(is_flush_on_ack=True)
    pending = handle(world.broker, request(9), body({0: batch(b"x"), 1: batch(b"y")}))
    assert isinstance(pending, Pending)
    world.timers.advance(900)
    world.partitions[0].on_flushed(1)
    world.waiters.run()
    assert not pending.is_done, "the other partition is still owed"
    world.timers.advance(101)
    assert pending.is_done and codes(pending.response) == [0, ErrorCode.REQUEST_TIMED_OUT]


def test_leadership_lost_while_waiting_is_an_error() -> None:
    world = RecordsWorld(is_flush_on_ack=True)
    pending = handle(world.broker, request(12), body({0: batch(b"x")}))
    assert isinstance(pending, Pending)
    world.partitions[0].become_follower(leader_id=3, leader_epoch=1, partition_epoch=1, replicas=(0, 3), isr=(3,))
    world.waiters.run()
    assert pending.is_done and codes(pending.response) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert results(pending.response)[0].current_leader.leader_id == 3, "KIP-951: the answer names the leader"


def test_leadership_lost_and_won_again_while_waiting_is_no_acknowledgement() -> None:
    """In the new term the offset becomes durable, but the batch at this offset may be another one."""
    world = RecordsWorld(is_flush_on_ack=True, partitions=1)
    partition = world.partitions[0]
    pending = handle(world.broker, request(9), body({0: batch(b"x")}))
    assert isinstance(pending, Pending)
    partition.become_follower(leader_id=3, leader_epoch=1, partition_epoch=1, replicas=(0, 3), isr=(3,))
    partition.become_leader(leader_epoch=2, partition_epoch=2, replicas=(0,), isr=(0,), now_ms=0)
    world.flush()
    assert partition.high_watermark == 1
    assert pending.is_done and codes(pending.response) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_i20_a_repeated_batch_gets_its_first_offset() -> None:
    world = RecordsWorld()
    one = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    first = results(handle(world.broker, request(9), body({0: batch(b"a", b"b", **one)})))[0]
    results(handle(world.broker, request(9), body({0: batch(b"c", producer_id=9, producer_epoch=0, base_sequence=2)})))
    again = results(handle(world.broker, request(9), body({0: batch(b"a", b"b", **one)})))[0]
    assert (again.error_code, again.base_offset) == (0, first.base_offset) and world.partitions[0].log.log_end_offset == 3


def test_a_full_disk_is_reported_and_nothing_is_acknowledged() -> None:
    world = RecordsWorld()
    failures: list[str] = []
    world.partitions[0].on_storage_error = lambda _partition, error: failures.append(str(error))
    world.disk.fail_next("write", count=None)
    answer = handle(world.broker, request(9), body({0: batch(b"x")}))
    assert codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR] and len(failures) == 1
    world.disk.heal()
    assert codes(handle(world.broker, request(9), body({0: batch(b"x")}))) == [ErrorCode.KAFKA_STORAGE_ERROR], "offline until reopened"


def test_a_refusal_by_the_log_names_the_log_start_offset() -> None:
    """As in Kafka: a producer that is out of sequence can thus find out that its earlier batches were deleted."""
    world = RecordsWorld()
    handle(world.broker, request(9), body({0: batch(b"a", b"b", producer_id=9, producer_epoch=0, base_sequence=0)}))
    world.partitions[0].require_leading().delete_records(1)
    [gap] = results(handle(world.broker, request(9), body({0: batch(b"c", producer_id=9, producer_epoch=0, base_sequence=7)})))
    assert (gap.error_code, gap.base_offset, gap.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 1)
    broken = bytearray(batch(b"x"))
    broken[-1] ^= 1
    [corrupt] = results(handle(world.broker, request(9), body({0: memoryview(broken)})))
    assert (corrupt.error_code, corrupt.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def test_the_records_that_are_at_fault_are_named() -> None:
    """So a producer can fail these records and send the others again."""
    world = RecordsWorld(config=log_settings(is_compacted=True))
    records = memoryview(encode_batch([Record(0, NOW_MS, key, b"v") for key in (b"a", None, b"b")]))
    [refused] = results(handle(world.broker, request(9), body({0: records})))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [(error.batch_index, bool(error.batch_index_error_message)) for error in refused.record_errors] == [(1, True)]


# Batches whose records must be looked into

COMPACTED = log_settings(is_compacted=True)
MANY = 5_000


def keyed(count: int, *, sequence: int = -1, codec: int = CODEC_ZSTD) -> memoryview:
    producer = {} if sequence < 0 else {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
    return memoryview(encode_batch([Record(0, NOW_MS, b"k", b"v")] * count, codec=codec, **producer))  # type: ignore[arg-type]


def test_a_large_batch_is_looked_into_by_the_worker_and_then_appended() -> None:
    world = RecordsWorld(config=COMPACTED)
    answer = handle(world.broker, request(9), body({0: keyed(MANY), 1: keyed(2)}, acks=1))
    assert isinstance(answer, Pending) and not answer.is_done
    assert [partition.log.log_end_offset for partition in world.partitions] == [0, 2]
    world.threads.run_all()
    assert answer.is_done and [(one.error_code, one.base_offset) for one in results(answer.response)] == [(0, 0), (0, 0)]
    assert world.partitions[0].log.log_end_offset == MANY


def test_i19_batches_of_one_connection_keep_their_order() -> None:
    world, sender = RecordsWorld(config=COMPACTED), request(9)
    large = handle(world.broker, sender, body({0: keyed(MANY, sequence=0)}))
    small = handle(world.broker, sender, body({0: keyed(1, sequence=MANY)}))
    other = handle(world.broker, request(9), body({0: keyed(1)}))
    assert isinstance(large, Pending) and isinstance(small, Pending)
    assert codes(other) == [0], "another client does not wait"
    world.threads.run_all()
    assert [results(answer.response)[0].base_offset for answer in (large, small)] == [1, 1 + MANY]
    assert codes(handle(world.broker, sender, body({0: keyed(1, sequence=MANY + 1)}))) == [0], "nothing waits any more"


def test_a_large_batch_that_is_bad_is_refused_when_it_has_been_looked_into() -> None:
    world = RecordsWorld(config=COMPACTED)
    answer = handle(world.broker, request(9), body({0: memoryview(encode_batch([Record(0, NOW_MS, None, b"v")] * MANY))}))
    assert isinstance(answer, Pending)
    world.threads.run_all()
    assert codes(answer.response) == [ErrorCode.INVALID_RECORD]
    assert len(results(answer.response)[0].record_errors) == 1_000
    assert world.partitions[0].log.log_end_offset == 0


def test_a_batch_is_not_appended_after_its_time_is_over() -> None:
    world = RecordsWorld(config=COMPACTED)
    answer = handle(world.broker, request(9), body({0: keyed(MANY)}))
    assert isinstance(answer, Pending)
    world.timers.advance(1_000)
    assert codes(answer.response) == [ErrorCode.REQUEST_TIMED_OUT]
    world.threads.run_all()
    assert world.partitions[0].log.log_end_offset == 0


def test_a_lost_worker_refuses_the_batch() -> None:
    world = RecordsWorld(config=COMPACTED)
    world.threads.record_worker.is_lost = True
    answer = handle(world.broker, request(9), body({0: keyed(MANY)}))
    assert isinstance(answer, Pending)
    world.threads.run_all()
    assert codes(answer.response) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_topic_with_a_codec_of_its_own_packs_a_large_batch_in_the_worker() -> None:
    world = RecordsWorld(config=log_settings(compression_type="lz4"))
    answer = handle(world.broker, request(9), body({0: keyed(MANY)}))
    assert isinstance(answer, Pending) and world.threads.waiting
    world.threads.run_all()
    read = world.partitions[0].read(0, 1 << 20)
    assert codes(answer.response) == [0] and read.slice is not None
    assert read_batch_header(read.slice.read()).codec == CODEC_LZ4


def test_a_refusal_keeps_no_buffers() -> None:
    world = RecordsWorld(config=COMPACTED)
    produce = Produce(world.broker, request(9), body({}))
    produce.append_all(body({0: memoryview(encode_batch([Record(0, NOW_MS, None, b"v")] * 3, codec=CODEC_ZSTD))}).topic_data)
    (refusal,) = produce.refusals
    assert refusal.__traceback__ is None and refusal.__context__ is None


def idempotent(sequence: int) -> memoryview:
    return batch(b"x", producer_id=5, producer_epoch=0, base_sequence=sequence)


def test_what_is_behind_a_refused_batch_is_refused_for_its_reason() -> None:
    """After OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka would begin a new epoch and resend batches that other partitions may already have."""
    world = RecordsWorld()
    partition = world.partitions[0]
    assert codes(handle(world.broker, request(9), body({0: idempotent(0)}))) == [0]
    partition.become_follower(leader_epoch=1, leader_id=2, partition_epoch=2, replicas=(0, 2), isr=(0, 2))
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert codes(handle(world.broker, request(9), body({0: idempotent(1)}))) == [refused]
    partition.become_leader(leader_epoch=2, partition_epoch=3, replicas=(0,), isr=(0,), now_ms=0)
    assert codes(handle(world.broker, request(9), body({0: idempotent(2)}))) == [refused]
    assert partition.log.log_end_offset == 1
    for sequence in (1, 2, 3):
        assert codes(handle(world.broker, request(9), body({0: idempotent(sequence)}))) == [0]
    assert codes(handle(world.broker, request(9), body({0: batch(b"x", producer_id=6, producer_epoch=0, base_sequence=0)}))) == [0]


def test_a_gap_that_the_producer_has_made_is_out_of_order_in_the_end() -> None:
    world = RecordsWorld()
    assert codes(handle(world.broker, request(9), body({0: idempotent(0)}))) == [0]
    assert codes(handle(world.broker, request(9), body({0: idempotent(7)}))) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    world.broker.refused_batches.remember(world.partitions[0].topic_partition, idempotent(1), ApiError(ErrorCode.NOT_ENOUGH_REPLICAS))
    found = [codes(handle(world.broker, request(9), body({0: idempotent(7)})))[0] for _ in range(5)]
    assert found == [ErrorCode.NOT_ENOUGH_REPLICAS] * 4 + [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_the_second_batch_of_a_producer_is_not_taken_as_its_first() -> None:
    world = RecordsWorld()
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.broker.refused_batches.remember(world.partitions[0].topic_partition, idempotent(0), ApiError(refused))
    assert codes(handle(world.broker, request(9), body({0: idempotent(1)}))) == [refused]
    assert [codes(handle(world.broker, request(9), body({0: idempotent(sequence)}))) for sequence in (0, 1)] == [[0], [0]]


def test_so_many_refused_batches_are_remembered() -> None:
    refused = RefusedBatches()
    for number in range(PRODUCERS_MAX + 5):
        one = batch(b"x", producer_id=number, producer_epoch=0, base_sequence=1)
        refused.remember(TopicPartition("t", 0), one, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    refused.remember(TopicPartition("t", 0), batch(b"x"), ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert len(refused) == PRODUCERS_MAX
