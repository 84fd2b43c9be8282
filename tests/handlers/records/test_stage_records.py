"""StageRecords: which clients may stage which records, and how much they may stage at once."""

from __future__ import annotations

from ottla.base.types import GROUP_METADATA_TOPIC
from ottla.handlers.records.stage_records import REQUEST_BYTES_MAX
from ottla.replication.stage_space import CHARGE_BYTES_MIN
from ottla.storage.staged_chunk import CHUNK_BATCHES_MAX
from tests.fakes.log_settings import log_settings
from tests.handlers.admin_world import DenyAll
from tests.handlers.staged_world import StagedWorld, staged_batch

A, B = staged_batch(b"a"), staged_batch(b"b")


def test_chunks_of_several_partitions_are_staged() -> None:
    world = StagedWorld()
    assert world.stage((0, 0, A), (1, 0, B), (0, 1, B)) == ["NONE"] * 3
    assert [result.index for result in world.last_stage.topics[0].partitions] == [0, 1, 0]
    assert world.broker.stages.staged_bytes == 3 * len(A)
    assert [partition.log.log_end_offset for partition in world.partitions] == [0, 0]


def test_each_chunk_is_refused_by_itself() -> None:
    world = StagedWorld()
    assert world.stage((0, 0, A), (0, 0, B), (0, 0, A), (5, 0, A), (0, 1, b"junk"), (0, -1, A)) == [
        "NONE", "INVALID_RECORD", "NONE", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_RECORD", "INVALID_REQUEST",
    ]  # fmt: skip
    assert world.last_stage.topics[0].partitions[1].error_message == "chunk 0 of attempt 1 was staged with other bytes"


def test_only_the_leader_stages() -> None:
    world = StagedWorld()
    world.partitions[0].become_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=[0, 2], isr=[2])
    assert world.stage((0, 0, A), (1, 0, A)) == ["NOT_LEADER_OR_FOLLOWER", "NONE"]


def test_the_right_to_write_is_needed() -> None:
    world = StagedWorld()
    world.broker.authorizer = DenyAll()
    assert world.stage((0, 0, A)) == ["TOPIC_AUTHORIZATION_FAILED"]


def test_topics_of_coordinators_are_not_staged_for() -> None:
    assert StagedWorld().stage((0, 0, A), topic=GROUP_METADATA_TOPIC) == ["INVALID_TOPIC_EXCEPTION"]


def test_a_token_of_zeroes_is_no_secret() -> None:
    assert StagedWorld().stage((0, 0, A), token=bytes(16)) == ["INVALID_REQUEST"]


def test_a_quota_is_a_typed_error() -> None:
    world = StagedWorld(f"ottla.stage.principal.bytes.max={CHARGE_BYTES_MIN}")
    assert world.stage((0, 0, A), (1, 0, A)) == ["NONE", "THROTTLING_QUOTA_EXCEEDED"]
    assert world.stage((1, 0, A), principal="User:other") == ["NONE"]


def test_a_request_stages_a_bounded_number_of_bytes() -> None:
    config = log_settings(max_message_bytes=2 * REQUEST_BYTES_MAX)
    world = StagedWorld(config=config)
    half = staged_batch(b"x" * (REQUEST_BYTES_MAX // 2))
    assert world.stage((0, 0, A), (0, 1, half), (0, 2, half), (0, 3, B)) == ["NONE", "NONE", "INVALID_REQUEST", "NONE"]
    assert world.stage((0, 9, staged_batch(b"x" * REQUEST_BYTES_MAX))) == ["NONE"], "one large chunk may come alone"


def test_a_request_stages_a_bounded_number_of_batches() -> None:
    world = StagedWorld()
    most = A * (CHUNK_BATCHES_MAX - 1)
    assert world.stage((0, 0, most), (0, 1, A + B), (0, 2, A), (0, 3, A)) == ["NONE", "INVALID_REQUEST", "NONE", "INVALID_REQUEST"]
