"""The table of APIs: which keys this broker serves, in which versions, and which module answers.

One line an API. ApiVersions is answered from here, so what is advertised is what is served; a test holds each line equal to the module's
own KEY, MIN_VERSION and MAX_VERSION. Modules are imported at the first request of their key, because a broker that starts in a fraction
of a second must not import sixty handlers that nobody has asked for.
"""

from __future__ import annotations

from typing import NamedTuple


class Api(NamedTuple):
    """One line of the table; `is_advertised` is False for what only brokers may send."""

    key: int
    module: str
    min_version: int
    max_version: int
    is_advertised: bool = True


TABLE: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "produce", 3, 13),
        Api(1, "fetch", 4, 18),
        Api(2, "list_offsets", 1, 11),
        Api(3, "metadata", 0, 13),
        Api(4, "leader_and_isr", 0, 7, is_advertised=False),
        Api(5, "stop_replica", 0, 4, is_advertised=False),
        Api(6, "update_metadata", 0, 8, is_advertised=False),
        Api(7, "controlled_shutdown", 0, 3, is_advertised=False),
        Api(8, "offset_commit", 2, 10),
        Api(9, "offset_fetch", 1, 10),
        Api(10, "find_coordinator", 0, 6),
        Api(11, "join_group", 0, 9),
        Api(12, "heartbeat", 0, 4),
        Api(13, "leave_group", 0, 5),
        Api(14, "sync_group", 0, 5),
        Api(15, "describe_groups", 0, 6),
        Api(16, "list_groups", 0, 5),
        Api(17, "sasl_handshake", 0, 1),
        Api(18, "api_versions", 0, 5),
        Api(19, "create_topics", 2, 7),
        Api(20, "delete_topics", 1, 6),
        Api(21, "delete_records", 0, 2),
        Api(22, "init_producer_id", 0, 6),
        Api(23, "offset_for_leader_epoch", 2, 4),
        Api(24, "add_partitions_to_txn", 0, 5),
        Api(25, "add_offsets_to_txn", 0, 4),
        Api(26, "end_txn", 0, 5),
        Api(27, "write_txn_markers", 1, 2),
        Api(28, "txn_offset_commit", 0, 6),
        Api(29, "describe_acls", 1, 3),
        Api(30, "create_acls", 1, 3),
        Api(31, "delete_acls", 1, 3),
        Api(32, "describe_configs", 1, 4),
        Api(33, "alter_configs", 0, 2),
        Api(34, "alter_replica_log_dirs", 1, 2),
        Api(35, "describe_log_dirs", 1, 5),
        Api(36, "sasl_authenticate", 0, 2),
        Api(37, "create_partitions", 0, 3),
        Api(42, "delete_groups", 0, 3),
        Api(43, "elect_leaders", 0, 2),
        Api(44, "incremental_alter_configs", 0, 1),
        Api(45, "alter_partition_reassignments", 0, 1),
        Api(46, "list_partition_reassignments", 0, 0),
        Api(47, "offset_delete", 0, 0),
        Api(48, "describe_client_quotas", 0, 1),
        Api(49, "alter_client_quotas", 0, 1),
        Api(50, "describe_user_scram_credentials", 0, 0),
        Api(55, "describe_quorum", 0, 2),
        Api(56, "alter_partition", 2, 3, is_advertised=False),
        Api(57, "update_features", 0, 2),
        Api(60, "describe_cluster", 0, 2),
        Api(61, "describe_producers", 0, 0),
        Api(65, "describe_transactions", 0, 0),
        Api(66, "list_transactions", 0, 2),
        Api(68, "consumer_group_heartbeat", 0, 1),
        Api(69, "consumer_group_describe", 0, 1),
        Api(74, "list_config_resources", 0, 1),
        Api(75, "describe_topic_partitions", 0, 0),
        Api(76, "share_group_heartbeat", 1, 1),
        Api(77, "share_group_describe", 1, 1),
        Api(78, "share_fetch", 1, 2),
        Api(79, "share_acknowledge", 1, 2),
        Api(83, "initialize_share_group_state", 0, 0),
        Api(84, "read_share_group_state", 0, 0),
        Api(85, "write_share_group_state", 0, 1),
        Api(86, "delete_share_group_state", 0, 0),
        Api(87, "read_share_group_state_summary", 0, 1),
        Api(90, "describe_share_group_offsets", 0, 1),
        Api(91, "alter_share_group_offsets", 0, 0),
        Api(92, "delete_share_group_offsets", 0, 0),
    )
}
