"""The APIs that this broker serves: one line each, with the permissions that a request may need and the exceptions to the common rules.

`wire/apis.py` has the key, the versions and the flexible versions of each API; all versions declared there are served. A line names the
folder of its handler, beside this file; the handler's module has the API's name. ApiVersions is answered from this table, so the advertised
versions are the served ones (except Produce 0-2). A handler's module is imported at the first request of its key, because a broker that
starts in a fraction of a second must not import eighty handlers that no client uses.

`rights` has every (operation, resource type) that the handler may check for the request. It does not have the checks for the bits of
authorized operations and for the proof of a broker (SaslHandshake). Some are alternatives, and some only filter the response. Tests compare
the rights with Kafka's table and with the checks that the handlers make.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.apis import APIS, EXTENSIONS_SINCE, KEYS


class Right(NamedTuple):
    operation: AclOperation
    resource_type: ResourceType


class ServedApi(NamedTuple):
    """One line of the table."""

    key: int
    name: str
    handler: str
    """Its module below `ottla.handlers`."""
    min_version: int
    max_version: int
    advertised_from: int
    """The lowest version that ApiVersions shows."""
    rights: tuple[Right, ...]
    is_advertised: bool = True
    """False for requests between brokers that Kafka's brokers do not advertise to clients. Other requests between brokers are advertised.
    """
    is_extension: bool = False
    """Our own API and not Kafka's: advertised to clients that ask for extensions, and served to them only."""
    is_before_authentication: bool = False
    """Served before a connection has authenticated."""
    may_have_stray_bytes: bool = False
    """Bytes behind the end of the request are skipped."""
    has_file_slices: bool = False
    """Its answers contain slices of files."""
    is_forwarded: bool = False
    """For the controller: a broker that is not the controller forwards it (KIP-590)."""
    awaits_metadata: bool = False
    """Its answer shows metadata. After the start, a broker of a cluster delays the request until it has received the metadata."""
    is_change: bool = False
    """It changes metadata, and may wait for a disk or another machine. A connection executes one such request at a time."""
    parked_factor: int = 8
    """Estimated memory of a decoded request that waits for its answer, as a multiple of its size in bytes."""


def _line(folder: str, name: str, *rights: Right, advertised_from: int | None = None, parked_factor: int = 8, **traits: bool) -> ServedApi:
    key = KEYS[name]
    api = APIS[key]
    first = api.lowest if advertised_from is None else advertised_from
    is_extension = key >= EXTENSIONS_SINCE
    return ServedApi(
        key, name, f"{folder}.{api.module}", api.lowest, api.highest, first, rights,
        is_extension=is_extension, parked_factor=parked_factor, **traits,
    )  # fmt: skip


_O, _R = AclOperation, ResourceType
READ_TOPIC = Right(_O.READ, _R.TOPIC)
WRITE_TOPIC = Right(_O.WRITE, _R.TOPIC)
CREATE_TOPIC = Right(_O.CREATE, _R.TOPIC)
DELETE_TOPIC = Right(_O.DELETE, _R.TOPIC)
ALTER_TOPIC = Right(_O.ALTER, _R.TOPIC)
DESCRIBE_TOPIC = Right(_O.DESCRIBE, _R.TOPIC)
READ_GROUP = Right(_O.READ, _R.GROUP)
DELETE_GROUP = Right(_O.DELETE, _R.GROUP)
DESCRIBE_GROUP = Right(_O.DESCRIBE, _R.GROUP)
WRITE_TRANSACTIONAL_ID = Right(_O.WRITE, _R.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Right(_O.DESCRIBE, _R.TRANSACTIONAL_ID)
TWO_PHASE_COMMIT = Right(_O.TWO_PHASE_COMMIT, _R.TRANSACTIONAL_ID)
CREATE_CLUSTER = Right(_O.CREATE, _R.CLUSTER)
ALTER_CLUSTER = Right(_O.ALTER, _R.CLUSTER)
DESCRIBE_CLUSTER = Right(_O.DESCRIBE, _R.CLUSTER)
CLUSTER_ACTION = Right(_O.CLUSTER_ACTION, _R.CLUSTER)
IDEMPOTENT_WRITE = Right(_O.IDEMPOTENT_WRITE, _R.CLUSTER)
CREATE_TOKENS = Right(_O.CREATE_TOKENS, _R.USER)
DESCRIBE_TOKENS = Right(_O.DESCRIBE_TOKENS, _R.USER)
DESCRIBE_TOKEN = Right(_O.DESCRIBE, _R.DELEGATION_TOKEN)
DESCRIBE_CONFIGS = tuple(Right(_O.DESCRIBE_CONFIGS, kind) for kind in (_R.TOPIC, _R.CLUSTER, _R.GROUP))
ALTER_CONFIGS = tuple(Right(_O.ALTER_CONFIGS, kind) for kind in (_R.TOPIC, _R.CLUSTER, _R.GROUP))

TABLE: dict[int, ServedApi] = {
    api.key: api
    for api in (
        # Old librdkafka derives the broker's features from the lowest version of Produce (KAFKA-18659), so 0-2 are advertised and refused.
        _line("records", "Produce", WRITE_TOPIC, WRITE_TRANSACTIONAL_ID, advertised_from=0, parked_factor=1),
        _line("records", "Fetch", READ_TOPIC, CLUSTER_ACTION, has_file_slices=True, parked_factor=16),
        _line("records", "ListOffsets", DESCRIBE_TOPIC),
        # librdkafka up to at least 2.16 sends three bytes after the end of a Metadata request for all topics.
        _line(
            "topics", "Metadata", DESCRIBE_TOPIC, CREATE_TOPIC, CREATE_CLUSTER, DESCRIBE_CLUSTER,
            may_have_stray_bytes=True, awaits_metadata=True,
        ),
        _line("cluster", "LeaderAndIsr", CLUSTER_ACTION, is_advertised=False),
        _line("cluster", "StopReplica", CLUSTER_ACTION, is_advertised=False),
        _line("cluster", "UpdateMetadata", CLUSTER_ACTION, is_advertised=False),
        _line("cluster", "ControlledShutdown", CLUSTER_ACTION, is_advertised=False),
        _line("groups", "OffsetCommit", READ_GROUP, READ_TOPIC),
        _line("groups", "OffsetFetch", DESCRIBE_GROUP, DESCRIBE_TOPIC),
        _line("groups", "FindCoordinator", DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID, CLUSTER_ACTION),
        _line("groups", "JoinGroup", READ_GROUP),
        _line("groups", "Heartbeat", READ_GROUP),
        _line("groups", "LeaveGroup", READ_GROUP),
        _line("groups", "SyncGroup", READ_GROUP),
        _line("groups", "DescribeGroups", DESCRIBE_GROUP),
        _line("groups", "ListGroups", DESCRIBE_CLUSTER, DESCRIBE_GROUP),
        _line("access", "SaslHandshake", is_before_authentication=True),
        _line("cluster", "ApiVersions", is_before_authentication=True),
        _line("topics", "CreateTopics", CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS[0], is_forwarded=True, is_change=True),
        _line("topics", "DeleteTopics", DELETE_TOPIC, DESCRIBE_TOPIC, is_forwarded=True, is_change=True),
        _line("records", "DeleteRecords", DELETE_TOPIC),
        _line("transactions", "InitProducerId", WRITE_TRANSACTIONAL_ID, TWO_PHASE_COMMIT, IDEMPOTENT_WRITE, WRITE_TOPIC),
        _line("records", "OffsetForLeaderEpoch", CLUSTER_ACTION, DESCRIBE_TOPIC),
        _line("transactions", "AddPartitionsToTxn", WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, CLUSTER_ACTION),
        _line("transactions", "AddOffsetsToTxn", WRITE_TRANSACTIONAL_ID, READ_GROUP),
        _line("transactions", "EndTxn", WRITE_TRANSACTIONAL_ID),
        _line("transactions", "WriteTxnMarkers", CLUSTER_ACTION, ALTER_CLUSTER),
        _line("transactions", "TxnOffsetCommit", WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC),
        # segmentio's kafka-go sends one byte after the end of a DescribeAcls request.
        _line("access", "DescribeAcls", DESCRIBE_CLUSTER, may_have_stray_bytes=True),
        _line("access", "CreateAcls", ALTER_CLUSTER, is_change=True),
        _line("access", "DeleteAcls", ALTER_CLUSTER, is_change=True),
        _line("configs", "DescribeConfigs", *DESCRIBE_CONFIGS),
        _line("configs", "AlterConfigs", *ALTER_CONFIGS, is_forwarded=True, is_change=True),
        _line("topics", "AlterReplicaLogDirs", ALTER_CLUSTER),
        _line("topics", "DescribeLogDirs", DESCRIBE_CLUSTER),
        _line("access", "SaslAuthenticate", is_before_authentication=True),
        _line("topics", "CreatePartitions", ALTER_TOPIC, is_forwarded=True, is_change=True),
        _line("access", "CreateDelegationToken", CREATE_TOKENS, is_change=True),
        _line("access", "RenewDelegationToken", is_change=True),
        _line("access", "ExpireDelegationToken", is_change=True),
        _line("access", "DescribeDelegationToken", DESCRIBE_TOKEN, DESCRIBE_TOKENS),
        _line("groups", "DeleteGroups", DELETE_GROUP),
        _line("topics", "ElectLeaders", ALTER_CLUSTER, is_forwarded=True, is_change=True),
        _line("configs", "IncrementalAlterConfigs", *ALTER_CONFIGS, is_forwarded=True, is_change=True),
        _line("topics", "AlterPartitionReassignments", ALTER_CLUSTER, is_forwarded=True, is_change=True),
        _line("topics", "ListPartitionReassignments", DESCRIBE_CLUSTER, is_forwarded=True),
        _line("groups", "OffsetDelete", DELETE_GROUP, READ_TOPIC),
        _line("configs", "DescribeClientQuotas", DESCRIBE_CONFIGS[1]),
        _line("configs", "AlterClientQuotas", ALTER_CONFIGS[1], is_forwarded=True, is_change=True),
        _line("access", "DescribeUserScramCredentials", DESCRIBE_CLUSTER),
        # librdkafka 2.16 sends one byte after the end of an AlterUserScramCredentials request.
        _line("access", "AlterUserScramCredentials", ALTER_CLUSTER, is_forwarded=True, may_have_stray_bytes=True, is_change=True),
        _line("cluster", "DescribeQuorum", DESCRIBE_CLUSTER, awaits_metadata=True),
        _line("cluster", "AlterPartition", CLUSTER_ACTION, is_advertised=False),
        _line("cluster", "UpdateFeatures", ALTER_CLUSTER, is_forwarded=True),
        _line("cluster", "Envelope", CLUSTER_ACTION, is_advertised=False),
        _line("cluster", "DescribeCluster", DESCRIBE_CLUSTER, awaits_metadata=True),
        _line("records", "DescribeProducers", READ_TOPIC),
        _line("cluster", "UnregisterBroker", ALTER_CLUSTER, awaits_metadata=True),
        _line("transactions", "DescribeTransactions", DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC),
        _line("transactions", "ListTransactions", DESCRIBE_TRANSACTIONAL_ID),
        _line("groups", "ConsumerGroupHeartbeat", READ_GROUP, DESCRIBE_TOPIC),
        _line("groups", "ConsumerGroupDescribe", DESCRIBE_GROUP, DESCRIBE_TOPIC),
        _line("telemetry", "GetTelemetrySubscriptions"),
        _line("telemetry", "PushTelemetry", parked_factor=2),
        _line("configs", "ListConfigResources", DESCRIBE_CONFIGS[1]),
        _line("topics", "DescribeTopicPartitions", DESCRIBE_TOPIC, awaits_metadata=True),
        _line("share_groups", "ShareGroupHeartbeat", READ_GROUP, DESCRIBE_TOPIC),
        _line("share_groups", "ShareGroupDescribe", DESCRIBE_GROUP, DESCRIBE_TOPIC),
        _line("share_groups", "ShareFetch", READ_GROUP, READ_TOPIC, has_file_slices=True),
        _line("share_groups", "ShareAcknowledge", READ_GROUP, READ_TOPIC),
        _line("cluster", "AddRaftVoter", ALTER_CLUSTER),
        _line("cluster", "RemoveRaftVoter", ALTER_CLUSTER),
        _line("share_groups", "InitializeShareGroupState", CLUSTER_ACTION),
        _line("share_groups", "ReadShareGroupState", CLUSTER_ACTION),
        _line("share_groups", "WriteShareGroupState", CLUSTER_ACTION),
        _line("share_groups", "DeleteShareGroupState", CLUSTER_ACTION),
        _line("share_groups", "ReadShareGroupStateSummary", CLUSTER_ACTION),
        _line("streams_groups", "StreamsGroupHeartbeat", READ_GROUP, DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC),
        _line("streams_groups", "StreamsGroupDescribe", DESCRIBE_GROUP, DESCRIBE_TOPIC),
        _line("streams_groups", "StreamsGroupTopologyDescriptionUpdate", READ_GROUP),
        _line("share_groups", "DescribeShareGroupOffsets", DESCRIBE_GROUP, DESCRIBE_TOPIC),
        _line("share_groups", "AlterShareGroupOffsets", READ_GROUP, READ_TOPIC),
        _line("share_groups", "DeleteShareGroupOffsets", DELETE_GROUP, READ_TOPIC),
        _line("records", "StageRecords", WRITE_TOPIC),
        _line("records", "AttachRecords", WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
        _line("cluster", "DescribeFrames", ALTER_CLUSTER),
        _line("records", "DescribeSegments", DESCRIBE_TOPIC),
        _line("records", "MirrorRecords", CLUSTER_ACTION, parked_factor=1),
    )
}  # fmt: skip
