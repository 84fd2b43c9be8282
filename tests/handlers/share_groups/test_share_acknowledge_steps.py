"""ShareAcknowledge and ShareFetch with acknowledgements for many partitions: each step writes those of a few partitions."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ottla.handlers.context import RequestContext
from ottla.handlers.share_groups import share_acknowledge, share_fetch
from ottla.handlers.share_groups.acknowledgements import PARTITIONS_PER_STEP
from ottla.wire.messages.share_acknowledge import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from ottla.wire.messages.share_fetch import AcknowledgementBatch as FetchedBatch
from ottla.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from tests.fakes.answers import answer_of
from tests.handlers.records_world import TOPIC_ID
from tests.handlers.share_world import GROUP, ShareWorld, codes

PARTITIONS = 3 * PARTITIONS_PER_STEP


@pytest.fixture
def world() -> ShareWorld:
    """A member that has a record of each partition."""
    world = ShareWorld(partitions=PARTITIONS)
    world.append_to_each()
    world.fetch(0, partitions=tuple(range(PARTITIONS)), min_bytes=0)
    assert sum(len(share.flight.runs) for share in world.shares) == PARTITIONS
    return world


def acknowledging(world: ShareWorld) -> Generator[None, None, Any]:
    batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partitions = [AcknowledgePartition(partition_index=index, acknowledgement_batches=[batch]) for index in range(PARTITIONS)]
    body = ShareAcknowledgeRequest(
        group_id=GROUP, member_id="a", share_session_epoch=1, topics=[AcknowledgeTopic(topic_id=TOPIC_ID, partitions=partitions)]
    )
    return share_acknowledge.handle(world.broker, RequestContext(1, "test", world.connection), body)


def fetching(world: ShareWorld) -> Generator[None, None, Any]:
    batch = FetchedBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partitions = [FetchPartition(partition_index=index, acknowledgement_batches=[batch]) for index in range(PARTITIONS)]
    body = ShareFetchRequest(
        group_id=GROUP, member_id="a", share_session_epoch=1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, max_records=500,
        batch_size=500, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partitions)],
    )  # fmt: skip
    return share_fetch.handle(world.broker, RequestContext(1, "test", world.connection), body)


@pytest.mark.parametrize("asking", [acknowledging, fetching])
def test_the_acknowledgements_of_a_few_partitions_are_written_in_each_step(world: ShareWorld, asking: Any) -> None:
    """The acknowledgements of each partition are one write of a share coordinator, which may be on this broker."""
    steps = asking(world)
    for number in range(1, PARTITIONS // PARTITIONS_PER_STEP + 1):
        next(steps)
        assert sum(share.flight.start for share in world.shares) == number * PARTITIONS_PER_STEP
    assert set(codes(answer_of(steps)).values()) == {0}


def test_an_answer_is_made_in_steps(monkeypatch: pytest.MonkeyPatch, world: ShareWorld) -> None:
    monkeypatch.setattr(share_acknowledge, "ITEMS_PER_STEP", 10)
    steps = acknowledging(world)
    for _ in range(PARTITIONS // PARTITIONS_PER_STEP):
        next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert sum(1 for _ in end.value.value.response) == PARTITIONS // 10
