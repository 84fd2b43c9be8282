"""Sample requests about topics, their records and their replicas; see `sample_requests.py`."""

from __future__ import annotations

from typing import Any

from ottla.wire.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    list_offsets,
    metadata,
    mirror_records,
    offset_for_leader_epoch,
)
from ottla.wire.messages import list_partition_reassignments as list_reassignments
from ottla.wire.records import Record, encode_batch
from tests.clients.sample_world import World, broker_id_of
from tests.clients.wire_client import In


def _produce(world: World, make: In, _cls: Any) -> Any:
    return world.produce(make, world.topic)


def _fetch(world: World, make: In, cls: Any) -> Any:
    partition = make(fetch.FetchPartition, partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = make(fetch.FetchTopic, topic=world.topic, topic_id=world.topic_id, partitions=[partition])
    return make(cls, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, isolation_level=1, session_epoch=0, topics=[topic])


def _list_offsets(world: World, make: In, cls: Any) -> Any:
    partition = make(list_offsets.ListOffsetsPartition, partition_index=0, timestamp=1_700_000_000_001)
    topic = make(list_offsets.ListOffsetsTopic, name=world.topic, partitions=[partition])
    return make(cls, replica_id=-1, topics=[topic], timeout_ms=1000)


def _metadata(world: World, make: In, cls: Any) -> Any:
    topic = make(metadata.MetadataRequestTopic, name=world.topic)
    return make(cls, topics=[topic], include_cluster_authorized_operations=True, include_topic_authorized_operations=True)


def _create_topics(world: World, make: In, _cls: Any) -> Any:
    config = make(create_topics.CreatableTopicConfig, name="retention.ms", value="1000")
    return world.make_topic(make.version, world.fresh("made"), configs=[config])


def _delete_topics(world: World, make: In, cls: Any) -> Any:
    name = world.fresh_topic()
    return make(cls, topics=[make(delete_topics.DeleteTopicState, name=name)], topic_names=[name], timeout_ms=5000)


def _delete_records(world: World, make: In, cls: Any) -> Any:
    partition = make(delete_records.DeleteRecordsPartition, partition_index=1, offset=-1)
    return make(cls, topics=[make(delete_records.DeleteRecordsTopic, name=world.topic, partitions=[partition])], timeout_ms=5000)


def _offset_for_leader_epoch(world: World, make: In, cls: Any) -> Any:
    partition = make(offset_for_leader_epoch.OffsetForLeaderPartition, partition=0, leader_epoch=0)
    return make(cls, topics=[make(offset_for_leader_epoch.OffsetForLeaderTopic, topic=world.topic, partitions=[partition])])


def _alter_replica_log_dirs(world: World, make: In, cls: Any) -> Any:
    topic = make(alter_replica_log_dirs.AlterReplicaLogDirTopic, name=world.topic, partitions=[0])
    return make(cls, dirs=[make(alter_replica_log_dirs.AlterReplicaLogDir, path="/nowhere", topics=[topic])])


def _describe_log_dirs(world: World, make: In, cls: Any) -> Any:
    return make(cls, topics=[make(describe_log_dirs.DescribableLogDirTopic, topic=world.topic, partitions=[0, 1])])


def _create_partitions(world: World, make: In, cls: Any) -> Any:
    return make(
        cls, topics=[make(create_partitions.CreatePartitionsTopic, name=world.fresh_topic(), count=3, assignments=None)], timeout_ms=5000
    )


def _elect_leaders(world: World, make: In, cls: Any) -> Any:
    return make(cls, topic_partitions=[make(elect_leaders.TopicPartitions, topic=world.topic, partitions=[0])])


def _reassign(world: World, make: In, cls: Any) -> Any:
    partition = make(alter_partition_reassignments.ReassignablePartition, partition_index=0, replicas=[broker_id_of(world)])
    return make(cls, topics=[make(alter_partition_reassignments.ReassignableTopic, name=world.topic, partitions=[partition])])


def _list_reassignments(world: World, make: In, cls: Any) -> Any:
    return make(cls, topics=[make(list_reassignments.ListPartitionReassignmentsTopics, name=world.topic, partition_indexes=[0])])


def _describe_topic_partitions(world: World, make: In, cls: Any) -> Any:
    return make(cls, topics=[make(describe_topic_partitions.TopicRequest, name=world.topic)])


def _describe_segments(world: World, _make: In, cls: Any) -> Any:
    return cls(topic=world.topic, partition=0, index_of=0)


def _mirror_records(world: World, _make: In, cls: Any) -> Any:
    """Returns a MirrorRecords request with one batch of leader epoch 0, for a mirrored topic with leader epoch 1."""
    name, settings = world.fresh("mirror"), {"ottla.mirror.source": "a:b", "ottla.leader.epoch.min": "1"}
    configs = [create_topics.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    world.client.ask(world.make_topic(7, name, configs=configs), 7)
    records = bytes(encode_batch([Record(0, 0, None, b"mirrored")], leader_epoch=0))
    partition = mirror_records.MirrorPartition(index=0, expected_end=0, records=records)
    return cls(timeout_ms=5000, topics=[mirror_records.MirrorTopic(name=name, source="a:b", partitions=[partition])])


TOPIC_REQUESTS = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    23: _offset_for_leader_epoch,
    34: _alter_replica_log_dirs,
    35: _describe_log_dirs,
    37: _create_partitions,
    43: _elect_leaders,
    45: _reassign,
    46: _list_reassignments,
    75: _describe_topic_partitions,
    20003: _describe_segments,
    20004: _mirror_records,
}
