"""A sensible request for every API that is served, in every version, so that the answers are full ones, with topics and members in them.

`World` is what the requests talk about: a topic with records, a group with a member and offsets, a transaction. `request(key, version)`
makes the request; what an API may answer besides "no error" stands in `MAY_ANSWER`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from ottla.base.errors import ErrorCode
from ottla.wire.framing import load
from ottla.wire.messages import add_partitions_to_txn as add_partitions
from ottla.wire.messages import alter_client_quotas as quotas
from ottla.wire.messages import (
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    attach_records,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    join_group,
    leader_and_isr,
    leave_group,
    list_offsets,
    metadata,
    mirror_records,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stage_records,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from ottla.wire.messages import alter_user_scram_credentials as scram
from ottla.wire.messages import list_partition_reassignments as list_reassignments
from ottla.wire.records import Record, encode_batch
from ottla.wire.schema import Request
from tests.clients.broker_process import eventually
from tests.clients.sample_share_requests import SHARE_REQUESTS
from tests.clients.sample_streams_requests import STREAMS_REQUESTS
from tests.clients.wire_client import In, WireClient, error_codes

TOPIC_RESOURCE, CLUSTER_NAME = 2, "kafka-cluster"
NEVER_EXPIRES_MS = 60_000
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
ONLY_FROM_BROKERS = {4, 5, 6, 7, 27, 56, 58, 83, 84, 85, 86, 87}

# What a right answer may say besides NONE.
MAY_ANSWER: dict[int, set[ErrorCode]] = {
    **{key: {ErrorCode.CLUSTER_AUTHORIZATION_FAILED} for key in ONLY_FROM_BROKERS},
    11: {ErrorCode.MEMBER_ID_REQUIRED},
    17: {ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE},
    24: {ErrorCode.CLUSTER_AUTHORIZATION_FAILED},  # from version 4 on, which only brokers send
    29: {ErrorCode.SECURITY_DISABLED},
    30: {ErrorCode.SECURITY_DISABLED},
    31: {ErrorCode.SECURITY_DISABLED},
    34: {ErrorCode.LOG_DIR_NOT_FOUND},
    36: {ErrorCode.ILLEGAL_SASL_STATE},
    **{key: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED} for key in (38, 39, 40, 41)},
    43: {ErrorCode.ELECTION_NOT_NEEDED},
    57: {ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FEATURE_UPDATE_FAILED},
    64: {ErrorCode.BROKER_ID_NOT_REGISTERED},
    80: {ErrorCode.UNSUPPORTED_VERSION},
    81: {ErrorCode.UNSUPPORTED_VERSION},
}


def batch(count: int = 3, **options: Any) -> bytes:
    """A batch of small records of the year 2023."""
    return bytes(encode_batch([Record(0, 1_700_000_000_000 + n, b"key", b"value", (("h", b"1"),)) for n in range(count)], **options))


class World:
    """One broker with something of everything in it."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.topic = "world"
        self.numbers = itertools.count()
        client.ask(self.make_topic(7, self.topic), 7)
        answer = client.ask(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=self.topic)]), 12)
        self.topic_id = answer.topics[0].topic_id
        client.ask(self.produce(In(9), self.topic), 9)
        for kind, key in enumerate(("group", "transaction")):
            eventually(lambda kind=kind, key=key: client.ask(load(10)[0](key=key, key_type=kind), 2).error_code == 0)
        self.join("group")
        client.ask(self.offset_commit(In(8)), 8)

    @staticmethod
    def make_topic(version: int, name: str, **fields: Any) -> Request:
        make = In(version)
        topic = make(create_topics.CreatableTopic, name=name, num_partitions=2, replication_factor=1, **fields)
        request: Request = make(create_topics.CreateTopicsRequest, topics=[topic])
        return request

    def fresh(self, prefix: str) -> str:
        return f"{prefix}-{next(self.numbers)}"

    def fresh_topic(self) -> str:
        name = self.fresh("topic")
        self.client.ask(self.make_topic(7, name), 7)
        return name

    def join(self, group: str) -> tuple[str, int]:
        """One member joins and receives its assignment: (member id, generation)."""
        protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + bytes(8))
        request = join_group.JoinGroupRequest(
            group_id=group, session_timeout_ms=NEVER_EXPIRES_MS, rebalance_timeout_ms=NEVER_EXPIRES_MS,
            protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        answers: list[Any] = []
        eventually(lambda: answers.append(self.client.ask(request, 3)) or answers[-1].error_code not in NOT_YET)
        joined = answers[-1]
        assert joined.error_code == 0, joined
        assignment = sync_group.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
        synced = self.client.ask(
            sync_group.SyncGroupRequest(
                group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
            ),
            3,
        )
        assert synced.error_code == 0 and synced.assignment == b"mine"
        return joined.member_id, joined.generation_id

    def transaction(self, topic: str | None = None) -> tuple[str, int, int]:
        """A transaction that is open: (transactional id, producer id, epoch); with `topic`, that has a partition in it."""
        name = self.fresh("transaction")
        init = load(22)[0](transactional_id=name, transaction_timeout_ms=NEVER_EXPIRES_MS)
        answer = self.client.ask(init, 4)
        if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # as Apache Kafka says for a moment
            answer = eventually(lambda: None if (found := self.client.ask(init, 4)).error_code in NOT_YET else found)
        assert answer.error_code == 0, answer
        if topic is not None:
            added = self.client.ask(self.add_partitions(In(3), name, answer.producer_id, answer.producer_epoch, topic), 3)
            assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, added
        return name, answer.producer_id, answer.producer_epoch

    def produce(self, make: In, topic: str, records: bytes | None = None, acks: int = -1, transactional_id: str | None = None) -> Request:
        partition = make(produce.PartitionProduceData, index=0, records=records or batch())
        data = make(produce.TopicProduceData, name=topic, topic_id=getattr(self, "topic_id", bytes(16)), partition_data=[partition])
        request: Request = make(produce.ProduceRequest, transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[data])
        return request

    def offset_commit(self, make: In) -> Request:
        partition = make(offset_commit.OffsetCommitRequestPartition, partition_index=0, committed_offset=2, committed_metadata="m")
        topic = make(offset_commit.OffsetCommitRequestTopic, name=self.topic, topic_id=self.topic_id, partitions=[partition])
        request: Request = make(offset_commit.OffsetCommitRequest, group_id="offsets", topics=[topic])
        return request

    def stage(self, token: bytes, records: bytes, *, chunk: int = 0, attempt: int = 1) -> stage_records.StageRecordsRequest:
        """Puts a chunk aside for the topic's first partition."""
        partition = stage_records.StagePartition(index=0, chunk=chunk, records=records)
        topic = stage_records.StageTopic(name=self.topic, partitions=[partition])
        return stage_records.StageRecordsRequest(batch_token=token, attempt_id=attempt, topics=[topic])

    @staticmethod
    def add_partitions(make: In, name: str, producer_id: int, epoch: int, topic: str) -> Request:
        topics = [add_partitions.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
        fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "topics": topics}
        one = make(add_partitions.AddPartitionsToTxnTransaction, verify_only=False, **fields)
        old = {f"v3_and_below_{field}": value for field, value in fields.items()}
        request: Request = make(add_partitions.AddPartitionsToTxnRequest, transactions=[one], **old)
        return request

    def first_heartbeat(self, group: str) -> dict[str, Any]:
        """What a member of the consumer protocol says when it joins."""
        return {
            "group_id": group, "member_id": self.fresh("member"), "member_epoch": 0, "rebalance_timeout_ms": NEVER_EXPIRES_MS,
            "subscribed_topic_names": [self.topic], "server_assignor": "range", "topic_partitions": [],
        }  # fmt: skip

    def request(self, key: int, version: int) -> Request:
        """A request that this broker has every reason to grant."""
        made: Request = REQUESTS[key](self, In(version), load(key)[0])
        return made


Maker = Callable[[World, In, Any], Any]
REQUESTS: dict[int, Maker] = {**SHARE_REQUESTS, **STREAMS_REQUESTS}


def api(key: int) -> Callable[[Maker], Maker]:
    def keep(maker: Maker) -> Maker:
        REQUESTS[key] = maker
        return maker

    return keep


def plain(key: int, **fields: Any) -> None:
    """An API whose request says nothing about the world."""
    REQUESTS[key] = lambda _world, make, cls: make(cls, **fields)


plain(16)
plain(18, client_software_name="wire", client_software_version="1")
plain(17, mechanism="PLAIN")
plain(36, auth_bytes=b"\0user\0password")
plain(29, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
plain(38, max_lifetime_ms=-1)
plain(39, hmac=bytes(64), renew_period_ms=-1)
plain(40, hmac=bytes(64), expiry_time_period_ms=-1)
plain(41, owners=None)
plain(48, components=[describe_client_quotas.ComponentData(entity_type="user", match_type=2, match=None)])
plain(
    49,
    entries=[
        quotas.EntryData(
            entity=[quotas.EntityData(entity_type="client-id", entity_name="c")], ops=[quotas.OpData(key="producer_byte_rate", value=1e6)]
        )
    ],
)
plain(50, users=None)
plain(51, upsertions=[scram.ScramCredentialUpsertion(name="sample", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32)])
plain(60, include_cluster_authorized_operations=True)
plain(64, broker_id=77)
plain(66)
plain(20002)
plain(71)
plain(74)
plain(80, cluster_id=None, voter_id=1, voter_directory_id=bytes(range(16)))
plain(81, cluster_id=None, voter_id=1, voter_directory_id=bytes(range(16)))
plain(7, broker_id=1)
plain(55, topics=[])


@api(0)
def _produce(world: World, make: In, _cls: Any) -> Any:
    return world.produce(make, world.topic)


@api(1)
def _fetch(world: World, make: In, cls: Any) -> Any:
    partition = make(fetch.FetchPartition, partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = make(fetch.FetchTopic, topic=world.topic, topic_id=world.topic_id, partitions=[partition])
    return make(cls, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, isolation_level=1, session_epoch=0, topics=[topic])


@api(2)
def _list_offsets(world: World, make: In, cls: Any) -> Any:
    partition = make(list_offsets.ListOffsetsPartition, partition_index=0, timestamp=1_700_000_000_001)
    topic = make(list_offsets.ListOffsetsTopic, name=world.topic, partitions=[partition])
    return make(cls, replica_id=-1, topics=[topic], timeout_ms=1000)


@api(3)
def _metadata(world: World, make: In, cls: Any) -> Any:
    topic = make(metadata.MetadataRequestTopic, name=world.topic)
    return make(cls, topics=[topic], include_cluster_authorized_operations=True, include_topic_authorized_operations=True)


@api(4)
def _leader_and_isr(world: World, make: In, cls: Any) -> Any:
    fields = {
        "partition_index": 0,
        "controller_epoch": 9,
        "leader": 1,
        "leader_epoch": 9,
        "isr": [1],
        "replicas": [1],
        "partition_epoch": 9,
    }
    state = make(leader_and_isr.LeaderAndIsrPartitionState, topic_name=world.topic, **fields)
    topic = make(leader_and_isr.LeaderAndIsrTopicState, topic_name=world.topic, topic_id=world.topic_id, partition_states=[state])
    leader = make(leader_and_isr.LeaderAndIsrLiveLeader, broker_id=1, host_name="h", port=1)
    return make(cls, controller_id=1, controller_epoch=9, ungrouped_partition_states=[state], topic_states=[topic], live_leaders=[leader])


@api(5)
def _stop_replica(world: World, make: In, cls: Any) -> Any:
    first = make(stop_replica.StopReplicaPartitionV0, topic_name=world.topic, partition_index=0)
    second = make(stop_replica.StopReplicaTopicV1, name=world.topic, partition_indexes=[0])
    state = make(stop_replica.StopReplicaPartitionState, partition_index=0, leader_epoch=9, delete_partition=True)
    third = make(stop_replica.StopReplicaTopicState, topic_name=world.topic, partition_states=[state])
    return make(
        cls,
        controller_id=1,
        controller_epoch=9,
        delete_partitions=True,
        ungrouped_partitions=[first],
        topics=[second],
        topic_states=[third],
    )


@api(6)
def _update_metadata(world: World, make: In, cls: Any) -> Any:
    fields = {"partition_index": 0, "controller_epoch": 9, "leader": 1, "leader_epoch": 9, "isr": [1], "zk_version": 9, "replicas": [1]}
    state = make(update_metadata.UpdateMetadataPartitionState, topic_name=world.topic, **fields)
    topic = make(update_metadata.UpdateMetadataTopicState, topic_name=world.topic, topic_id=world.topic_id, partition_states=[state])
    endpoint = make(update_metadata.UpdateMetadataEndpoint, port=1, host="h", listener="L", security_protocol=0)
    broker = make(update_metadata.UpdateMetadataBroker, id=1, v0_host="h", v0_port=1, endpoints=[endpoint], rack=None)
    return make(cls, controller_id=1, controller_epoch=9, ungrouped_partition_states=[state], topic_states=[topic], live_brokers=[broker])


@api(8)
def _offset_commit(world: World, make: In, _cls: Any) -> Any:
    return world.offset_commit(make)


@api(9)
def _offset_fetch(world: World, make: In, cls: Any) -> Any:
    old = make(offset_fetch.OffsetFetchRequestTopic, name=world.topic, partition_indexes=[0, 1])
    new = make(offset_fetch.OffsetFetchRequestTopics, name=world.topic, topic_id=world.topic_id, partition_indexes=[0, 1])
    group = make(offset_fetch.OffsetFetchRequestGroup, group_id="offsets", topics=[new])
    return make(cls, group_id="offsets", topics=[old], groups=[group], require_stable=True)


@api(10)
def _find_coordinator(_world: World, make: In, cls: Any) -> Any:
    return make(cls, key="group", coordinator_keys=["group", "other"])


@api(11)
def _join_group(world: World, make: In, cls: Any) -> Any:
    protocol = make(join_group.JoinGroupRequestProtocol, name="range", metadata=b"\0\0" + bytes(8))
    return make(
        cls, group_id=world.fresh("group"), session_timeout_ms=NEVER_EXPIRES_MS, rebalance_timeout_ms=NEVER_EXPIRES_MS,
        protocol_type="consumer", protocols=[protocol], group_instance_id="instance",
    )  # fmt: skip


@api(12)
def _heartbeat(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("group")
    member, generation = world.join(group)
    return make(cls, group_id=group, generation_id=generation, member_id=member)


@api(13)
def _leave_group(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("group")
    member, _ = world.join(group)
    return make(cls, group_id=group, member_id=member, members=[make(leave_group.MemberIdentity, member_id=member, reason="bye")])


@api(14)
def _sync_group(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("group")
    member, generation = world.join(group)
    return make(cls, group_id=group, generation_id=generation, member_id=member, protocol_type="consumer", protocol_name="range")


@api(15)
def _describe_groups(_world: World, make: In, cls: Any) -> Any:
    return make(cls, groups=["group"], include_authorized_operations=True)


@api(19)
def _create_topics(world: World, make: In, _cls: Any) -> Any:
    config = make(create_topics.CreatableTopicConfig, name="retention.ms", value="1000")
    return world.make_topic(make.version, world.fresh("made"), configs=[config])


@api(20)
def _delete_topics(world: World, make: In, cls: Any) -> Any:
    name = world.fresh_topic()
    return make(cls, topics=[make(delete_topics.DeleteTopicState, name=name)], topic_names=[name], timeout_ms=5000)


@api(21)
def _delete_records(world: World, make: In, cls: Any) -> Any:
    partition = make(delete_records.DeleteRecordsPartition, partition_index=1, offset=-1)
    return make(cls, topics=[make(delete_records.DeleteRecordsTopic, name=world.topic, partitions=[partition])], timeout_ms=5000)


@api(22)
def _init_producer_id(world: World, make: In, cls: Any) -> Any:
    return make(cls, transactional_id=world.fresh("transaction"), transaction_timeout_ms=NEVER_EXPIRES_MS)


@api(23)
def _offset_for_leader_epoch(world: World, make: In, cls: Any) -> Any:
    partition = make(offset_for_leader_epoch.OffsetForLeaderPartition, partition=0, leader_epoch=0)
    return make(cls, topics=[make(offset_for_leader_epoch.OffsetForLeaderTopic, topic=world.topic, partitions=[partition])])


@api(24)
def _add_partitions(world: World, make: In, _cls: Any) -> Any:
    return world.add_partitions(make, *world.transaction(), world.fresh_topic())


@api(25)
def _add_offsets(world: World, make: In, cls: Any) -> Any:
    name, producer_id, epoch = world.transaction()
    return make(cls, transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="group")


@api(26)
def _end_txn(world: World, make: In, cls: Any) -> Any:
    name, producer_id, epoch = world.transaction(world.fresh_topic())
    return make(cls, transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)


@api(27)
def _write_markers(world: World, make: In, cls: Any) -> Any:
    topic = make(write_txn_markers.WritableTxnMarkerTopic, name=world.topic, partition_indexes=[0])
    return make(cls, markers=[make(write_txn_markers.WritableTxnMarker, producer_id=7, transaction_result=True, topics=[topic])])


@api(28)
def _txn_offset_commit(world: World, make: In, cls: Any) -> Any:
    name, producer_id, epoch = world.transaction()
    world.client.ask(_add_offsets_of(name, producer_id, epoch, "group-of-" + name), 3)
    partition = make(txn_offset_commit.TxnOffsetCommitRequestPartition, partition_index=0, committed_offset=1)
    topic = make(txn_offset_commit.TxnOffsetCommitRequestTopic, name=world.topic, topic_id=world.topic_id, partitions=[partition])
    fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    return make(cls, group_id="group-of-" + name, topics=[topic], **fields)


def _add_offsets_of(name: str, producer_id: int, epoch: int, group: str) -> Request:
    return load(25)[0](transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=group)


@api(30)
def _create_acls(_world: World, make: In, cls: Any) -> Any:
    acl = {"resource_type": TOPIC_RESOURCE, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    return make(cls, creations=[make(create_acls.AclCreation, **acl)])


@api(31)
def _delete_acls(_world: World, make: In, cls: Any) -> Any:
    return make(cls, filters=[make(delete_acls.DeleteAclsFilter, resource_type_filter=2, operation=1, permission_type=1)])


@api(32)
def _describe_configs(world: World, make: In, cls: Any) -> Any:
    resources = [
        make(describe_configs.DescribeConfigsResource, resource_type=kind, resource_name=name)
        for kind, name in ((TOPIC_RESOURCE, world.topic), (4, str(world_broker_id(world))))
    ]
    return make(cls, resources=resources, include_synonyms=True, include_documentation=True)


def world_broker_id(world: World) -> int:
    answer = world.client.ask(load(60)[0](), 0)
    broker_id: int = answer.brokers[0].broker_id
    return broker_id


@api(33)
def _alter_configs(world: World, make: In, cls: Any) -> Any:
    config = make(alter_configs.AlterableConfig, name="retention.ms", value="86400000000")
    return make(cls, resources=[make(alter_configs.AlterConfigsResource, resource_type=2, resource_name=world.topic, configs=[config])])


@api(35)
def _describe_log_dirs(world: World, make: In, cls: Any) -> Any:
    return make(cls, topics=[make(describe_log_dirs.DescribableLogDirTopic, topic=world.topic, partitions=[0, 1])])


@api(37)
def _create_partitions(world: World, make: In, cls: Any) -> Any:
    return make(
        cls, topics=[make(create_partitions.CreatePartitionsTopic, name=world.fresh_topic(), count=3, assignments=None)], timeout_ms=5000
    )


@api(42)
def _delete_groups(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("group")
    member, _ = world.join(group)
    world.client.ask(load(13)[0](group_id=group, member_id=member), 1)
    return make(cls, groups_names=[group])


@api(43)
def _elect_leaders(world: World, make: In, cls: Any) -> Any:
    return make(cls, topic_partitions=[make(elect_leaders.TopicPartitions, topic=world.topic, partitions=[0])])


@api(44)
def _incremental_alter_configs(world: World, make: In, cls: Any) -> Any:
    config = make(incremental_alter_configs.AlterableConfig, name="retention.ms", value="86400000000")
    resource = make(incremental_alter_configs.AlterConfigsResource, resource_type=2, resource_name=world.topic, configs=[config])
    return make(cls, resources=[resource])


@api(45)
def _reassign(world: World, make: In, cls: Any) -> Any:
    partition = make(alter_partition_reassignments.ReassignablePartition, partition_index=0, replicas=[world_broker_id(world)])
    return make(cls, topics=[make(alter_partition_reassignments.ReassignableTopic, name=world.topic, partitions=[partition])])


@api(34)
def _alter_replica_log_dirs(world: World, make: In, cls: Any) -> Any:
    topic = make(alter_replica_log_dirs.AlterReplicaLogDirTopic, name=world.topic, partitions=[0])
    return make(cls, dirs=[make(alter_replica_log_dirs.AlterReplicaLogDir, path="/nowhere", topics=[topic])])


@api(46)
def _list_reassignments(world: World, make: In, cls: Any) -> Any:
    return make(cls, topics=[make(list_reassignments.ListPartitionReassignmentsTopics, name=world.topic, partition_indexes=[0])])


@api(47)
def _offset_delete(world: World, make: In, cls: Any) -> Any:
    partition = make(offset_delete.OffsetDeleteRequestPartition, partition_index=1)
    topic = make(offset_delete.OffsetDeleteRequestTopic, name=world.topic, partitions=[partition])
    return make(cls, group_id="offsets", topics=[topic])


@api(56)
def _alter_partition(world: World, make: In, cls: Any) -> Any:
    state = make(alter_partition.BrokerState, broker_id=1, broker_epoch=1)
    partition = make(alter_partition.PartitionData, partition_index=0, leader_epoch=0, new_isr=[1], new_isr_with_epochs=[state])
    return make(cls, broker_id=1, broker_epoch=1, topics=[make(alter_partition.TopicData, topic_id=world.topic_id, partitions=[partition])])


@api(58)
def _envelope(_world: World, make: In, cls: Any) -> Any:
    """With a request that is not for the controller."""
    principal = bytes.fromhex("0000 05 55736572 02 61 00 00")
    return make(cls, request_data=bytes(20), request_principal=principal, client_host_address=bytes(4))


@api(57)
def _update_features(_world: World, make: In, cls: Any) -> Any:
    return make(cls, feature_updates=[make(update_features.FeatureUpdateKey, feature="transaction.version", max_version_level=2)])


@api(61)
def _describe_producers(world: World, make: In, cls: Any) -> Any:
    return make(cls, topics=[make(describe_producers.TopicRequest, name=world.topic, partition_indexes=[0])])


@api(65)
def _describe_transactions(world: World, make: In, cls: Any) -> Any:
    return make(cls, transactional_ids=[world.transaction(world.fresh_topic())[0]])


@api(75)
def _describe_topic_partitions(world: World, make: In, cls: Any) -> Any:
    return make(cls, topics=[make(describe_topic_partitions.TopicRequest, name=world.topic)])


@api(68)
def _consumer_group_heartbeat(world: World, make: In, cls: Any) -> Any:
    return make(cls, **world.first_heartbeat(world.fresh("consumer-group")))


@api(69)
def _consumer_group_describe(world: World, make: In, cls: Any) -> Any:
    group = world.fresh("consumer-group")
    world.client.ask(load(68)[0](**world.first_heartbeat(group)), 1)
    return make(cls, group_ids=[group], include_authorized_operations=True)


@api(72)
def _push_telemetry(world: World, make: In, cls: Any) -> Any:
    subscription = world.client.ask(load(71)[0](), 0)
    return make(cls, client_instance_id=subscription.client_instance_id, subscription_id=subscription.subscription_id)


@api(20003)
def _describe_segments(world: World, _make: In, cls: Any) -> Any:
    return cls(topic=world.topic, partition=0, index_of=0)


@api(20000)
def _stage_records(world: World, _make: In, _cls: Any) -> Any:
    return world.stage(world.fresh("token").encode().ljust(16, b"-"), batch(is_transactional=True))


@api(20001)
def _attach_records(world: World, _make: In, cls: Any) -> Any:
    name, producer_id, epoch = world.transaction(world.topic)
    token, records = name.encode().ljust(16, b"-"), batch(is_transactional=True)
    assert error_codes(world.client.ask(world.stage(token, records), 0)) == [0]
    chunk = attach_records.StagedChunk(attempt_id=1, chunk=0, records=3, length=len(records), crc=crc32c(records))
    topic = attach_records.AttachTopic(name=world.topic, partitions=[attach_records.AttachPartition(index=0, chunks=[chunk])])
    return cls(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, acks=-1, timeout_ms=5000, batch_token=token, topics=[topic]
    )


@api(20004)
def _mirror_records(world: World, _make: In, cls: Any) -> Any:
    """One batch of leader epoch 0 for a topic that mirrors another cluster's, and has leader epoch 1."""
    name, settings = world.fresh("mirror"), {"ottla.mirror.source": "a:b", "ottla.leader.epoch.min": "1"}
    configs = [create_topics.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    world.client.ask(world.make_topic(7, name, configs=configs), 7)
    records = bytes(encode_batch([Record(0, 0, None, b"mirrored")], leader_epoch=0))
    partition = mirror_records.MirrorPartition(index=0, expected_end=0, records=records)
    return cls(timeout_ms=5000, topics=[mirror_records.MirrorTopic(name=name, source="a:b", partitions=[partition])])
