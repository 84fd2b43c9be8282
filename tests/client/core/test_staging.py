"""Chunks are staged on the leaders of their partitions and attached by manifest, again after failures that may pass."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core import staging
from ottla.client.core.conversation import Ask
from ottla.client.core.staging import AttachPiece, Producing, StagedChunk, attach, offers_staging, pieces, stage
from ottla.client.errors import ConnectError, FencedError, KafkaError
from ottla.wire.checksum import crc32c
from ottla.wire.messages.attach_records import AttachPartitionResult, AttachRecordsResponse, AttachTopicResult
from ottla.wire.messages.stage_records import StagePartitionResult, StageRecordsResponse, StageTopicResult
from ottla.wire.records import Record, encode_batch
from tests.client.core.drive import ByHand, FakeLink

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TOKEN = bytes(range(16))
PRODUCING = Producing("x", 9, 4, TOKEN, uses_v2=True)


def _chunk(text: bytes, batches: int = 1) -> bytes:
    return b"".join(bytes(encode_batch([Record(0, 0, None, text, ()), Record(1, 0, None, text, ())])) for _ in range(batches))


class Stage:
    """Leaders that keep what is staged; `faults` are codes for the next results, 0 to let one pass."""

    def __init__(self, *faults: int) -> None:
        self.kept: dict[TopicPartition, dict[int, bytes]] = {}
        self.requests: list[list[TopicPartition]] = []
        self.faults = list(faults)

    def __call__(self, ask: Ask) -> StageRecordsResponse:
        body: Any = ask.body
        assert (body.batch_token, body.attempt_id) == (TOKEN, 5)
        self.requests.append([TopicPartition(topic.name, one.index) for topic in body.topics for one in topic.partitions])
        results = []
        for one in body.topics[0].partitions:
            code = self.faults.pop(0) if self.faults else 0
            if not code:
                self.kept.setdefault(TopicPartition("t", one.index), {})[one.chunk] = bytes(one.records)
            results.append(StagePartitionResult(index=one.index, error_code=code))
        return StageRecordsResponse(topics=[StageTopicResult(name="t", partitions=results)])


class Leaders:
    """Leaders that append staged chunks, judge repetitions by the last sequence number, and refuse on demand."""

    def __init__(self, *faults: int) -> None:
        self.appended: dict[TopicPartition, list[int]] = {}
        self.last: dict[TopicPartition, int] = {}
        self.requests: list[list[TopicPartition]] = []
        self.faults = list(faults)

    def __call__(self, ask: Ask) -> AttachRecordsResponse:
        body: Any = ask.body
        assert (body.transactional_id, body.producer_id, body.producer_epoch, body.batch_token, body.acks) == ("x", 9, 4, TOKEN, -1)
        self.requests.append([TopicPartition(topic.name, one.index) for topic in body.topics for one in topic.partitions])
        results = []
        for one in body.topics[0].partitions:
            code = self.faults.pop(0) if self.faults else 0
            results.append(AttachPartitionResult(index=one.index, error_code=code, base_offset=-1 if code else self._append(one)))
        return AttachRecordsResponse(topics=[AttachTopicResult(name="t", partitions=results)])

    def _append(self, one: Any) -> int:
        partition = TopicPartition("t", one.index)
        last = one.base_sequence + sum(chunk.records for chunk in one.chunks) - 1
        if last == self.last.get(partition, -1):
            return -1
        assert one.base_sequence == self.last.get(partition, -1) + 1
        self.last[partition] = last
        self.appended.setdefault(partition, []).extend(chunk.chunk for chunk in one.chunks)
        return 100 + one.base_sequence


def test_a_manifest_has_records_length_and_crc_of_each_chunk() -> None:
    leaders = Stage()
    world = ByHand(leaders, leaders={"t": [1, 2]})
    one, two, three = _chunk(b"one"), _chunk(b"two", batches=3), _chunk(b"three")
    found = world.run(stage(world.core, TOKEN, 5, {A: {0: one, 1: two}, B: {7: three}}))
    assert found.refused == {}
    assert found.chunks == {
        A: [StagedChunk(5, 0, 2, len(one), crc32c(one)), StagedChunk(5, 1, 6, len(two), crc32c(two))],
        B: [StagedChunk(5, 7, 2, len(three), crc32c(three))],
    }
    assert leaders.kept == {A: {0: one, 1: two}, B: {7: three}}


def test_several_requests_are_under_way_and_large_chunks_go_alone() -> None:
    leaders = Stage()
    world = ByHand(leaders, leaders={"t": [1, 1]})
    big = _chunk(bytes(400 * 1024))
    world.run(stage(world.core, TOKEN, 5, {A: dict.fromkeys(range(6), big), B: {0: _chunk(b"small"), 1: big}}))
    assert world.rounds == [staging.IN_FLIGHT_MAX, 2]
    assert leaders.requests == [[A, B], [A], [A], [A], [A], [A], [B]]


def test_requests_are_bounded_in_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "STAGE_BATCHES_MAX", 5)
    leaders = Stage()
    world = ByHand(leaders, leaders={"t": [1, 1]})
    world.run(stage(world.core, TOKEN, 5, {A: {0: _chunk(b"a", batches=3)}, B: {0: _chunk(b"b", batches=3), 1: _chunk(b"b", batches=2)}}))
    assert leaders.requests == [[A], [B], [B]]


def test_what_a_moved_leader_or_a_lost_connection_did_not_answer_is_sent_again() -> None:
    leaders = Stage(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    lost = iter([False, False, True])

    def answer(ask: Ask) -> StageRecordsResponse:
        found = leaders(ask)
        if next(lost, False):
            raise ConnectError("lost")
        return found

    world = ByHand(answer, leaders={"t": [1]})
    found = world.run(stage(world.core, TOKEN, 5, {A: {number: _chunk(b"%d" % number) for number in range(3)}}))
    assert [chunk.chunk for chunk in found.chunks[A]] == [0, 1, 2]
    assert leaders.requests == [[A]] * 5, "the first was acknowledged and went once"
    assert len(world.pauses) == 1


def test_a_partition_without_room_is_given_up_from_there_on_and_the_others_go_on() -> None:
    leaders = Stage(0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    world = ByHand(leaders, leaders={"t": [1, 1]})
    found = world.run(stage(world.core, TOKEN, 5, {A: dict.fromkeys(range(4), _chunk(b"a")), B: dict.fromkeys(range(3), _chunk(b"b"))}))
    assert [chunk.chunk for chunk in found.chunks[A]] == [0], "what was taken behind the refusal is not in the manifest"
    assert [chunk.chunk for chunk in found.chunks[B]] == [0, 1, 2]
    assert found.refused.keys() == {A} and found.refused[A].code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert world.pauses == []


def test_a_chunk_that_is_refused_for_good_is_an_error_and_so_is_a_broker_that_stays_away() -> None:
    world = ByHand(Stage(ErrorCode.MESSAGE_TOO_LARGE), leaders={"t": [1]})
    with pytest.raises(KafkaError, match="t-0"):
        world.run(stage(world.core, TOKEN, 5, {A: {0: _chunk(b"a")}}))
    assert world.pauses == []
    world = ByHand(lambda _: ConnectError("lost"), leaders={"t": [1]}, timeout_s=3.0)
    with pytest.raises(ConnectError):
        world.run(stage(world.core, TOKEN, 5, {A: {0: _chunk(b"a")}}))
    assert 2.0 < sum(world.pauses) <= 3.0


def test_an_answer_that_leaves_a_partition_out_is_a_refusal() -> None:
    world = ByHand(lambda _: StageRecordsResponse(), leaders={"t": [1]})
    with pytest.raises(KafkaError, match="t-0"):
        world.run(stage(world.core, TOKEN, 5, {A: {0: _chunk(b"a")}}))
    world = ByHand(lambda _: AttachRecordsResponse(), leaders={"t": [1]})
    with pytest.raises(KafkaError, match="t-0"):
        world.run(attach(world.core, PRODUCING, {A: [AttachPiece(0, [StagedChunk(5, 0, 2, 10, 0)])]}, world.core.deadline()))


def test_a_broker_without_the_extension_stages_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ByHand(Stage(), leaders={"t": [1]})
    assert world.run(offers_staging(world.core))
    monkeypatch.setattr(FakeLink, "__init__", _without_extension(FakeLink.__init__))
    world = ByHand(Stage(), leaders={"t": [1]})
    assert not world.run(offers_staging(world.core))
    found = world.run(stage(world.core, TOKEN, 5, {A: {0: _chunk(b"a")}}))
    assert (found.chunks, found.refused[A].code) == ({A: []}, ErrorCode.UNSUPPORTED_VERSION)
    with pytest.raises(KafkaError, match="b1:9092 leads t-0 now and attaches no records") as caught:
        world.run(attach(world.core, PRODUCING, {A: [AttachPiece(0, [StagedChunk(5, 0, 2, 10, 0)])]}, world.core.deadline()))
    assert caught.value.code is ErrorCode.UNKNOWN_STAGE


def _without_extension(initialize: Any) -> Any:
    def plain(link: FakeLink, *arguments: Any) -> None:
        initialize(link, *arguments)
        link.offers = lambda key, version=0: key < staging.STAGE_RECORDS

    return plain


def chunks(count: int, length: int = 10) -> list[StagedChunk]:
    return [StagedChunk(5, number, 2, length, 0) for number in range(count)]


def test_pieces_are_attached_one_after_another_and_all_leaders_at_once() -> None:
    leaders = Leaders()
    world = ByHand(leaders, leaders={"t": [1, 2]})
    some = chunks(3)
    wanted = {A: [AttachPiece(0, some[:2]), AttachPiece(4, some[2:])], B: [AttachPiece(0, some)]}
    offsets = world.run(attach(world.core, PRODUCING, wanted, world.core.deadline()))
    assert offsets == {A: 100, B: 100}
    assert leaders.appended == {A: [0, 1, 2], B: [0, 1, 2]}
    assert world.rounds == [2, 1]


def test_requests_and_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "ATTACH_BYTES_MAX", 25)
    assert [len(piece) for piece in pieces(chunks(5))] == [2, 2, 1]
    assert [len(piece) for piece in pieces(chunks(2, length=30))] == [1, 1]
    with monkeypatch.context() as patch:
        patch.setattr(staging, "ATTACH_CHUNKS_MAX", 3)
        assert [len(piece) for piece in pieces(chunks(5, length=1))] == [3, 2]
    leaders = Leaders()
    world = ByHand(leaders, leaders={"t": [1, 1]})
    world.run(attach(world.core, PRODUCING, {A: [AttachPiece(0, chunks(2))], B: [AttachPiece(0, chunks(1))]}, world.core.deadline()))
    assert leaders.requests == [[A], [B]]


def test_an_attach_is_repeated_with_the_same_sequence_numbers() -> None:
    leaders = Leaders(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    lost = iter([False, True])

    def answer(ask: Ask) -> AttachRecordsResponse:
        found = leaders(ask)
        if next(lost, False):
            raise ConnectError("lost")
        return found

    world = ByHand(answer, leaders={"t": [1]})
    assert world.run(attach(world.core, PRODUCING, {A: [AttachPiece(0, chunks(2))]}, world.core.deadline())) == {A: -1}
    assert leaders.appended == {A: [0, 1]}
    assert len(world.pauses) == 2


@pytest.mark.parametrize(("code", "error"), [(ErrorCode.UNKNOWN_STAGE, KafkaError), (ErrorCode.INVALID_PRODUCER_EPOCH, FencedError)])
def test_a_stage_that_is_gone_and_an_old_epoch_are_final(code: ErrorCode, error: type[KafkaError]) -> None:
    world = ByHand(Leaders(ErrorCode.NOT_ENOUGH_REPLICAS, code), leaders={"t": [1, 1]})
    with pytest.raises(error) as caught:
        world.run(attach(world.core, PRODUCING, {A: [AttachPiece(0, chunks(1))], B: [AttachPiece(0, chunks(1))]}, world.core.deadline()))
    assert caught.value.code is code
    assert world.pauses == []
