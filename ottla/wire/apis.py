"""The APIs of the protocol: key, name, versions and the first flexible version of each. A few modules have the key of one API as a constant
of their own.

A message class finds its API by its own name (`FetchRequest`), `framing.py` by the key. Headers can therefore be read before any message
module is imported. An answer to ApiVersions needs only the module of its own messages. `handlers/served_apis.py` has the APIs that the
broker serves, with the ACL operations they need. The keys below `EXTENSIONS_SINCE` are Kafka's, the others are Ottla's own.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Api(NamedTuple):
    """One API of the protocol: its name, its lowest and highest version, and its first flexible version (None: no version is flexible)."""

    name: str
    lowest: int
    highest: int
    flexible_since: int | None
    client_id_since: int = 0
    """The first version whose request header has a client id."""

    @property
    def module(self) -> str:
        """The name of the module of its messages in `wire/messages/`, and of its handler in `handlers/` if the broker serves it."""
        return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()


APIS: dict[int, Api] = {
    0: Api("Produce", 3, 13, 9),
    1: Api("Fetch", 4, 18, 12),
    2: Api("ListOffsets", 1, 11, 6),
    3: Api("Metadata", 0, 13, 9),
    4: Api("LeaderAndIsr", 0, 7, 4),
    5: Api("StopReplica", 0, 4, 2),
    6: Api("UpdateMetadata", 0, 8, 6),
    7: Api("ControlledShutdown", 0, 3, 3, client_id_since=1),
    8: Api("OffsetCommit", 2, 10, 8),
    9: Api("OffsetFetch", 1, 10, 6),
    10: Api("FindCoordinator", 0, 6, 3),
    11: Api("JoinGroup", 0, 9, 6),
    12: Api("Heartbeat", 0, 4, 4),
    13: Api("LeaveGroup", 0, 5, 4),
    14: Api("SyncGroup", 0, 5, 4),
    15: Api("DescribeGroups", 0, 6, 5),
    16: Api("ListGroups", 0, 5, 3),
    17: Api("SaslHandshake", 0, 1, None),
    18: Api("ApiVersions", 0, 5, 3),
    19: Api("CreateTopics", 2, 7, 5),
    20: Api("DeleteTopics", 1, 6, 4),
    21: Api("DeleteRecords", 0, 2, 2),
    22: Api("InitProducerId", 0, 6, 2),
    23: Api("OffsetForLeaderEpoch", 2, 4, 4),
    24: Api("AddPartitionsToTxn", 0, 5, 3),
    25: Api("AddOffsetsToTxn", 0, 4, 3),
    26: Api("EndTxn", 0, 5, 3),
    27: Api("WriteTxnMarkers", 1, 2, 1),
    28: Api("TxnOffsetCommit", 0, 6, 3),
    29: Api("DescribeAcls", 1, 3, 2),
    30: Api("CreateAcls", 1, 3, 2),
    31: Api("DeleteAcls", 1, 3, 2),
    32: Api("DescribeConfigs", 1, 4, 4),
    33: Api("AlterConfigs", 0, 2, 2),
    34: Api("AlterReplicaLogDirs", 1, 2, 2),
    35: Api("DescribeLogDirs", 1, 5, 2),
    36: Api("SaslAuthenticate", 0, 2, 2),
    37: Api("CreatePartitions", 0, 3, 2),
    38: Api("CreateDelegationToken", 1, 3, 2),
    39: Api("RenewDelegationToken", 1, 2, 2),
    40: Api("ExpireDelegationToken", 1, 2, 2),
    41: Api("DescribeDelegationToken", 1, 3, 2),
    42: Api("DeleteGroups", 0, 3, 2),
    43: Api("ElectLeaders", 0, 2, 2),
    44: Api("IncrementalAlterConfigs", 0, 1, 1),
    45: Api("AlterPartitionReassignments", 0, 1, 0),
    46: Api("ListPartitionReassignments", 0, 0, 0),
    47: Api("OffsetDelete", 0, 0, None),
    48: Api("DescribeClientQuotas", 0, 1, 1),
    49: Api("AlterClientQuotas", 0, 1, 1),
    50: Api("DescribeUserScramCredentials", 0, 0, 0),
    51: Api("AlterUserScramCredentials", 0, 0, 0),
    52: Api("Vote", 0, 2, 0),
    53: Api("BeginQuorumEpoch", 0, 1, 1),
    54: Api("EndQuorumEpoch", 0, 1, 1),
    55: Api("DescribeQuorum", 0, 2, 0),
    56: Api("AlterPartition", 2, 3, 0),
    57: Api("UpdateFeatures", 0, 2, 0),
    58: Api("Envelope", 0, 0, 0),
    59: Api("FetchSnapshot", 0, 1, 0),
    60: Api("DescribeCluster", 0, 2, 0),
    61: Api("DescribeProducers", 0, 0, 0),
    62: Api("BrokerRegistration", 0, 4, 0),
    63: Api("BrokerHeartbeat", 0, 2, 0),
    64: Api("UnregisterBroker", 0, 0, 0),
    65: Api("DescribeTransactions", 0, 0, 0),
    66: Api("ListTransactions", 0, 2, 0),
    67: Api("AllocateProducerIds", 0, 0, 0),
    68: Api("ConsumerGroupHeartbeat", 0, 1, 0),
    69: Api("ConsumerGroupDescribe", 0, 1, 0),
    70: Api("ControllerRegistration", 0, 0, 0),
    71: Api("GetTelemetrySubscriptions", 0, 0, 0),
    72: Api("PushTelemetry", 0, 0, 0),
    73: Api("AssignReplicasToDirs", 0, 0, 0),
    74: Api("ListConfigResources", 0, 1, 0),
    75: Api("DescribeTopicPartitions", 0, 0, 0),
    76: Api("ShareGroupHeartbeat", 1, 1, 0),
    77: Api("ShareGroupDescribe", 1, 1, 0),
    78: Api("ShareFetch", 1, 2, 0),
    79: Api("ShareAcknowledge", 1, 2, 0),
    80: Api("AddRaftVoter", 0, 1, 0),
    81: Api("RemoveRaftVoter", 0, 0, 0),
    82: Api("UpdateRaftVoter", 0, 0, 0),
    83: Api("InitializeShareGroupState", 0, 0, 0),
    84: Api("ReadShareGroupState", 0, 0, 0),
    85: Api("WriteShareGroupState", 0, 1, 0),
    86: Api("DeleteShareGroupState", 0, 0, 0),
    87: Api("ReadShareGroupStateSummary", 0, 1, 0),
    88: Api("StreamsGroupHeartbeat", 0, 1, 0),
    89: Api("StreamsGroupDescribe", 0, 1, 0),
    90: Api("DescribeShareGroupOffsets", 0, 1, 0),
    91: Api("AlterShareGroupOffsets", 0, 0, 0),
    92: Api("DeleteShareGroupOffsets", 0, 0, 0),
    93: Api("StreamsGroupTopologyDescriptionUpdate", 0, 0, 0),
    94: Api("UnregisterController", 0, 0, 0),
    20000: Api("StageRecords", 0, 0, 0),
    20001: Api("AttachRecords", 0, 1, 0),
    20002: Api("DescribeFrames", 0, 0, 0),
    20003: Api("DescribeSegments", 0, 0, 0),
    20004: Api("MirrorRecords", 0, 0, 0),
}

EXTENSIONS_SINCE = 20000
"""The lowest key of Ottla's own APIs. A broker serves these only on connections that have asked for extensions."""

KEYS: dict[str, int] = {api.name: key for key, api in APIS.items()}
API_NAMES: dict[int, str] = {key: api.name for key, api in APIS.items()}
API_VERSION_RANGES: dict[int, tuple[int, int]] = {key: (api.lowest, api.highest) for key, api in APIS.items()}
