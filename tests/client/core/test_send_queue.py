"""Batches leave in order, and after a failure the failed ones leave again before anything new."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClientMetadata
from ottla.client.core.send_queue import REQUEST_BYTES_MAX, Batch, Outcome, SendQueue
from ottla.client.errors import ConnectError, KafkaError
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

A, B, C = (TopicPartition("t", number) for number in range(3))
LEADERS = {A: 1, B: 1, C: 2}


def _queue(*, acks: int = -1, is_idempotent: bool = True) -> SendQueue:
    queue = SendQueue(ClientMetadata(), acks=acks, is_idempotent=is_idempotent)
    _learn(queue)
    return queue


def _learn(queue: SendQueue) -> None:
    partitions = [MetadataResponsePartition(partition_index=one.partition, leader_id=leader) for one, leader in LEADERS.items()]
    queue.metadata.learn(MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)]))


def _add(queue: SendQueue, partition: TopicPartition, size: int = 100) -> Batch:
    batch = Batch(partition, 0.0)
    batch.data, batch.deadline = bytearray(size), 10.0
    queue.add(batch)
    return batch


def _send(queue: SendQueue, broker_id: int) -> list[Batch]:
    chosen = queue.gather(broker_id)
    queue.sending(broker_id, chosen)
    return chosen


def _answer(**codes: int) -> ProduceResponse:
    """Codes by partition, `p0=0`."""
    parts = [PartitionProduceResponse(index=int(name[1:]), error_code=code, base_offset=7) for name, code in codes.items()]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=parts)])


def test_a_request_has_one_batch_a_partition_of_one_leader() -> None:
    queue = _queue()
    first, second, third = _add(queue, A), _add(queue, B), _add(queue, A)
    _add(queue, C)
    assert _send(queue, 1) == [first, second]
    assert _send(queue, 1) == [third]
    assert queue.oldest is not None and queue.oldest.partition == C


def test_a_large_batch_waits_for_the_next_request() -> None:
    queue = _queue()
    first, large, small = _add(queue, A, REQUEST_BYTES_MAX - 50), _add(queue, B, 100), _add(queue, C, 10)
    assert _send(queue, 1) == [first]
    assert _send(queue, 1) == [large]
    assert _send(queue, 2) == [small]


def test_an_answer_ends_batches_also_when_it_calls_them_duplicates() -> None:
    queue = _queue()
    first, second = _add(queue, A), _add(queue, B)
    _send(queue, 1)
    outcomes = queue.answered(1, _answer(p0=0, p1=ErrorCode.DUPLICATE_SEQUENCE_NUMBER), 0.0)
    assert outcomes == [Outcome(first, 7, None), Outcome(second, 7, None)]
    assert queue.is_empty


def test_after_a_lost_connection_nothing_new_is_sent_before_the_rest_is_known() -> None:
    queue = _queue()
    first, other, second = _add(queue, A), _add(queue, C), _add(queue, A)
    _send(queue, 1)
    _send(queue, 2)
    assert queue.connection_lost(1, ConnectError("lost"), 1.0) == []
    assert not queue.may_send()
    assert queue.answered(2, _answer(p2=0), 1.0) == [Outcome(other, 7, None)]
    assert queue.may_send()
    queue.retry_failed()
    _learn(queue)
    assert [_send(queue, 1), _send(queue, 1)] == [[first], [second]]


def test_a_gap_in_the_sequence_is_repeated_only_behind_a_batch_that_is() -> None:
    queue = _queue()
    first, second = _add(queue, A), _add(queue, A)
    _send(queue, 1)
    _send(queue, 1)
    assert queue.answered(1, _answer(p0=ErrorCode.NOT_LEADER_OR_FOLLOWER), 0.0) == []
    assert queue.answered(1, _answer(p0=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0) == []
    queue.retry_failed()
    _learn(queue)
    assert _send(queue, 1) == [first]
    ((ended, _, error),) = queue.answered(1, _answer(p0=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    assert ended is first and error is not None
    assert queue.oldest is second


def test_nothing_new_follows_until_what_was_sent_again_is_answered() -> None:
    queue = _queue()
    first = _add(queue, A)
    _send(queue, 1)
    queue.connection_lost(1, ConnectError("lost"), 0.0)
    other, second = _add(queue, B), _add(queue, A)
    assert queue.is_held  # the first, which failed, is not to be overtaken
    queue.retry_failed()
    _learn(queue)
    assert not queue.is_held
    assert _send(queue, 1) == [first]
    assert queue.is_held  # or brokers forget the first behind more than five others
    queue.answered(1, _answer(p0=0), 0.0)
    assert not queue.is_held
    assert _send(queue, 1) == [other, second]


def test_what_may_have_been_appended_keeps_its_numbers_also_when_it_waits_to_be_sent_again() -> None:
    queue = _queue()
    queue.may_renumber = True
    queue.gaps[A] = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "a batch before these")
    open_ended = _add(queue, A)
    _send(queue, 1)
    queue.connection_lost(1, ConnectError("lost"), 0.0)
    queue.retry_failed()
    assert queue.to_renumber() == []
    _learn(queue)
    assert _send(queue, 1) == [open_ended]
    queue.answered(1, _answer(p0=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    assert queue.to_renumber() == [(A, [open_ended])]


def test_a_batch_ends_at_its_deadline_and_without_sequences_with_its_connection() -> None:
    queue = _queue()
    _add(queue, A)
    _send(queue, 1)
    (outcome,) = queue.connection_lost(1, ConnectError("lost"), 10.0)
    assert str(outcome.error) == "lost"
    queue = _queue(is_idempotent=False)
    _add(queue, A)
    _send(queue, 1)
    (outcome,) = queue.connection_lost(1, ConnectError("lost"), 0.0)
    assert str(outcome.error) == "lost"


def test_what_never_left_is_sent_to_the_next_leader_also_without_sequences() -> None:
    queue = _queue(is_idempotent=False)
    batch = _add(queue, A)
    assert queue.oldest_failed(ConnectError("refused"), 0.0) == []
    queue.retry_failed()
    assert queue.oldest is batch and queue.metadata.leader_of(A) < 0
    (outcome,) = queue.oldest_failed(ConnectError("refused"), 10.0)
    assert outcome.batch is batch


def test_without_acknowledgements_nothing_is_under_way() -> None:
    queue = _queue(acks=0, is_idempotent=False)
    batch = _add(queue, A)
    assert queue.sent_unanswered(_send(queue, 1)) == [Outcome(batch, -1, None)]
    assert queue.is_empty


def test_a_partition_that_is_left_out_of_the_answer_fails() -> None:
    queue = _queue()
    _add(queue, A)
    _send(queue, 1)
    (outcome,) = queue.answered(1, _answer(), 0.0)
    assert "no answer for t-0" in str(outcome.error)
