"""Declared message classes: how instances are built, compared and shown, that shared defaults cannot be changed, and which versions have a
codec."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from ottla.base.errors import ApiError
from ottla.wire.codec import decoder, encoder, encoder_parts, writer
from ottla.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData, SnapshotId
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.produce import PartitionProduceData
from ottla.wire.schema import Struct, array, frozen_default, i32, is_flexible, maker, nested, string


class Inner(Struct):
    number: int = i32(default=-1)


class Outer(Struct):
    text: str = string()
    inner: Inner = nested(Inner)
    maybe: Inner | None = nested(Inner, nullable=True, default=None)
    items: list[Inner] = array(Inner)


def test_absent_fields_have_their_defaults() -> None:
    outer = Outer()
    assert (outer.text, outer.inner, outer.maybe, outer.items) == ("", Inner(number=-1), None, [])


def test_lists_are_fresh_each_time() -> None:
    first, second = Outer(), Outer()
    first.items.append(Inner())
    assert second.items == []


@pytest.mark.parametrize("build", [Outer, maker(Outer)])
def test_construction_is_by_keyword_and_knows_its_fields(build: Any) -> None:
    assert build(text="t", items=[Inner(number=1)]) == Outer(text="t", items=[Inner(number=1)])
    assert type(build()) is Outer
    with pytest.raises(TypeError):
        build("t")
    with pytest.raises(TypeError):
        build(texts="t")


def test_there_is_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Outer().other = 1  # type: ignore[attr-defined]


def test_equality_is_by_class_and_value() -> None:
    assert EpochEndOffset(epoch=1, end_offset=2) == EpochEndOffset(epoch=1, end_offset=2)
    assert EpochEndOffset(epoch=1, end_offset=2) != EpochEndOffset(epoch=1, end_offset=3)
    assert EpochEndOffset() != SnapshotId()
    assert Inner() != -1
    with pytest.raises(TypeError):
        hash(Inner())


def test_repr_names_every_field() -> None:
    assert repr(Outer(text="t")) == "Outer(text='t', inner=Inner(number=-1), maybe=None, items=[])"


def test_a_shared_default_refuses_assignment_and_is_otherwise_ordinary() -> None:
    outer = Outer()
    assert outer.inner is Outer().inner is frozen_default(Inner)
    assert isinstance(outer.inner, Inner)
    assert Inner() == outer.inner
    with pytest.raises(AttributeError, match="shared default"):
        outer.inner.number = 5
    outer.inner = Inner(number=5)
    outer.inner.number = 6
    assert Outer().inner.number == -1


def test_messages_can_be_copied_and_pickled() -> None:
    outer = Outer(items=[Inner(number=1)])
    for again in (copy.deepcopy(outer), pickle.loads(pickle.dumps(outer))):
        assert again == outer
        assert again.items[0] is not outer.items[0]
        assert again.inner is outer.inner


def test_a_codec_is_compiled_once() -> None:
    assert decoder(HeartbeatRequest, 4) is decoder(HeartbeatRequest, 4)
    assert encoder(HeartbeatRequest, 4) is encoder(HeartbeatRequest, 4)
    assert encoder_parts(HeartbeatRequest, 4) is encoder_parts(HeartbeatRequest, 4)
    assert writer(HeartbeatRequest, 4) is writer(HeartbeatRequest, 4)


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_versions_that_do_not_exist_have_no_codec(version: int) -> None:
    for codec in (decoder, encoder, encoder_parts, writer):
        with pytest.raises(ApiError, match="HeartbeatRequest has versions 0 to 4"):
            codec(HeartbeatRequest, version)


def test_flexibility_begins_where_declared() -> None:
    assert [is_flexible(HeartbeatRequest, version) for version in range(5)] == [False, False, False, False, True]


def test_parts_leave_large_and_foreign_records_alone() -> None:
    class Slice:
        def __len__(self) -> int:
            return 1_000_000

    foreign, large, small = Slice(), bytes(100_000), bytes(10)
    partitions = [PartitionData(partition_index=at, records=records) for at, records in enumerate((foreign, large, small, None))]
    message = FetchResponse(responses=[])
    assert encoder_parts(FetchResponse, 12)(message) == [encoder(FetchResponse, 12)(message)]
    message = FetchResponse()
    message.responses = [FetchableTopicResponse(topic="t", partitions=partitions)]
    parts = encoder_parts(FetchResponse, 12)(message)
    assert [type(part) for part in parts] == [bytes, Slice, bytes, bytes, bytes]
    assert parts[1] is foreign
    assert parts[3] is large
    partitions[0].records = memoryview(bytes(1_000_000))
    assert b"".join([parts[0], partitions[0].records, *parts[2:]]) == encoder(FetchResponse, 12)(message)


def test_nullable_records_are_null_by_default() -> None:
    assert PartitionProduceData().records is None
