"""Batches of another cluster in a mirrored partition: offsets, epochs, refusals, and appends of clients after the mirroring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.log_config import LogConfig
from ottla.replication.mirrored import append_mirrored
from ottla.replication.partition import Partition
from ottla.wire.records import Record, encode_batch, encode_control_batch
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.replication.records import OpenLog, append, batch, mine, refusal, values

SOURCE = "cluster:topic"
MIRRORED = log_settings(mirror_source=SOURCE, leader_epoch_min=5)
OWN = replace(MIRRORED, mirror_source="")


def sent(offset: int, *texts: str, epoch: int = 2, producer_id: int = -1, sequence: int = -1) -> bytes:
    """Returns a batch as it is in the source's log."""
    return bytes(
        encode_batch(
            [Record(0, 1_000, None, text.encode()) for text in texts], base_offset=offset, leader_epoch=epoch, producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1, base_sequence=sequence,
        )
    )  # fmt: skip


def mirror(partition: Partition, data: bytes = b"", *, end: int = 0, source: str = SOURCE, start: int = -1) -> None:
    append_mirrored(
        partition, partition.require_leading(), memoryview(data), source=source, expected_end=end, source_log_start=start
    )  # fmt: skip


def led(open_log: OpenLog, config: LogConfig = MIRRORED, *, epoch: int = 5, was_clean: bool = False) -> Partition:
    partition = Partition(open_log(config, was_clean=was_clean), broker_id=1)
    partition.become_leader(leader_epoch=epoch, partition_epoch=epoch, replicas=[1], isr=[1], now_ms=0)
    return partition


def stored(disk: MemDisk) -> bytes:
    return disk.read_file("/data/flights-0/00000000000000000000.log")


def test_batches_keep_offsets_epochs_and_bytes(open_log: OpenLog, disk: MemDisk) -> None:
    partition = led(open_log)
    first, second = sent(0, "a", "b"), sent(7, "c", epoch=4)
    mirror(partition, first)
    mirror(partition, second, end=2)
    assert stored(disk) == first + second
    assert (partition.log.log_end_offset, partition.high_watermark) == (8, 8)
    assert partition.log.epochs.entries() == [(2, 0), (4, 7)]
    assert values(partition) == ["a", "b", "c"]


def test_what_was_appended_is_not_appended_again(open_log: OpenLog) -> None:
    partition = led(open_log)
    mirror(partition, sent(0, "a", "b"))
    assert refusal(lambda: mirror(partition, sent(0, "a", "b"))) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(lambda: mirror(partition, sent(3, "d"), end=3)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(partition) == ["a", "b"]


@pytest.mark.parametrize("source", ["", "other:topic"])
def test_only_the_source_of_the_topic_is_mirrored(open_log: OpenLog, source: str) -> None:
    assert refusal(lambda: mirror(led(open_log), sent(0, "a"), source=source)) is ErrorCode.INVALID_REQUEST


def test_a_topic_without_a_source_is_not_mirrored(open_log: OpenLog) -> None:
    assert refusal(lambda: mirror(led(open_log, OWN), sent(0, "a"))) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: mirror(led(open_log, OWN), sent(0, "a"), source="")) is ErrorCode.INVALID_REQUEST


def test_the_source_has_smaller_epochs(open_log: OpenLog) -> None:
    partition = led(open_log)
    assert refusal(lambda: mirror(partition, sent(0, "a", epoch=5))) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.log.log_end_offset == 0


def test_damaged_batches_are_refused(open_log: OpenLog) -> None:
    partition, whole = led(open_log), bytearray(sent(0, "a"))
    whole[-1] ^= 1
    assert refusal(lambda: mirror(partition, bytes(whole))) is ErrorCode.CORRUPT_MESSAGE
    assert partition.log.log_end_offset == 0


def test_clients_and_coordinators_do_not_write(open_log: OpenLog) -> None:
    partition = led(open_log)
    mirror(partition, sent(0, "a", producer_id=7, sequence=0))
    assert refusal(lambda: append(partition, batch("b"))) is ErrorCode.POLICY_VIOLATION
    assert partition.require_leading().write_marker(7, 0, 0, True, 1_000) is None, "it has no transaction here"
    assert values(partition) == ["a"]


def test_a_transaction_of_the_source_is_ended_by_its_marker(open_log: OpenLog) -> None:
    partition = led(open_log)
    records = [Record(0, 1_000, None, b"a")]
    mirror(
        partition,
        bytes(
            encode_batch(
                records, base_offset=0, leader_epoch=2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
            )
        ),
    )
    assert refusal(lambda: partition.require_leading().write_marker(7, 0, 0, False, 1_000)) is ErrorCode.POLICY_VIOLATION
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    mirror(partition, bytes(encode_control_batch(1, 7, 0, 3, 1_000, base_offset=1, leader_epoch=2)), end=1)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


def test_records_that_the_source_deleted_are_deleted(open_log: OpenLog) -> None:
    partition = led(open_log)
    mirror(partition, sent(0, "a", "b"))
    mirror(partition, sent(2, "c"), end=2, start=2)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 3)
    mirror(partition, sent(100, "d"), end=3, start=90)
    assert (partition.log.log_start_offset, partition.high_watermark, partition.log.log_end_offset) == (90, 101, 101)
    assert values(partition, 90) == ["d"]


def test_a_leader_that_learns_later_that_its_topic_is_mirrored(open_log: OpenLog) -> None:
    """The source's records have smaller epochs than the leader's own epoch, which no record has."""
    partition = led(open_log, log_settings(leader_epoch_min=5))
    partition.log.flush()
    partition.configure(MIRRORED)
    mirror(partition, sent(0, "a"))
    again = led(open_log, epoch=6)
    assert values(again) == ["a"] and again.log.epochs.entries() == [(2, 0)]


def test_the_smallest_epoch_may_arrive_before_the_election(open_log: OpenLog) -> None:
    """A new controller sends the settings first. Until the election, clients are refused, because their records would be taken for the
    source's."""
    partition = led(open_log)
    mirror(partition, sent(0, "theirs", producer_id=7, sequence=0))
    partition.configure(replace(OWN, leader_epoch_min=9))
    assert refusal(lambda: append(partition, mine("ours", sequence=0))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: partition.require_leading().write_marker(7, 0, 0, True, 1_000)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.become_leader(leader_epoch=9, partition_epoch=9, replicas=[1], isr=[1], now_ms=0)
    assert not append(partition, mine("ours", sequence=0)).is_duplicate
    assert append(partition, mine("ours", sequence=0)).is_duplicate
    assert partition.log.epochs.entries() == [(2, 0), (9, 1)]


def test_the_leaders_epoch_ends_at_the_logs_end_for_consumers(open_log: OpenLog) -> None:
    """A consumer knows the leader's epoch from the metadata, and asks for it after an election."""
    partition = led(open_log, epoch=6)
    mirror(partition, sent(0, "a", "b"))
    assert partition.end_offset_for_epoch(2) == (2, 2)
    assert partition.end_offset_for_epoch(6) == (6, 2)
    assert partition.end_offset_for_epoch(7) == (-1, -1)


def test_a_producer_after_the_mirroring_is_not_the_sources(open_log: OpenLog) -> None:
    """Both clusters have a producer with id 7. The first batch of this cluster's producer is not a repetition of the source's batch."""
    partition = led(open_log)
    mirror(partition, sent(0, "theirs", producer_id=7, sequence=0))
    partition.configure(OWN)
    assert not append(partition, mine("ours", sequence=0)).is_duplicate
    assert append(partition, mine("ours", sequence=0)).is_duplicate
    assert partition.log.epochs.entries() == [(2, 0), (5, 1)]
    again = led(open_log, OWN, epoch=6)
    assert append(again, mine("ours", sequence=0)).is_duplicate, "its own producers are known after a crash"
    assert values(again) == ["theirs", "ours"]


def test_a_restart_after_the_mirroring_forgets_the_sources_producers_too(open_log: OpenLog) -> None:
    mirror(led(open_log), sent(0, "theirs", producer_id=7, sequence=0))
    again = led(open_log, OWN, epoch=6)
    assert not append(again, mine("ours", sequence=0)).is_duplicate
