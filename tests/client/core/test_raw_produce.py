"""Encoded batches go to their leaders in order, several requests at a time, and again after failures that may pass."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.conversation import Ask, AskRolling
from ottla.client.core.raw_produce import IN_FLIGHT_MAX, produce_batches
from ottla.client.errors import ConnectError, KafkaError, NotSentError, OutcomeUnknownError, refused
from ottla.wire.batch_header import read_batch_header
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.records import Record, encode_batch
from tests.client.core.drive import ByHand

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def _batch(sequence: int, *, producer_id: int = 7, size: int = 10) -> bytearray:
    return encode_batch([Record(0, 0, None, bytes(size), ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


class Log:
    """Partitions that append what comes in sequence, and refuse on demand: `faults` are codes for the next results, 0 to let one pass."""

    def __init__(self, *faults: int) -> None:
        self.appended: dict[TopicPartition, list[int]] = {}
        self.requests: list[list[TopicPartition]] = []
        self.faults = list(faults)

    def __call__(self, ask: Ask) -> ProduceResponse:
        body: Any = ask.body
        results = []
        self.requests.append([TopicPartition(topic.name, one.index) for topic in body.topic_data for one in topic.partition_data])
        for topic in body.topic_data:
            for one in topic.partition_data:
                partition = TopicPartition(topic.name, one.index)
                code, offset = self._append(partition, read_batch_header(one.records).base_sequence)
                results.append(PartitionProduceResponse(index=one.index, error_code=code, base_offset=offset))
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=results)])

    def _append(self, partition: TopicPartition, sequence: int) -> tuple[int, int]:
        code = self.faults.pop(0) if self.faults else 0
        log = self.appended.setdefault(partition, [])
        if code:
            return code, -1
        if sequence in log[-IN_FLIGHT_MAX:]:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, log.index(sequence)
        if sequence >= 0 and sequence != len(log):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        log.append(sequence)
        return 0, len(log) - 1


def test_batches_keep_their_order_and_at_most_five_requests_are_under_way() -> None:
    log = Log()
    world = ByHand(log, leaders={"t": [1, 2]})
    found = world.run(produce_batches(world.core, {A: [_batch(n) for n in range(7)], B: [_batch(n) for n in range(2)]}))
    assert found == {A: 0, B: 0}
    assert log.appended == {A: list(range(7)), B: [0, 1]}
    assert world.rounds == [7 + 2]
    assert world.windows == [IN_FLIGHT_MAX + 2]


def test_partitions_of_one_leader_share_requests() -> None:
    log = Log()
    world = ByHand(log, leaders={"t": [1, 1]})
    world.run(produce_batches(world.core, {A: [_batch(0), _batch(1)], B: [_batch(0)]}))
    assert log.requests == [[A, B], [A]]


def test_large_batches_do_not_share_a_request() -> None:
    log = Log()
    world = ByHand(log, leaders={"t": [1, 1]})
    big = 700 * 1024
    world.run(produce_batches(world.core, {A: [_batch(0, size=big)], B: [_batch(0, size=big)]}))
    assert log.requests == [[A], [B]]


def test_a_leader_that_moved_gets_everything_from_the_first_refusal_on() -> None:
    log = Log(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world = ByHand(log, leaders={"t": [1]})
    world.run(produce_batches(world.core, {A: [_batch(n) for n in range(4)]}))
    assert log.appended == {A: [0, 1, 2, 3]}
    assert len(world.pauses) == 1


def test_a_lost_connection_is_repeated_and_the_duplicate_counts_as_appended() -> None:
    log = Log()
    lost = iter([True])

    def answer(ask: Ask) -> ProduceResponse:
        found = log(ask)
        if next(lost, False):
            raise ConnectError("lost")
        return found

    world = ByHand(answer, leaders={"t": [1]})
    assert world.run(produce_batches(world.core, {A: [_batch(0), _batch(1)]})) == {A: 0}
    assert log.appended == {A: [0, 1]}


def test_without_sequences_one_batch_at_a_time_and_no_second_try() -> None:
    log = Log()
    world = ByHand(log, leaders={"t": [1]})
    world.run(produce_batches(world.core, {A: [_batch(-1, producer_id=-1), _batch(-1, producer_id=-1)]}))
    assert world.windows == [1]

    def lose(ask: Ask) -> ProduceResponse:
        raise ConnectError("lost")

    world = ByHand(lose, leaders={"t": [1]})
    with pytest.raises(OutcomeUnknownError, match="t-0 was sent and its answer lost: lost"):
        world.run(produce_batches(world.core, {A: [_batch(-1, producer_id=-1)]}))
    assert world.pauses == []


def test_a_final_refusal_is_raised_at_once() -> None:
    world = ByHand(Log(ErrorCode.MESSAGE_TOO_LARGE), leaders={"t": [1]})
    with pytest.raises(KafkaError, match="t-0") as caught:
        world.run(produce_batches(world.core, {A: [_batch(0)]}))
    assert caught.value.name == "MESSAGE_TOO_LARGE"
    assert world.pauses == []


def test_a_leader_that_never_comes_ends_at_the_deadline() -> None:
    world = ByHand(Log(*[int(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 1000), leaders={"t": [1]})
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        world.run(produce_batches(world.core, {A: [_batch(0)]}, timeout_s=10))
    assert 9 < world.now_s - 100 <= 10


def test_a_request_leaves_for_every_answer_that_comes() -> None:
    """The window does not empty before it is filled again."""
    world = ByHand(Log(), leaders={"t": [1]})
    batches = [_batch(n) for n in range(20)]
    conversation = produce_batches(world.core, {A: batches})
    effect: Any = next(conversation)
    while not isinstance(effect, AskRolling):
        effect = conversation.send(world._perform(effect))
    log = Log()
    answers = [log(ask) for ask in itertools.islice(effect.asks, IN_FLIGHT_MAX) if ask is not None]
    assert len(answers) == IN_FLIGHT_MAX
    for number in range(15):
        assert next(effect.asks) is None, "five are under way"
        effect.note(answers[number])
        ask = next(effect.asks)
        assert ask is not None
        answers.append(log(ask))
    for answer in answers[15:]:
        assert next(effect.asks) is None
        effect.note(answer)
    assert next(effect.asks, "end") == "end"
    assert log.appended == {A: list(range(20))}


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("is_appended", [True, False])
def test_a_connection_lost_in_mid_window(at: int, is_appended: bool) -> None:
    """The broker may have appended the batch whose answer is lost, and knows those of the window that come again."""
    log, asked = Log(), itertools.count(1)

    def answer(ask: Ask) -> ProduceResponse:
        number = next(asked)
        if number == at and is_appended:
            log(ask)
        if at <= number < at + IN_FLIGHT_MAX:
            raise ConnectError("lost")
        return log(ask)

    world = ByHand(answer, leaders={"t": [1]})
    assert world.run(produce_batches(world.core, {A: [_batch(n) for n in range(12)]})) == {A: 0}
    assert log.appended == {A: list(range(12))}
    assert len(world.pauses) == 1


def test_after_a_refusal_nothing_more_leaves_until_all_answers_are_there() -> None:
    log = Log(0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world = ByHand(log, leaders={"t": [1]})
    world.run(produce_batches(world.core, {A: [_batch(n) for n in range(20)]}))
    assert world.rounds == [2 + IN_FLIGHT_MAX, 18]
    assert log.appended == {A: list(range(20))}


@pytest.mark.parametrize("seed", range(100))
def test_whatever_is_lost_or_refused_every_batch_is_appended_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    counts = {TopicPartition("t", number): chance.randrange(1, 30) for number in range(4)}
    log = Log(*(ErrorCode.NOT_LEADER_OR_FOLLOWER if chance.random() < 0.05 else 0 for _ in range(200)))
    lost: set[Any] = set()

    def answer(ask: Ask) -> ProduceResponse:
        link: Any = ask.link
        if id(link) in lost:
            raise ConnectError("lost")
        fate = chance.random()
        if fate < 0.06:
            lost.add(id(link))
            link.is_open = False
        found = log(ask) if fate > 0.03 else None
        if found is None or id(link) in lost:
            raise ConnectError("lost")
        return found

    world = ByHand(answer, leaders={"t": [1, 2, 1, 3]}, timeout_s=1000)
    batches = {partition: [_batch(n, size=chance.choice([10, 300_000])) for n in range(count)] for partition, count in counts.items()}
    assert world.run(produce_batches(world.core, batches)) == dict.fromkeys(counts, 0)
    assert log.appended == {partition: list(range(count)) for partition, count in counts.items()}
    assert max(world.windows) <= 3 * IN_FLIGHT_MAX


def test_a_batch_of_unknown_outcome_is_not_sent_again_after_a_temporary_failure_of_another() -> None:
    """The refusal arrives first; the lost answer decides."""
    log = Log(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def answer(ask: Ask) -> ProduceResponse:
        found = log(ask)
        if str(ask.link.address) == "b2:9092":
            raise ConnectError("lost")
        return found

    world = ByHand(answer, leaders={"t": [1, 2]})
    with pytest.raises(OutcomeUnknownError, match="t-1 was sent and its answer lost"):
        world.run(produce_batches(world.core, {A: [_batch(-1, producer_id=-1)], B: [_batch(-1, producer_id=-1)]}))
    assert log.requests == [[A], [B]] and world.pauses == []


def test_a_batch_that_was_not_sent_is_sent_later_and_has_no_unknown_outcome() -> None:
    log = Log()
    closed = iter([True])

    def answer(ask: Ask) -> ProduceResponse:
        if next(closed, False):
            raise NotSentError("closed")
        return log(ask)

    world = ByHand(answer, leaders={"t": [1]})
    assert world.run(produce_batches(world.core, {A: [_batch(-1, producer_id=-1)]})) == {A: 0}
    assert len(world.pauses) == 1


def test_a_request_that_the_client_refuses_was_not_sent() -> None:
    def refuse(_: Ask) -> ProduceResponse:
        raise refused(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old")

    world = ByHand(refuse, leaders={"t": [1]})
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION: the broker is too old"):
        world.run(produce_batches(world.core, {A: [_batch(-1, producer_id=-1)]}))
