"""Which broker coordinates a group before the first commit, and which coordinators are notified of deleted topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from ottla.base.cluster_metadata import ClusterMetadata
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.share_state import Persister
from ottla.base.types import GROUP_METADATA_TOPIC, TopicPartition
from ottla.groups.commands import AlterShareOffsets, Caller, ShareHeartbeat, StartOffset
from ottla.groups.coordinator import GroupCoordinator
from ottla.groups.offsets.store import CommittedOffset
from ottla.groups.records import offset_commit
from ottla.groups.share.heartbeat import share_heartbeat
from ottla.groups.share.no_states import NO_SHARE_STATES
from ottla.groups.share.offsets import alter_share_offsets
from ottla.machine.host import HostState
from ottla.server.coordinator_views import MetadataTopics
from tests.fakes.clock import ManualClock
from tests.fakes.coordinator_settings import group_settings
from tests.fakes.machine_log import MemoryLog
from tests.fakes.persister import MemoryPersister
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers


def test_without_the_offsets_topic_no_broker_is_the_coordinator() -> None:
    """As in Kafka: a client that asks before FindCoordinator gets NOT_COORDINATOR; FindCoordinator then makes the topic."""
    clock = ManualClock()
    hosts = coordinator(clock, ManualTimers(clock))
    with pytest.raises(ApiError) as refused:
        hosts.host_of("g")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


def coordinator(
    clock: ManualClock, timers: ManualTimers, metadata: Any = None, persister: Persister = NO_SHARE_STATES
) -> GroupCoordinator:
    return GroupCoordinator(
        clock=clock, timers=timers, random=SeededRandom(1), topics=MetadataTopics(metadata or ClusterMetadata()),
        settings=group_settings(), load_bytes=lambda: 1024, persister=persister,
    )  # fmt: skip


class LedPartition:
    """The empty first partition of `__consumer_offsets`, which this broker leads."""

    topic_partition = TopicPartition(GROUP_METADATA_TOPIC, 0)
    log = SimpleNamespace(log_start_offset=0, log_end_offset=0)

    def __init__(self) -> None:
        self.leader = MemoryLog()


def test_offsets_of_a_topic_that_is_deleted_while_they_are_loaded_are_forgotten() -> None:
    clock = ManualClock()
    timers, partition = ManualTimers(clock), LedPartition()
    for topic in ("gone", "kept"):
        partition.leader.append_records([offset_commit("g", topic, 0, CommittedOffset(7, -1, "", 0))], None, 0)
    hosts = coordinator(clock, timers)
    with mock.patch("ottla.machine.coordinator.reader_of", lambda _log, _bytes_max: partition.leader.reader(1)):
        hosts.lead(partition)  # type: ignore[arg-type]
    host = hosts.host_of_partition(0)
    assert host is not None and host.state is HostState.LOADING
    hosts.forget_topics(["gone"])
    timers.run_due()
    assert host.state is HostState.ACTIVE
    assert host.machine.shard.offsets.keys_of("g") == [("kept", 0)]


def test_what_share_coordinators_answer_is_decided_on_the_shard_that_asked() -> None:
    clock = ManualClock()
    timers, persister, partition = ManualTimers(clock), MemoryPersister(), LedPartition()
    topic = SimpleNamespace(topic_id=b"t" * 16, partitions=[0, 1], name="t")
    metadata: Any = SimpleNamespace(topic=lambda name: topic if name == "t" else None)
    hosts = coordinator(clock, timers, metadata, persister)
    hosts.lead(partition)  # type: ignore[arg-type]
    timers.run_due()
    host, answers = hosts.host_of_partition(0), list[Any]()
    assert host is not None
    command = ShareHeartbeat(group_id="g", caller=Caller("c", "/h"), member_id="m", member_epoch=0, topics=["t"])
    persister.is_held = True
    host.run(lambda now_ms: share_heartbeat(host.machine.shard, command, answers.append, now_ms))
    timers.run_due()
    assert not answers
    persister.release()
    timers.run_due()
    assert list(answers[0].assignment.values()) == [(0, 1)]
    persister.is_held = True
    alteration = AlterShareOffsets(group_id="h", starts=[StartOffset("t", 0, 0)])
    host.run(lambda _now_ms: alter_share_offsets(host.machine.shard, alteration, answers.append))
    hosts.resign(0)
    persister.release()
    assert answers[1].error is ErrorCode.NOT_COORDINATOR, "an answer of share coordinators after the shard has moved counts for nothing"
