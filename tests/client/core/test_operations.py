"""The operations of the public clients, with answers made by the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.conversation import Ask, AskAll, Effect, Open
from ottla.client.core.fetch_once import fetch_once
from ottla.client.core.fetching import FetchLimits, read_headers
from ottla.client.core.operations import fetch
from ottla.client.errors import ConnectError, KafkaError, RequestTimeoutError
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.records import Record, encode_batch
from tests.client.core.drive import ByHand

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = bytes(encode_batch([Record(0, 0, None, b"v", ())]))


def _partition(index: int, code: int = 0) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, high_watermark=1, records=None if code else RECORDS)


def _answer(*results: PartitionData, code: int = 0) -> FetchResponse:
    return FetchResponse(error_code=code, responses=[FetchableTopicResponse(topic="t", partitions=list(results))])


def _has_records(ask: Ask) -> FetchResponse:
    body: Any = ask.body
    return _answer(*(_partition(one.partition) for topic in body.topics for one in topic.partitions))


def _damaged(_: Ask) -> FetchResponse:
    return _answer(PartitionData(partition_index=1, high_watermark=1, records=RECORDS[:-1] + b"?"))


def _lost(_: Ask) -> FetchResponse:
    raise ConnectError("lost")


@pytest.mark.parametrize(
    "second",
    [_damaged, _lost, lambda _: _answer(code=ErrorCode.KAFKA_STORAGE_ERROR), lambda _: _answer(code=ErrorCode.INVALID_REQUEST)],
    ids=["damaged", "lost", "refused for now", "refused"],
)
def test_a_fetch_returns_the_records_of_one_leader_once_whatever_another_leader_answers(second: Callable[[Ask], FetchResponse]) -> None:
    world = ByHand(lambda ask: (second if str(ask.link.address) == "b2:9092" else _has_records)(ask), leaders={"t": [1, 2]})
    assert [one.partition for one in world.run(fetch(world.core, {A: 0, B: 0}))] == [A]
    assert world.pauses == []


def test_a_partition_without_a_leader_does_not_delay_others() -> None:
    world = ByHand(_has_records, leaders={"t": [1, -1]})
    assert [one.partition for one in world.run(fetch(world.core, {A: 0, B: 0}))] == [A]
    assert world.pauses == []
    with pytest.raises(KafkaError, match="t-1 has no leader"):
        world.run(fetch(world.core, {B: 0}, timeout_s=1))


def test_a_damaged_partition_stops_alone_behind_its_sound_batches() -> None:
    """Both partitions have one leader, and the second batch of one of them is damaged."""
    second = bytes(encode_batch([Record(0, 0, None, b"w", ())], base_offset=1))

    def answer(ask: Ask) -> FetchResponse:
        body: Any = ask.body
        data = {A: RECORDS + second, B: RECORDS + second[:-1] + b"?"}
        asked = {TopicPartition(topic.topic, one.partition): one.fetch_offset for topic in body.topics for one in topic.partitions}
        some = {one: data[one][len(RECORDS) * offset :] for one, offset in asked.items()}
        return _answer(*(PartitionData(partition_index=one.partition, high_watermark=2, records=left) for one, left in some.items()))

    world = ByHand(answer, leaders={"t": [1, 1]})
    found = {one.partition: one for one in world.run(fetch(world.core, {A: 0, B: 0}))}
    assert [(one.next_offset, len(one.batches), bytes(one.data)) for one in found.values()] == [(2, 2, RECORDS + second), (1, 1, RECORDS)]
    assert [one.partition for one in world.run(fetch(world.core, {A: 1, B: 1}))] == [A]
    with pytest.raises(KafkaError, match=r"b1:9092: the batch at offset 1 of t-1 is damaged") as caught:
        world.run(fetch(world.core, {B: 1}))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    raw, failures = world.run(fetch_once(world.core, {A: 0, B: 0}, 0, FetchLimits(), read=read_headers))
    assert (len(raw[1].batches), bytes(raw[1].data), failures) == (2, RECORDS + second[:-1] + b"?", {})


def test_a_moved_leader_is_found_by_the_next_fetch_though_others_have_records() -> None:
    def answer(ask: Ask) -> FetchResponse:
        if str(ask.link.address) == "b2:9092":
            return _answer(_partition(1, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return _has_records(ask)

    world = ByHand(answer, leaders={"t": [1, 2]})
    assert [one.partition for one in world.run(fetch(world.core, {A: 0, B: 0}))] == [A]
    world.leaders["t"] = [1, 3]
    assert [one.partition for one in world.run(fetch(world.core, {A: 0, B: 0}))] == [A, B]


def test_a_permanent_error_is_raised_if_no_partition_has_records() -> None:
    codes = {"b1:9092": ErrorCode.NOT_LEADER_OR_FOLLOWER, "b2:9092": ErrorCode.OFFSET_OUT_OF_RANGE}
    world = ByHand(
        lambda ask: _answer(_partition(int(str(ask.link.address) == "b2:9092"), codes[str(ask.link.address)])), leaders={"t": [1, 2]}
    )
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        world.run(fetch(world.core, {A: 0, B: 0}))
    assert world.pauses == []


class Slow(ByHand):
    """Brokers that accept connections after 0.9 s and answer no Fetch."""

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, AskAll):
            self.now_s += max(ask.timeout_s or 0.0 for ask in effect.asks)
            return [RequestTimeoutError("no answer") for _ in effect.asks]
        if isinstance(effect, Open):
            self.now_s += min(0.9, effect.timeout_s or 0.9)
        return super()._perform(effect)


def test_a_fetch_takes_no_longer_than_its_time_although_each_step_is_slow() -> None:
    world = Slow(_has_records, leaders={"t": [1, 2]}, timeout_s=1.0)
    begin = world.now_s
    with pytest.raises(RequestTimeoutError):
        world.run(fetch(world.core, {A: 0, B: 0}, max_wait_ms=500))
    assert world.now_s - begin <= 1.5
