"""Batches leave in order, and after a failure the failed ones leave again before anything new."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClientMetadata
from ottla.client.core.send_queue import REQUEST_BYTES_MAX, Batch, BatchOutcome, SendQueue
from ottla.client.errors import ConnectError, KafkaError
from ottla.wire.batch_header import SEQUENCE_MASK, read_batch_header
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.records import Record, encode_batch, read_records

A, B, C = (TopicPartition("t", number) for number in range(3))
LEADERS = {A: 1, B: 1, C: 2}


def _queue(*, acks: int = -1, is_idempotent: bool = True) -> SendQueue:
    queue = SendQueue(ClientMetadata(), acks=acks, is_idempotent=is_idempotent)
    queue.known.update(LEADERS)
    _learn(queue)
    return queue


def _learn(queue: SendQueue) -> None:
    partitions = [MetadataResponsePartition(partition_index=one.partition, leader_id=leader) for one, leader in LEADERS.items()]
    queue.metadata.learn(MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)]))


def _add(queue: SendQueue, partition: TopicPartition, size: int = 100) -> Batch:
    batch = Batch(partition, 0.0)
    batch.data, batch.deadline = bytearray(size), 10.0
    _take(queue, batch)
    return batch


def _take(queue: SendQueue, batch: Batch) -> None:
    batch.number = queue.next_number()
    queue.unsettled[batch.number] = batch
    queue.add(batch)


def _send(queue: SendQueue, broker_id: int, now: float = 0.0) -> list[Batch]:
    led = [one for one in queue.sendable(now) if queue.metadata.leader_of(one) == broker_id]
    chosen = queue.gather(broker_id, led)
    if chosen:
        queue.sending(broker_id, chosen, now)
    return chosen


def _ended(queue: SendQueue) -> list[BatchOutcome]:
    """What has ended since the last call."""
    ended = list(queue.ended)
    queue.ended.clear()
    return ended


def _answer(**codes: int) -> ProduceResponse:
    """Codes by partition, `p0=0`."""
    parts = [PartitionProduceResponse(index=int(name[1:]), error_code=code, base_offset=7) for name, code in codes.items()]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=parts)])


def test_a_request_has_one_batch_a_partition_of_one_leader() -> None:
    queue = _queue()
    first, second, third = _add(queue, A), _add(queue, B), _add(queue, A)
    other = _add(queue, C)
    assert _send(queue, 1) == [first, second]
    assert _send(queue, 1) == [third]
    assert _send(queue, 2) == [other]


def test_the_first_batch_of_a_partition_goes_alone() -> None:
    """A broker that does not know the producer would append the second one though it has refused the first one."""
    queue = _queue()
    queue.known.clear()
    first, second, third = _add(queue, A), _add(queue, A), _add(queue, A)
    assert _send(queue, 1) == [first] and _send(queue, 1) == []
    queue.answered(1, _answer(p0=0), 0.0)
    assert _send(queue, 1) == [second] and _send(queue, 1) == [third]


def test_a_large_batch_waits_for_the_next_request() -> None:
    queue = _queue()
    first, large, small = _add(queue, A, REQUEST_BYTES_MAX - 50), _add(queue, B, 100), _add(queue, C, 10)
    assert _send(queue, 1) == [first]
    assert _send(queue, 1) == [large]
    assert _send(queue, 2) == [small]


def test_a_batch_that_has_no_room_is_not_overtaken_by_a_newer_one_of_its_partition() -> None:
    """Eight partitions fill a request with batches that are sent again; the ninth has an old batch without room and a small new one."""
    full = [TopicPartition("t", number) for number in range(8)]
    ninth = TopicPartition("t", 8)
    queue = SendQueue(ClientMetadata(), acks=-1, is_idempotent=True)
    parts = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in range(9)]
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=parts)])
    queue.metadata.learn(answer)
    for partition in full:
        _add(queue, partition, 128 * 1024 - 200)
    old = _add(queue, ninth, 100_000)
    _send(queue, 1)
    _send(queue, 1)
    queue.connection_lost(1, ConnectError("lost"), 0.0)
    queue.metadata.learn(answer)
    new = _add(queue, ninth, 10)
    sent = [_send(queue, 1, 1.0) for _ in range(3)]
    assert all(new not in some for some in sent)
    assert [batch for some in sent for batch in some if batch.partition == ninth] == [old]
    queue.answered(1, _answer(**{f"p{number}": 0 for number in range(8)}), 1.0)
    queue.answered(1, _answer(p8=0), 1.0)
    assert _send(queue, 1, 1.0) == [new]


def test_an_answer_ends_batches_also_when_it_calls_them_duplicates() -> None:
    queue = _queue()
    first, second = _add(queue, A), _add(queue, B)
    _send(queue, 1)
    queue.answered(1, _answer(p0=0, p1=ErrorCode.DUPLICATE_SEQUENCE_NUMBER), 0.0)
    assert _ended(queue) == [BatchOutcome(first, 7, None), BatchOutcome(second, 7, None)]
    assert queue.is_empty and queue.size_bytes == 0


def test_after_a_lost_connection_a_partition_sends_its_batches_in_order_and_others_go_on() -> None:
    queue = _queue()
    first, other, second, third = _add(queue, A), _add(queue, C), _add(queue, A), _add(queue, C)
    _send(queue, 1)
    _send(queue, 2)
    queue.connection_lost(1, ConnectError("lost"), 1.0)
    _learn(queue)
    assert _send(queue, 2, 1.0) == [third]  # it waits for nothing of the other partition
    assert _send(queue, 1, 1.0) == []  # the pause of this partition
    queue.answered(2, _answer(p2=0), 1.0)
    assert _ended(queue) == [BatchOutcome(other, 7, None)]
    assert _send(queue, 1, 2.0) == [first]
    assert _send(queue, 1, 2.0) == []  # or brokers forget the first behind more than five others
    queue.answered(1, _answer(p0=0), 2.0)
    assert _send(queue, 1, 2.0) == [second]


def test_a_partition_whose_leader_moved_waits_for_the_answers_of_the_old_one() -> None:
    queue = _queue()
    first, second = _add(queue, A), _add(queue, A)
    assert _send(queue, 1) == [first]
    parts = [MetadataResponsePartition(partition_index=0, leader_id=2)]
    queue.metadata.learn(MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=parts)]))
    assert _send(queue, 2) == []
    queue.answered(1, _answer(p0=0), 0.0)
    assert _send(queue, 2) == [second]


def test_a_gap_in_the_sequence_is_repeated_only_behind_a_batch_that_is() -> None:
    queue = _queue()
    first, second = _add(queue, A), _add(queue, A)
    _send(queue, 1)
    _send(queue, 1)
    queue.answered(1, _answer(p0=ErrorCode.NOT_LEADER_OR_FOLLOWER), 0.0)
    queue.answered(1, _answer(p0=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    assert _ended(queue) == []
    _learn(queue)
    assert _send(queue, 1, 1.0) == [first]
    queue.answered(1, _answer(p0=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 1.0)
    ((ended, _, error),) = _ended(queue)
    assert ended is first and error is not None
    _learn(queue)
    assert _send(queue, 1, 1.0) == [second]


def test_what_may_have_been_appended_keeps_its_numbers_also_when_it_waits_to_be_sent_again() -> None:
    queue = _queue()
    queue.may_renumber = True
    queue.gaps[A] = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "a batch before these")
    open_ended = _add(queue, A)
    _send(queue, 1)
    queue.connection_lost(1, ConnectError("lost"), 0.0)
    assert queue.to_renumber() == []
    _learn(queue)
    assert _send(queue, 1, 1.0) == [open_ended]
    queue.answered(1, _answer(p0=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    assert queue.to_renumber() == [(A, [open_ended])]


def test_a_batch_ends_at_its_deadline_and_without_sequences_with_its_connection() -> None:
    for queue, now in ((_queue(), 10.0), (_queue(is_idempotent=False), 0.0)):
        _add(queue, A)
        _send(queue, 1)
        queue.connection_lost(1, ConnectError("lost"), now)
        (outcome,) = _ended(queue)
        assert str(outcome.error) == "lost"


def test_a_batch_that_is_refused_for_its_size_after_its_deadline_is_not_split() -> None:
    queue = _queue()
    records = [Record(number, 1, None, b"v") for number in range(2)]
    batch = Batch(A, 0.0)
    batch.data, batch.records, batch.count, batch.deadline = encode_batch(records), records, 2, 10.0
    _take(queue, batch)
    _send(queue, 1)
    queue.answered(1, _answer(p0=ErrorCode.MESSAGE_TOO_LARGE), 10.0)
    (outcome,) = _ended(queue)
    assert outcome.batch is batch and isinstance(outcome.error, KafkaError) and queue.is_empty


def test_a_batch_above_the_limit_of_a_request_is_sent_alone() -> None:
    queue = _queue()
    large, small = _add(queue, A, REQUEST_BYTES_MAX + 1), _add(queue, B, 10)
    assert _send(queue, 1) == [large] and _send(queue, 1) == [small]


def test_what_never_left_is_sent_to_the_next_leader_also_without_sequences() -> None:
    queue = _queue(is_idempotent=False)
    batch = _add(queue, A)
    queue.not_sent([A], ConnectError("refused"), 0.0)
    assert _ended(queue) == [] and queue.metadata.leader_of(A) < 0
    assert queue.sendable(0.0) == [] and queue.sendable(queue.wake_at(0.0)) == [A]
    queue.not_sent([A], ConnectError("refused"), 10.0)
    (outcome,) = _ended(queue)
    assert outcome.batch is batch and queue.is_empty


def test_without_acknowledgements_a_batch_ends_when_it_is_written_or_with_its_connection() -> None:
    queue = _queue(acks=0, is_idempotent=False)
    first, second = _add(queue, A), _add(queue, A)
    _send(queue, 1)
    queue.sent_unanswered(1)
    assert _ended(queue) == [BatchOutcome(first, -1, None)]
    _send(queue, 1)
    queue.connection_lost(1, ConnectError("lost"), 0.0)
    (outcome,) = _ended(queue)
    assert outcome.batch is second and outcome.error is not None and queue.is_empty


def test_a_partition_that_is_left_out_of_the_answer_fails() -> None:
    queue = _queue()
    _add(queue, A)
    _send(queue, 1)
    queue.answered(1, _answer(), 0.0)
    (outcome,) = _ended(queue)
    assert "no answer for t-0" in str(outcome.error)


def test_a_batch_that_is_too_large_is_sent_as_two_with_its_sequence_numbers() -> None:
    queue = _queue()
    records = [Record(0, 5, None, b"%d" % number, ()) for number in range(3)]
    batch = Batch(A, 0.0)
    batch.data = encode_batch(records, producer_id=4, producer_epoch=1, base_sequence=SEQUENCE_MASK, is_transactional=True)
    batch.records, batch.count, batch.deadline = records, 3, 10.0
    _take(queue, batch)
    behind = _add(queue, A)
    _send(queue, 1)
    _send(queue, 1)
    queue.answered(1, _answer(p0=ErrorCode.MESSAGE_TOO_LARGE), 0.0)
    queue.answered(1, _answer(p0=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    _learn(queue)
    (first,), (second,), (third,) = _send(queue, 1, 1.0), _send(queue, 1, 1.0), _send(queue, 1, 1.0)
    assert (first.records, second.records, third) == (records[:1], records[1:], behind)
    headers = [read_batch_header(half.data) for half in (first, second)]
    assert [(header.base_sequence, header.record_count, header.is_transactional) for header in headers] == [
        (SEQUENCE_MASK, 1, True),
        (0, 2, True),
    ]
    assert [record.value for half in (first, second) for record in read_records(half.data)] == [b"0", b"1", b"2"]
    queue.answered(1, _answer(p0=ErrorCode.MESSAGE_TOO_LARGE), 1.0)
    (outcome,) = _ended(queue)
    assert outcome.batch is first and outcome.error is not None
